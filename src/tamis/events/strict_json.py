"""The standard library's JSON scanner with the holes closed: what it must not pass is marked.

The scanner is in C. Its hooks see what must be refused but not where it is, so they leave a
`RejectedValue` in its place; the walk over the data, which knows the place, refuses it. The hooks
cost about an eighth of such a walk.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Final, NamedTuple

# No longer integer fits in 64 bits. Converting one takes quadratic time, or CPython refuses to.
_LONGEST_INTEGER: Final = len(str(-(2**63)))


class RejectedValue(NamedTuple):
    """Stands in decoded data for what must be refused there: its reason."""

    reason: str


_GIVEN_TWICE: Final = RejectedValue("the name is given twice in one object")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                members[key] = _GIVEN_TWICE
            seen.add(key)
    return members


def _integer(digits: str) -> int | RejectedValue:
    if len(digits) <= _LONGEST_INTEGER:
        return int(digits)
    return RejectedValue(
        f"an integer of {len(digits.lstrip('-')):,} digits does not fit in 64 bits; "
        "send it as text or as a float"
    )


def _float(digits: str) -> float | RejectedValue:
    number = float(digits)
    return number if isfinite(number) else RejectedValue(f"{digits:.40} is too large for a float")


def _constant(name: str) -> RejectedValue:
    return RejectedValue(f"{name} is not JSON; leave the attribute out")


DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)

"""The standard library's JSON scanner with the holes closed: what it must not pass is marked.

The scanner is in C. Its hooks see what must be refused but not where it is, so they leave a
`Refused` in its place, for whoever walks the data and knows the place to refuse. The hooks cost
about an eighth of such a walk.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Final, NamedTuple

# No longer integer fits in 64 bits. Converting one takes quadratic time, or CPython refuses to.
_LONGEST_INTEGER: Final = len(str(-(2**63)))


class Refused(NamedTuple):
    """Stands in decoded data for what must be refused there: its reason."""

    reason: str


_GIVEN_TWICE: Final = Refused("the name is given twice in one object")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                members[key] = _GIVEN_TWICE
            seen.add(key)
    return members


def _integer(digits: str) -> int | Refused:
    if len(digits) <= _LONGEST_INTEGER:
        return int(digits)
    return Refused(
        f"an integer of {len(digits.lstrip('-')):,} digits does not fit in 64 bits; "
        "send it as text or as a float"
    )


def _float(digits: str) -> float | Refused:
    number = float(digits)
    return number if isfinite(number) else Refused(f"{digits:.40} is too large for a float")


def _constant(name: str) -> Refused:
    return Refused(f"{name} is not JSON; leave the attribute out")


DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)

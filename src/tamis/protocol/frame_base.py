"""What all frames share."""

from __future__ import annotations

from typing import Annotated

import msgspec

# What fits in 64 bits; the receiver checks whether it makes sense.
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Frame(
    msgspec.Struct,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag=str.lower,
):
    """The base of all frames."""

"""The filter of a route as bytes for the state: its structure, which says its version."""

from __future__ import annotations

import msgspec

from tamis.errors import FilterStructureError
from tamis.filters import Filter
from tamis.filters.limits import NO_LIMITS
from tamis.filters.structure import from_structure, to_structure


def encode_route(filter_: Filter) -> bytes:
    """Return a filter as bytes."""
    return msgspec.json.encode(to_structure(filter_))


def decode_route(data: bytes) -> Filter:
    """Return the filter that `encode_route` wrote."""
    try:
        structure = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise FilterStructureError(f"this is not the structure of a filter: {error}") from None
    return from_structure(structure, NO_LIMITS)

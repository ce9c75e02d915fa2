"""The codes of refusals, for programs to act on."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Code(StrEnum):
    """Why a broker refuses a request."""

    BAD_REQUEST = "bad_request"
    """Not a request, or an incomplete one."""
    BAD_FILTER = "bad_filter"
    BAD_EVENT = "bad_event"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    OUT_OF_ORDER = "out_of_order"
    """A publisher's number is not the one that comes next; the refusal says which is."""
    TOO_LARGE = "too_large"
    TOO_MANY = "too_many"
    """A quota is exhausted; try again later, or release some of it."""
    STORAGE_FULL = "storage_full"
    """Nothing was stored; try again when there is space."""
    UNAVAILABLE = "unavailable"
    """The broker is starting, closing or broken; try again later."""


STATUS: Final = {
    Code.BAD_REQUEST: 400,
    Code.BAD_FILTER: 422,
    Code.BAD_EVENT: 422,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.NOT_FOUND: 404,
    Code.CONFLICT: 409,
    Code.OUT_OF_ORDER: 409,
    Code.TOO_LARGE: 413,
    Code.TOO_MANY: 429,
    Code.STORAGE_FULL: 507,
    Code.UNAVAILABLE: 503,
}
"""The HTTP status of each code."""

RETRYABLE: Final = frozenset({Code.TOO_MANY, Code.STORAGE_FULL, Code.UNAVAILABLE})
"""The refusals that are temporary."""

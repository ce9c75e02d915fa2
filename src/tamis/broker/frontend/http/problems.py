"""HTTP errors, always as `application/problem+json` (RFC 9457)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from starlette.responses import Response

from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.protocol.codes import STATUS

MEDIA_TYPE: Final = "application/problem+json"

TITLES: Final = {
    Code.BAD_REQUEST: "The request is not valid",
    Code.BAD_FILTER: "The filter cannot be used",
    Code.BAD_EVENT: "The event is not valid",
    Code.UNAUTHENTICATED: "The broker does not know who you are",
    Code.FORBIDDEN: "You may not do this",
    Code.NOT_FOUND: "Not found",
    Code.CONFLICT: "It conflicts with the state of the broker",
    Code.OUT_OF_ORDER: "The number is out of order",
    Code.TOO_LARGE: "This is too large",
    Code.TOO_MANY: "Too many requests",
    Code.STORAGE_FULL: "There is no space to store it",
    Code.UNAVAILABLE: "The broker cannot do it now",
}


class ProblemDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request was refused."""

    type: str
    """`urn:tamis:` and the code."""
    title: str
    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    code: Code
    detail: str
    """A sentence about this request."""
    instance: str
    """The path of the request."""
    index: int | None = None
    """Which event of a batch is the cause, counted from 0."""
    expected: int | None = None
    """The number that the publisher must use next."""


class HTTPRefusedError(RefusedError):
    """A refusal whose status is more specific than its code, such as 405 or 415."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        code: Code = Code.BAD_REQUEST,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.headers = headers or {}
        super().__init__(code, message)


def head_too_large(limit: int) -> HTTPRefusedError:
    """Return the refusal of a request with too large a header."""
    return HTTPRefusedError(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        f"the request without its body has more than {limit:,} bytes",
        code=Code.TOO_LARGE,
        headers={"Connection": "close"},
    )


def problem(error: RefusedError, instance: str) -> ProblemDetails:
    """Return a refusal as the client sees it."""
    code = Code(error.code)
    return ProblemDetails(
        type=f"urn:tamis:{code}",
        title=TITLES[code],
        status=int(error.status if isinstance(error, HTTPRefusedError) else STATUS[code]),
        code=code,
        detail=str(error),
        instance=instance,
        index=error.index,
        expected=error.expected,
    )


def problem_response(error: RefusedError, instance: str) -> Response:
    """Return the response to a refused request."""
    said = problem(error, instance)
    headers = dict(error.headers) if isinstance(error, HTTPRefusedError) else {}
    if said.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="tamis"'
    if error.retry_after is not None and math.isfinite(error.retry_after):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    return Response(msgspec.json.encode(said), said.status, headers, MEDIA_TYPE)

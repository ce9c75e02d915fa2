"""Reading what a request brings: body, query and token, within limits and with sentences."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable
from functools import cache
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

import msgspec
from starlette.requests import HTTPConnection, Request

from tamis.broker.frontend.problems import HTTPRefusedError
from tamis.broker.settings import BrokerSettings
from tamis.errors import RefusedError
from tamis.protocol import Code

JSON: Final = "application/json"

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_WHERE: Final = re.compile(r" - at `\$\.?(.*)`$")


async def read_body(request: Request, settings: BrokerSettings) -> bytes:
    """Return the body; one that is too large or too slow is cut while it is read."""
    limit = settings.largest_frame
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced) > limit:
        raise too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_timeout):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise too_large(limit)
    except TimeoutError:
        raise HTTPRefusedError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the body did not come within {settings.body_timeout:g} seconds",
            headers={"Connection": "close"},
        ) from None
    return bytes(body)


def too_large(limit: int) -> HTTPRefusedError:
    """Return the refusal of a body; the rest of it is not read, so the connection ends."""
    return HTTPRefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body has more than {limit:,} bytes, the limit of this broker",
        code=Code.TOO_LARGE,
        headers={"Connection": "close"},
    )


def media_type(request: HTTPConnection) -> str:
    """Return the kind of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def unsupported(given: str, *known: str) -> HTTPRefusedError:
    """Return the refusal of a body of an unknown kind."""
    what = f"a body of the type {given!r}" if given else "a body without a Content-Type"
    return HTTPRefusedError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        f"{what} is not understood here; send {' or '.join(known)}",
        headers={"Accept": ", ".join(known)},
    )


@cache
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode_body(body: bytes, kind: type[T]) -> T:
    """Return what a JSON body says, or refuse it with a sentence."""
    try:
        found: T = _decoder(cast("Hashable", kind)).decode(body)
    except msgspec.ValidationError as error:
        raise RefusedError(Code.BAD_REQUEST, f"the body is wrong{_at(str(error))}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(Code.BAD_REQUEST, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise RefusedError(Code.BAD_REQUEST, "the body is nested too deeply") from None
    return found


def decode_query(request: Request, kind: type[S]) -> S:
    """Return what the part of the URL after `?` says, or refuse it with a sentence."""
    return _decode_texts(_query(request, kind), kind, "the query")


def decode_headers(request: Request, kind: type[S]) -> S:
    """Return what some headers say, or refuse them with a sentence."""
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    given = {name: request.headers.get(name) for name in names}
    texts = {name: text for name, text in given.items() if text is not None}
    return _decode_texts(texts, kind, "a header")


def _decode_texts(texts: dict[str, Any], kind: type[S], what: str) -> S:
    try:
        return msgspec.convert(texts, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RefusedError(Code.BAD_REQUEST, f"{what} is wrong{_at(str(error))}") from None


def _query(request: Request, kind: type[msgspec.Struct]) -> dict[str, Any]:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    given = request.query_params
    return {
        name: given.getlist(name)
        if _is_list(fields.get(name))
        else _only(name, given.getlist(name))
        for name in given
    }


def _is_list(kind: object) -> bool:
    return isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.ListType)


def _only(name: str, values: list[str]) -> str:
    if len(values) > 1:
        raise RefusedError(Code.BAD_REQUEST, f"the query is wrong at {name}: it is given twice")
    return values[0]


def _at(message: str) -> str:
    """Return what is wrong, the place first.

    >>> _at("Expected `int`, got `str` - at `$.limit`")
    ' at limit: expected `int`, got `str`'
    """
    found = _WHERE.search(message)
    what = message[: found.start()] if found else message
    what = what[:1].lower() + what[1:]
    return f" at {found[1]}: {what}" if found and found[1] else f": {what}"


def bearer_token(connection: HTTPConnection) -> str | None:
    """Return the token that came with a request, if one did."""
    header = connection.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise RefusedError(
            Code.UNAUTHENTICATED, "the header Authorization must be 'Bearer' and a token"
        )
    return token

"""Read the body, query and token of a request, within limits and with readable errors."""

from __future__ import annotations

import asyncio
import binascii
import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request

from tamis.broker.frontend.http.problems import HTTPRefusedError
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.publish.batches import split_batch, split_lines
from tamis.errors import RefusedError, TamisError
from tamis.mismatches import find_mismatch
from tamis.ports import Executor
from tamis.protocol import Code
from tamis.protocol.frames import FRAME_ERRORS, EventFormat

JSON: Final = "application/json"
MAX_BYTES_JOINED_ON_LOOP: Final = 128 * 1024
"""Bytes of a body whose parts are joined at once."""

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


def announced_size(request: Request) -> int:
    """Return the size of the body that a client announces; 0 if it does not."""
    announced = request.headers.get("content-length", "")
    return int(announced) if announced.isascii() and announced.isdigit() else 0


async def read_body(request: Request, settings: BrokerSettings, executor: Executor) -> bytes:
    """Return the body; stop reading if it is too large or too slow."""
    limit = settings.largest_frame
    if announced_size(request) > limit:
        raise too_large(limit)
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(settings.body_timeout):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise too_large(limit)
    except TimeoutError:
        raise HTTPRefusedError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the body did not arrive within {settings.body_timeout:g} seconds",
            headers={"Connection": "close"},
        ) from None
    # Fresh memory for megabytes takes milliseconds, in which a thread does not hold up the loop.
    return (
        b"".join(parts) if size <= MAX_BYTES_JOINED_ON_LOOP else await executor.run(b"".join, parts)
    )


def too_large(limit: int) -> HTTPRefusedError:
    """Return the refusal of a body; the rest of it is not read, so the connection ends."""
    return HTTPRefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body has more than {limit:,} bytes, the limit of this broker",
        code=Code.TOO_LARGE,
        headers={"Connection": "close"},
    )


def media_type(request: HTTPConnection) -> str:
    """Return the media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def unsupported(given: str, *known: str) -> HTTPRefusedError:
    """Return the refusal of a body of an unknown media type."""
    what = f"a body of the type {given!r}" if given else "a body without a Content-Type"
    return HTTPRefusedError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        f"{what} is not supported here; send {' or '.join(known)}",
        headers={"Accept": ", ".join(known)},
    )


@cache
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode_body(body: bytes, kind: type[T]) -> T:
    """Decode a JSON body, or refuse it with an explanation."""
    with _explained(kind, text=body):
        found: T = _decoder(cast("Hashable", kind)).decode(body)
    return found


@contextmanager
def _explained(kind: Any = None, whole: str = "the body", *, text: bytes = b"") -> Iterator[None]:
    try:
        yield
    except FRAME_ERRORS as error:
        said = find_mismatch(error, kind, text=text).sentence(whole)
        raise RefusedError(Code.BAD_REQUEST, said) from None


def decode_query(request: Request, kind: type[S]) -> S:
    """Decode the query of the URL, or refuse it with an explanation."""
    return _decode_texts(_query(request, kind), kind, "the query")


def decode_headers(request: Request, kind: type[S]) -> S:
    """Decode headers, or refuse them with an explanation."""
    given = {name: request.headers.get(name) for name in kind.__struct_encode_fields__}
    texts = {name: text for name, text in given.items() if text is not None}
    return _decode_texts(texts, kind, "the headers")


def _decode_texts(texts: dict[str, Any], kind: type[S], whole: str) -> S:
    with _explained(kind, whole):
        return msgspec.convert(texts, kind, strict=False)


def _query(request: Request, kind: type[msgspec.Struct]) -> dict[str, Any]:
    given, lists = request.query_params, _lists(kind)
    return {
        name: given.getlist(name) if name in lists else _only(name, given.getlist(name))
        for name in given
    }


@cache
def _lists(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the fields that may be given several times."""
    return frozenset(
        field.encode_name
        for field in msgspec.structs.fields(kind)
        if isinstance(msgspec.inspect.type_info(field.type), msgspec.inspect.ListType)
    )


def _only(name: str, values: list[str]) -> str:
    if len(values) > 1:
        raise RefusedError(Code.BAD_REQUEST, f"{name} in the query is given twice")
    return values[0]


def bearer_token(connection: HTTPConnection) -> str | None:
    """Return the token of a request, if there is one."""
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


SITE: Final = "sec-fetch-site"
PROOF: Final = "Tamis-Request"


def require_proof(headers: Headers, settings: BrokerSettings) -> None:
    """Refuse a GET that changes something, unless no foreign page can have caused it.

    The guard has refused the origins and sites that are not allowed.
    """
    proofs = ("authorization", "origin", SITE, PROOF.lower())
    if not settings.tokens_required and not any(headers.get(name) for name in proofs):
        raise RefusedError(
            Code.FORBIDDEN,
            "this request acknowledges events, and an image in a foreign web page could make it, "
            f"too; add the header {PROOF}: 1 to show that it does not come from one",
        )


JSON_LINES: Final = "application/x-ndjson"
CLOUDEVENT: Final = "application/cloudevents+json"
CLOUDEVENT_BATCH: Final = "application/cloudevents-batch+json"
XML: Final = "application/xml"
KNOWN: Final = (JSON, JSON_LINES, CLOUDEVENT, CLOUDEVENT_BATCH, XML)

_PREFIX: Final = "ce-"
_CHARSET: Final = re.compile(r"""charset\s*=\s*"?([A-Za-z0-9._-]{1,40})"?""", re.IGNORECASE)
_IS_JSON: Final = re.compile(r"application/json|[\w.+-]+/[\w.-]+\+json", re.ASCII)
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')


class EventsBody(NamedTuple):
    """The content of a body, each event as it was sent."""

    format: EventFormat
    events: list[bytes | msgspec.Raw]
    lines: list[int] | None = None
    """The number of each event's line, if there is one event on a line."""
    is_batch: bool = False

    def place(self, index: int) -> str:
        """Return where in the body an event is.

        >>> EventsBody("json", [b"{}", b"{}"], lines=[1, 3]).place(1)
        'line 3'
        """
        return f"[{index}]" if self.lines is None else f"line {self.lines[index]}"


def read_events(body: bytes, media_type: str, headers: Headers, most: int) -> EventsBody:
    """Return the events in a body, at most this many."""
    match media_type:
        case "application/cloudevents+json":
            return EventsBody("cloudevents", [body])
        case "application/cloudevents-batch+json":
            return _batch("cloudevents", body, most)
        case _ if f"{_PREFIX}specversion" in headers:
            return EventsBody("cloudevents", [_binary_mode(body, media_type, headers)])
        case "application/json":
            is_batch = body.lstrip(b" \t\r\n")[:1] == b"["
            return _batch("json", body, most) if is_batch else EventsBody("json", [body])
        case "application/x-ndjson" | "application/jsonl":
            return _lines(body, most)
        case "application/xml" | "text/xml":
            return EventsBody("xml", [_document(body, headers["content-type"])])
        case _ if re.fullmatch(r"[\w.+-]+/[\w.-]+\+xml", media_type, re.ASCII):
            return EventsBody("xml", [_document(body, headers["content-type"])])
        case _:
            raise unsupported(media_type, *KNOWN)


def _document(body: bytes, content_type: str) -> bytes:
    """Return the text of a document as a JSON string; the session parses it."""
    try:
        # The extra `xml` need not be installed.
        from tamis.xml.decoding import decode_document  # noqa: PLC0415

        charset = _CHARSET.search(content_type)
        return msgspec.json.encode(decode_document(body, charset[1] if charset else None))
    except TamisError as error:
        raise RefusedError(Code.BAD_EVENT, str(error)) from None


def _batch(format_: EventFormat, body: bytes, most: int) -> EventsBody:
    with _explained(text=body):
        return EventsBody(format_, [*split_batch(body, most)], is_batch=True)


def _lines(body: bytes, most: int) -> EventsBody:
    numbered = split_lines(body, most)
    return EventsBody(
        "json", [line for _, line in numbered], [number for number, _ in numbered], is_batch=True
    )


def _binary_mode(body: bytes, media_type: str, headers: Headers) -> bytes:
    """Return a CloudEvent whose attributes came as headers, and whose data is the body."""
    members = {
        name.removeprefix(_PREFIX): _attribute(name, value)
        for name, value in headers.items()
        if name.startswith(_PREFIX)
    }
    if "content-type" in headers:
        members["datacontenttype"] = headers["content-type"]
    return msgspec.json.encode({**members, **_data(body, media_type)})


def _data(body: bytes, media_type: str) -> Mapping[str, Any]:
    if not body:
        return {}
    if _IS_JSON.fullmatch(media_type):
        return {"data": decode_body(body, msgspec.Raw)}
    if media_type.startswith("text/"):
        try:
            return {"data": body.decode()}
        except UnicodeDecodeError:
            pass
    return {"data_base64": binascii.b2a_base64(body, newline=False).decode()}


def _attribute(name: str, value: str) -> str:
    r"""Return the value of a header as the specification has it: quoted, and percent-encoded.

    >>> _attribute("ce-subject", "Euro%20%E2%82%AC"), _attribute("ce-subject", '"a \\"b\\""')
    ('Euro €', 'a "b"')
    """
    if (quoted := _QUOTED.fullmatch(value)) is not None:
        value = re.sub(r"\\(.)", r"\1", quoted[1])
    try:
        # Headers are bytes, which Starlette decodes as Latin-1.
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise RefusedError(
            Code.BAD_EVENT, f"the header {name} is not UTF-8 text in percent-encoding"
        ) from None

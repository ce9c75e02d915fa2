"""The forms in which events come over HTTP, and the events in them.

JSON, JSON lines, CloudEvents in structured, batched and binary mode.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.datastructures import Headers

from tamis.broker.frontend.reading import JSON, decode_body, unsupported
from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.protocol.frames import Format

JSON_LINES: Final = "application/x-ndjson"
CLOUDEVENT: Final = "application/cloudevents+json"
CLOUDEVENT_BATCH: Final = "application/cloudevents-batch+json"
KNOWN: Final = (JSON, JSON_LINES, CLOUDEVENT, CLOUDEVENT_BATCH)

_PREFIX: Final = "ce-"
_IS_JSON: Final = re.compile(r"application/json|[\w.+-]+/[\w.-]+\+json", re.ASCII)
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Events(NamedTuple):
    """What a body holds, each event as it came."""

    format: Format
    events: list[bytes | msgspec.Raw]


def read_events(body: bytes, media_type: str, headers: Headers) -> Events:
    """Return the events in a body."""
    match media_type:
        case "application/cloudevents+json":
            return Events("cloudevents", [body])
        case "application/cloudevents-batch+json":
            return Events("cloudevents", [*decode_body(body, list[msgspec.Raw])])
        case _ if f"{_PREFIX}specversion" in headers:
            return Events("cloudevents", [_binary_mode(body, media_type, headers)])
        case "application/json":
            is_batch = body.lstrip(b" \t\r\n")[:1] == b"["
            return Events("json", [*decode_body(body, list[msgspec.Raw])] if is_batch else [body])
        case "application/x-ndjson" | "application/jsonl":
            return Events("json", [line for line in body.split(b"\n") if line.strip()])
        case _:
            raise unsupported(media_type, *KNOWN)


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
        # Headers are bytes, which Starlette shows as Latin-1.
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise RefusedError(
            Code.BAD_EVENT, f"the header {name} is not UTF-8 text in percent-encoding"
        ) from None

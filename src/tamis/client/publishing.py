"""Events on their way out: from what people have in hand to frames that the broker takes."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from tamis.client.message import Received
from tamis.errors import EventError, RefusedError
from tamis.events import CloudEvent, Event, decode_json, encode_cloudevent, encode_json
from tamis.events.json_text import dump_json
from tamis.protocol import Code, Welcome
from tamis.protocol.frames import Format

Publishable = Mapping[str, Any] | CloudEvent | str | bytes
"""A mapping, an `Event`, a `CloudEvent`, a message that was received, or JSON text."""

EVENTS_IN_A_FRAME: Final = 500
# What a frame has beside its events: names, numbers, a comma for each event.
BESIDE_EVENTS: Final = 1000


class Encoded(NamedTuple):
    """An event as JSON."""

    text: bytes
    format: Format


def encode_event(event: Publishable) -> Encoded:
    """Return an event as JSON, or say why it has no such form.

    >>> encode_event({"price": 4, "tags": ("new", "red")})
    Encoded(text=b'{"price":4,"tags":["new","red"]}', format='json')
    """
    match event:
        case CloudEvent():
            return Encoded(encode_cloudevent(event).encode(), "cloudevents")
        case Event():
            return Encoded(encode_json(event).encode(), "json")
        case Received():
            return Encoded(event.text, "cloudevents" if event.format == "cloudevents" else "json")
        case Mapping():
            return Encoded(_json(event), "json")
        case str() | bytes():
            return Encoded(_checked(event), "json")
    raise EventError(f"{type(event).__name__!r} is no event; give a mapping, or JSON text")


def _json(event: Mapping[str, Any]) -> bytes:
    try:
        return dump_json(event).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"this event has no form in JSON: {error}") from None


def _checked(text: str | bytes) -> bytes:
    # It becomes a part of a larger JSON text, which it must not break.
    try:
        encoded = text.encode() if isinstance(text, str) else text
        encoded.decode()
        msgspec.json.decode(encoded, type=msgspec.Raw)
    except (UnicodeError, msgspec.DecodeError, RecursionError) as error:
        # It knows better what is wrong and where.
        decode_json(text)
        raise EventError(f"this is no JSON: {error}") from None
    return encoded


def check_size(event: Encoded, welcome: Welcome) -> None:
    """Refuse an event that the broker would refuse, before others are sent along with it."""
    size, most = len(event.text), min(welcome.largest_event, welcome.largest_frame - BESIDE_EVENTS)
    if size > most:
        raise RefusedError(
            Code.TOO_LARGE, f"an event of {size:,} bytes exceeds the limit of {most:,}"
        )


async def in_frames(
    events: Iterable[Publishable] | AsyncIterable[Publishable], welcome: Welcome
) -> AsyncIterator[list[Encoded]]:
    """Yield events in groups that each fit into a frame."""
    group: list[Encoded] = []
    size = 0
    async for event in _each(events):
        encoded = encode_event(event)
        check_size(encoded, welcome)
        size += len(encoded.text) + 1
        if group and not _belongs(encoded, group, size, welcome):
            yield group
            group, size = [], len(encoded.text) + 1
        group.append(encoded)
    if group:
        yield group


def _belongs(event: Encoded, group: list[Encoded], size: int, welcome: Welcome) -> bool:
    return (
        len(group) < EVENTS_IN_A_FRAME
        and size <= welcome.largest_frame - BESIDE_EVENTS
        and event.format == group[0].format
    )


async def _each(
    events: Iterable[Publishable] | AsyncIterable[Publishable],
) -> AsyncIterator[Publishable]:
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
    else:
        for event in events:
            yield event

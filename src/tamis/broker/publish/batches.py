"""Batches of events, split with at most as many objects in memory as a publication may have.

A body of 4 MiB has room for two million events. Splitting them takes half a second, in which nobody
else is served, since the decoder holds the interpreter's lock. A type with a place for each allowed
event makes the decoder stop at the first one too many.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from typing import Any, Final, cast, get_args

import msgspec

from tamis.errors import RefusedError
from tamis.protocol import Code, Publish
from tamis.protocol.frames import Request

# In so few bytes there cannot be many events.
MAX_SMALL_BYTES: Final = 16 * 1024
# Beside events, JSON lines may have empty ones.
LINES_PER_EVENT: Final = 10

_small_batches: Final = msgspec.json.Decoder(list[msgspec.Raw])


def split_batch(body: bytes, most: int) -> list[msgspec.Raw]:
    """Return the events of a JSON array; refuse more than this many."""
    if len(body) <= MAX_SMALL_BYTES:
        return _small_batches.decode(body)
    try:
        return _events(_batch_decoder(most).decode(body))
    except msgspec.ValidationError as error:
        raise _as_refusal(error, most) from None


def split_lines(body: bytes, most: int) -> list[tuple[int, bytes]]:
    """Return the events of JSON lines, each with the number of its line."""
    if body.count(b"\n") > LINES_PER_EVENT * most:
        raise too_many_events(most)
    return [(n, line) for n, line in enumerate(body.split(b"\n"), 1) if line.strip()]


def decode_large_request(frame: bytes, most: int) -> Request:
    """Return the frame that a client sent, with at most this many events."""
    try:
        found = _request_decoder(most).decode(frame)
    except msgspec.ValidationError as error:
        raise _as_refusal(error, most) from None
    if not isinstance(found, Publish):
        return cast("Request", found)
    fields = {name: getattr(found, name) for name in Publish.__struct_fields__}
    return Publish(**fields | {"events": _events(cast("msgspec.Struct", found.events))})


def load_batch_decoders(most: int) -> None:
    """Make the decoders of publications with up to this many events, which takes milliseconds."""
    _batch_decoder(most)
    _request_decoder(most)


def too_many_events(most: int) -> RefusedError:
    """Return the refusal of a publication with too many events."""
    message = f"more events in one publication exceed the limit of {most:,}"
    return RefusedError(Code.TOO_LARGE, message)


def _as_refusal(error: msgspec.ValidationError, most: int) -> Exception:
    return too_many_events(most) if f"at most length {most}" in str(error) else error


def _events(batch: msgspec.Struct) -> list[msgspec.Raw]:
    return [one for one in msgspec.structs.astuple(batch) if one is not msgspec.UNSET]


@cache
def _batch_type(most: int) -> type[msgspec.Struct]:
    places = [(f"event_{n}", msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for n in range(most)]
    return msgspec.defstruct("Batch", places, array_like=True, forbid_unknown_fields=True)


@cache
def _batch_decoder(most: int) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_batch_type(most))


@cache
def _request_decoder(most: int) -> msgspec.json.Decoder[Any]:
    publish = msgspec.defstruct(
        "Publish",
        [("events", _batch_type(most))],
        bases=(Publish,),
        kw_only=True,
        tag="publish",
        tag_field="type",
        forbid_unknown_fields=True,
    )
    others = [kind for kind in get_args(Request) if kind is not Publish]
    return msgspec.json.Decoder(reduce(or_, others, publish))

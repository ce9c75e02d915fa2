"""Many events as JSON lines: every line becomes an event or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Final, NamedTuple

from tamis.errors import EventError, LimitError
from tamis.events import places
from tamis.events.cloudevents import decode_cloudevent, decode_cloudevents
from tamis.events.event import Event, EventLimits
from tamis.events.json_text import BYTES_OF_JSON, decode_json, require_json_text
from tamis.events.schema import Schema

_DISCARDED_BYTES: Final = 64 * 1024
_LINE_END_BYTES: Final = 2
"""A line as long as the limit may end in `\\r\\n`, and more is not read of a longer one."""
_BLANK: Final = " \t\n\r\x0b\x0c"
"""What `strip` removes from bytes; from texts it would remove more, which JSON refuses."""


class DecodedLine(NamedTuple):
    """A line that holds an event."""

    number: int
    event: Event


class RejectedLine(NamedTuple):
    """A line that holds no event: its text, and an error that names the line."""

    number: int
    text: str | bytes
    error: EventError | LimitError


def decode_json_lines(
    lines: Iterable[str | bytes],
    *,
    schema: Schema | None = None,
    limits: EventLimits | None = None,
) -> Iterator[DecodedLine | RejectedLine]:
    """Yield each line decoded or rejected, in order; skip blank lines.

    A bad line does not stop the others. To stop, raise the error of the first.

    >>> for line in decode_json_lines(['{"price": 5}', '{"price": }']):
    ...     print(line.error if isinstance(line, RejectedLine) else line.event)
    Event({'price': 5})
    line 2, column 11: this is not JSON: expecting value
    """
    return _decode_lines(lines, lambda text: [decode_json(text, schema=schema, limits=limits)])


def decode_cloudevent_lines(
    lines: Iterable[str | bytes],
    *,
    schema: Schema | None = None,
    limits: EventLimits | None = None,
) -> Iterator[DecodedLine | RejectedLine]:
    """Yield the attributes of CloudEvents; a line holds one, or a batch of them in an array.

    A batch is decoded or rejected whole; its events follow each other with the same line number.

    >>> sold = '{"specversion": "1.0", "id": "1", "source": "/shop", "type": "sold"}'
    >>> [line.number for line in decode_cloudevent_lines([sold, f"[{sold}, {sold}]"])]
    [1, 2, 2]
    """

    def decode(text: str | bytes) -> list[Event]:
        batch = text.lstrip()[:1] in ("[", b"[")
        found = (
            decode_cloudevents(text, limits=limits)
            if batch
            else [decode_cloudevent(text, limits=limits)]
        )
        events = [cloudevent.event() for cloudevent in found]
        return events if schema is None else [schema.conform(event) for event in events]

    return _decode_lines(lines, decode)


def read_lines(stream: BinaryIO, *, limits: EventLimits | None = None) -> Iterator[bytes]:
    """Yield the lines of a binary stream, reading little more of each than the size limit.

    A longer line is truncated, but still too long, so that `decode_json_lines` rejects it.
    """
    room = (limits or EventLimits()).size + _LINE_END_BYTES
    while line := stream.readline(room):
        if len(line) == room and not line.endswith(b"\n"):
            _discard_line(stream)
        yield line


def _decode_lines(
    lines: Iterable[str | bytes], decode: Callable[[str | bytes], list[Event]]
) -> Iterator[DecodedLine | RejectedLine]:
    for number, line in enumerate(lines, start=1):
        require_json_text(line)
        if is_blank(line):
            continue
        try:
            events = decode(ended(line))
        except (EventError, LimitError) as error:
            yield RejectedLine(number, line, in_line(number, error))
        else:
            for event in events:
                yield DecodedLine(number, event)


def _discard_line(stream: BinaryIO) -> None:
    while (rest := stream.readline(_DISCARDED_BYTES)) and not rest.endswith(b"\n"):
        pass


def is_blank(line: str | bytes) -> bool:
    """Return whether a line holds nothing; only ASCII's white space is nothing."""
    return not (line.strip(_BLANK) if isinstance(line, str) else line.strip())


def ended(line: str | bytes) -> str | bytes:
    """Return a line without its end."""
    # Only one line end: a truncated line may end in what looks like another.
    if isinstance(line, str):
        return line.removesuffix("\n").removesuffix("\r")
    return line.removesuffix(b"\n").removesuffix(b"\r")


def of_truncated(error: LimitError) -> LimitError:
    """Return an error about a line's size that is true of the whole line, of which this is a part.

    >>> print(of_truncated(LimitError("bytes of JSON text", actual=102, limit=100)))
    bytes of JSON text: more than 100 exceeds the limit of 100
    """
    if error.what != BYTES_OF_JSON or error.actual != error.limit + _LINE_END_BYTES:
        return error
    return LimitError(error.what, actual=None, limit=error.limit)


def in_line(number: int, error: EventError | LimitError) -> EventError | LimitError:
    """Return the error of a line's event with the number of the line."""
    if isinstance(error, LimitError):
        error = of_truncated(error)
    else:
        # The decoder counts from line 1, which is the current line here.
        error = type(error)(error.reason, place=error.place.removeprefix("line 1, "))
    return places.inside(f"line {number}", error)

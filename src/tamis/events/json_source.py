"""JSON lines as a source of events: whole lines are cut from the text, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.errors import EventError, LimitError, TamisError
from tamis.events.batch import EVENTS_PER_BATCH, EventBatch, Projection
from tamis.events.event import Event, EventLimits
from tamis.events.json_columns import JsonColumnReader
from tamis.events.json_lines import ended, in_line, is_blank
from tamis.events.json_text import decode_json
from tamis.events.schema import Schema

JsonLinesData = bytes | bytearray | memoryview | str | Iterable[bytes | str]

_BYTES_PER_SEARCH: Final = 1 << 20
_BYTES_PER_BATCH: Final = 1 << 24
_LINES_PER_STEP: Final = 512

_NEWLINE: Final = 10
_RETURN: Final = 13
_SPACE: Final = 32


class LineBlock(NamedTuple):
    """Lines that are not blank, in one text."""

    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]
    """The number of each line, from 1."""
    original: Callable[[int], str | bytes] | None = None
    """Returns a line as it was given, if that was not UTF-8."""

    def part(self, first: int, last: int) -> LineBlock:
        """Return some of the lines."""
        chosen = slice(first, last)
        return self._replace(
            starts=self.starts[chosen], ends=self.ends[chosen], numbers=self.numbers[chosen]
        )

    def followed_by(self, other: LineBlock) -> LineBlock:
        """Return the lines with others of the same text after them."""
        return self._replace(
            starts=np.concatenate((self.starts, other.starts)),
            ends=np.concatenate((self.ends, other.ends)),
            numbers=np.concatenate((self.numbers, other.numbers)),
        )


class JsonLineEvents:
    """Events as JSON lines: one text with a line for each, or the lines one by one."""

    def __init__(
        self, data: JsonLinesData, *, limits: EventLimits | None = None, first_line: int = 1
    ) -> None:
        if not isinstance(data, Iterable):
            raise EventError(f"JSON lines are text, bytes, or lines of these, not {data!r:.60}")
        self._data = data
        self._limits = limits or EventLimits()
        self._before = first_line - 1
        self._numbers = [np.empty(0, np.int64)]

    def event_batches(self, projection: Projection) -> Iterator[EventBatch]:
        """Yield the events, batch by batch."""
        reader = reader_of(projection, self._limits)
        for block in self._blocks():
            batch = reader.read(block.data, block.starts, block.ends, block.original)
            numbers = block.numbers + self._before
            self._numbers.append(numbers)
            errors = {n: _in_line(numbers[n], error) for n, error in batch.errors.items()}
            given = _GivenLines(block, projection.schema, self._limits).event
            yield EventBatch(len(batch), batch.columns, errors, given)

    def numbers(self) -> NDArray[np.int64]:
        """Return for each event that was read the number of its line, from 1."""
        return np.concatenate(self._numbers)

    def _blocks(self) -> Iterator[LineBlock]:
        match self._data:
            case str() as text:
                return _blocks_of_text(text)
            case bytes() | bytearray() | memoryview() as data:
                return _blocks_of_bytes(bytes(data))
            case lines:
                return _blocks_of_lines(lines)


class _GivenLines(NamedTuple):
    """Lines of a batch, to be decoded one by one."""

    block: LineBlock
    schema: Schema | None
    limits: EventLimits

    def event(self, number: int) -> Event:
        block = self.block
        if block.original is not None:
            text = block.original(number)
        else:
            text = block.data[block.starts[number] : block.ends[number]]
        return decode_json(text, schema=self.schema, limits=self.limits)


@lru_cache(maxsize=16)
def reader_of(projection: Projection, limits: EventLimits) -> JsonColumnReader:
    """Return the reader for a projection; batch after batch has the same."""
    wanted, any_text = projection.wanted, False
    if wanted is None:
        wanted, any_text = projection.named, True
    if wanted is None:
        raise EventError("JSON is read by attribute: name those to read")
    schema, total = projection.schema, projection.total
    return JsonColumnReader(wanted, schema, total=total, limits=limits, any_text=any_text)


def _in_line(number: np.int64, error: TamisError) -> TamisError:
    return in_line(int(number), error) if isinstance(error, EventError | LimitError) else error


# --- one text -------------------------------------------------------------------------------------


def _blocks_of_text(text: str) -> Iterator[LineBlock]:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        # The strict reader is to find the surrogates itself.
        for block in _blocks_of_bytes(text.encode("utf-8", "surrogatepass")):
            yield block._replace(original=_Surrogates(block).line)
    else:
        yield from _blocks_of_bytes(data)


class _Surrogates(NamedTuple):
    """Lines of a text that is not Unicode."""

    block: LineBlock

    def line(self, number: int) -> str:
        data, starts, ends, *_ = self.block
        return str(data[starts[number] : ends[number]], "utf-8", "surrogatepass")


def lines_of(data: bytes, longest: int) -> LineBlock:
    """Return the lines of a text that are not blank, each cut off after this many bytes."""
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    if len(text) and text[-1] != _NEWLINE:
        ends = np.append(ends, len(text))
    starts = np.concatenate((np.zeros(1, np.int64), ends + 1))[: len(ends)]
    cut = np.minimum(ends, starts + longest)
    return _filled(data, text, starts, cut, np.arange(1, len(ends) + 1))


def _blocks_of_bytes(data: bytes) -> Iterator[LineBlock]:
    nothing = np.empty(0, np.int64)
    left = LineBlock(data, nothing, nothing, nothing)
    for found in _found_lines(data):
        left = left.followed_by(found)
        while len(left.starts) >= EVENTS_PER_BATCH:
            yield left.part(0, EVENTS_PER_BATCH)
            left = left.part(EVENTS_PER_BATCH, len(left.starts))
    if len(left.starts):
        yield left


def _found_lines(data: bytes) -> Iterator[LineBlock]:
    """Yield the lines of a text, some at a time."""
    text = np.frombuffer(data, np.uint8)
    start, number = 0, 1
    for begin in range(0, len(text), _BYTES_PER_SEARCH):
        part = text[begin : begin + _BYTES_PER_SEARCH]
        ends = np.flatnonzero(part == _NEWLINE) + begin
        if begin + len(part) == len(text) and text[-1] != _NEWLINE:
            ends = np.append(ends, len(text))
        if len(ends):
            starts = np.concatenate(([start], ends[:-1] + 1))
            yield _filled(data, text, starts, ends, np.arange(number, number + len(ends)))
            start, number = int(ends[-1]) + 1, number + len(ends)


def _filled(
    data: bytes,
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    numbers: NDArray[np.int64],
) -> LineBlock:
    """Return lines without the blank ones, and each without what is left of its end."""
    ends = _without_last(text, starts, ends, _RETURN)
    filled = starts < ends
    first = text[np.where(filled, starts, 0)]
    for place in np.flatnonzero(filled & (first <= _SPACE)).tolist():
        filled[place] = not is_blank(data[starts[place] : ends[place]])
    if filled.all():
        return LineBlock(data, starts, ends, numbers)
    return LineBlock(data, starts[filled], ends[filled], numbers[filled])


def _without_last(
    text: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], byte: int
) -> NDArray[np.int64]:
    """Return the ends of lines, one less where this byte is the last."""
    has_it = (starts < ends) & (text[ends - 1] == byte)
    return np.where(has_it, ends - 1, ends)


# --- line by line ---------------------------------------------------------------------------------


def _blocks_of_lines(lines: Iterable[bytes | str]) -> Iterator[LineBlock]:
    remaining, number = iter(lines), 1
    while taken := _some(remaining):
        encoded = [line if type(line) is bytes else _encoded(line) for line in taken]
        data = b"".join(encoded)
        text = np.frombuffer(data, np.uint8)
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        numbers = np.arange(number, number + len(taken))
        if len(text):
            ends = _without_last(text, starts, ends, _NEWLINE)
            block = _filled(data, text, starts, ends, numbers)
            yield block._replace(original=_Given(block.numbers - number, taken).line)
        number += len(taken)


def _some(lines: Iterator[bytes | str]) -> list[bytes | str]:
    """Return enough lines for a batch."""
    taken: list[bytes | str] = []
    size = 0
    while len(taken) < EVENTS_PER_BATCH and size < _BYTES_PER_BATCH:
        step = list(islice(lines, _LINES_PER_STEP))
        if not step:
            break
        taken += step
        size += sum(len(line) for line in step if isinstance(line, bytes | str))
    return taken


def _encoded(line: object) -> bytes:
    if isinstance(line, str):
        return line.encode("utf-8", "surrogatepass")
    if isinstance(line, bytes | bytearray | memoryview):
        return bytes(line)
    raise EventError(f"a line of JSON is text or bytes, not {line!r:.60}")


class _Given(NamedTuple):
    """Lines as they were given."""

    places: NDArray[np.int64]
    lines: list[bytes | str]

    def line(self, number: int) -> str | bytes:
        given = self.lines[self.places[number]]
        text = given if isinstance(given, str) else bytes(given)
        return ended(text)

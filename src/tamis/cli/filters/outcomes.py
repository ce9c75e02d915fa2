"""Which filters each event satisfies: by the reference semantics, or, with many, by the engine.

Both give the same outcomes, which a test compares. The engine takes a moment to load, and more to
compile its kernels on first use; with a few filters that is longer than it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from tamis.cli.event_input import EventInput, EventLine
from tamis.cli.filters.files import NamedFilter
from tamis.errors import EventError, LimitError, TamisError
from tamis.events import Event, RejectedLine, Schema, decode_json
from tamis.events.json_lines import ended
from tamis.events.places import inside
from tamis.filters import Mode

# The engine is worth loading from this many filters on, and from this many pairs of an event and a
# filter, which the reference semantics takes a second or two for.
MIN_FILTERS_FOR_ENGINE: Final = 100
MIN_PAIRS_FOR_ENGINE: Final = 500_000
_BYTES_PER_EVENT: Final = 100
# A batch holds about this many lines or bytes: enough for the engine, and soon read.
MAX_BATCH_LINES: Final = 4_096
MAX_BATCH_BYTES: Final = 1 << 24


class Matched(NamedTuple):
    """An event and the ids of the filters that it satisfies, perhaps none."""

    line: int
    ids: Sequence[str]
    text: bytes
    read: Callable[[], Event]
    """Returns the event; an engine need not have read all of it."""

    @property
    def event(self) -> Event:
        """Return the event."""
        return self.read()


Outcome = Matched | RejectedLine
Matching = Callable[[EventInput], Iterator[Outcome]]


def matching_of(
    named: Sequence[NamedFilter],
    schema: Schema | None,
    *,
    input_bytes: int | None,
    watch: Callable[[Sequence[NamedFilter]], Iterable[NamedFilter]] = iter,
) -> Matching:
    """Return the function from input to outcomes.

    Args:
        named: The filters.
        schema: The schema that they are bound to.
        input_bytes: The size of the input; None is a stream, whose lines are answered at once.
        watch: Passes the filters on while they are compiled, to show progress.
    """
    if not _is_work_for_engine(len(named), input_bytes):
        return lambda given: _by_reference(given.events(), named, schema)
    return _EngineMatching(named, schema, watch, live=input_bytes is None)


def _is_work_for_engine(filters: int, input_bytes: int | None) -> bool:
    if filters < MIN_FILTERS_FOR_ENGINE or input_bytes is None:
        return filters >= MIN_FILTERS_FOR_ENGINE
    return filters * input_bytes // _BYTES_PER_EVENT >= MIN_PAIRS_FOR_ENGINE


def _by_reference(
    lines: Iterable[EventLine | RejectedLine],
    named: Sequence[NamedFilter],
    schema: Schema | None,
) -> Iterator[Outcome]:
    for line in lines:
        if isinstance(line, RejectedLine):
            yield line
            continue
        try:
            ids = [one.id for one in named if one.filter.matches(line.event, one.mode, schema)]
        except (EventError, LimitError) as error:
            # The event was read, but in mode `total` it lacks an attribute.
            yield _rejected(line, error)
        else:
            yield _matched(line, ids)


class _EngineMatching:
    def __init__(
        self,
        named: Sequence[NamedFilter],
        schema: Schema | None,
        watch: Callable[[Sequence[NamedFilter]], Iterable[NamedFilter]],
        *,
        live: bool,
    ) -> None:
        # Numba takes a while to load.
        from tamis.matching import Engine  # noqa: PLC0415

        self._live = live
        total = any(one.mode is Mode.TOTAL for one in named)
        self._engine = Engine(schema, Mode.TOTAL if total else Mode.SQL)
        for one in watch(named):
            self._engine.add(one.id, one.filter, mode=one.mode)

    def __call__(self, given: EventInput) -> Iterator[Outcome]:
        if self._live:
            yield from map(self._outcome, given.events())
        elif given.cloudevents:
            remaining = given.events()
            while batch := list(islice(remaining, MAX_BATCH_LINES)):
                yield from self._outcomes(batch)
        else:
            first = 1
            for lines in _batches(given.lines()):
                yield from self._outcomes_of_lines(lines, first)
                first += len(lines)

    def _outcome(self, line: EventLine | RejectedLine) -> Outcome:
        if isinstance(line, RejectedLine):
            return line
        try:
            ids = self._engine.match(line.event)
        except (EventError, LimitError) as error:
            return _rejected(line, error)
        return _matched(line, [str(id_) for id_ in ids])

    def _outcomes(self, batch: Sequence[EventLine | RejectedLine]) -> Iterator[Outcome]:
        found = self._engine.match_batch(
            [line.event for line in batch if not isinstance(line, RejectedLine)]
        )
        number = 0
        for line in batch:
            if isinstance(line, RejectedLine):
                yield line
                continue
            error = found.errors.get(number)
            ids = [str(id_) for id_ in found[number]]
            number += 1
            yield _matched(line, ids) if error is None else _rejected(line, error)

    def _outcomes_of_lines(self, lines: Sequence[bytes], first: int) -> Iterator[Outcome]:
        """Match lines as they are; `first` is the number of the first."""
        found = self._engine.match_json_lines(lines, first_line=first)
        for at, number in enumerate(found.lines.tolist()):
            text, error = lines[number - first], found.errors.get(at)
            read = partial(decode_json, ended(text), schema=self._engine.schema)
            if error is None:
                yield Matched(number, [str(id_) for id_ in found[at]], text, read)
            elif isinstance(error, EventError | LimitError):
                # One that can be read lacks an attribute, in mode `total`.
                yield RejectedLine(number, "" if _is_readable(read) else text, error)
            else:
                raise error


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if len(batch) == MAX_BATCH_LINES or size >= MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_readable(read: Callable[[], Event]) -> bool:
    try:
        read()
    except TamisError:
        return False
    return True


def _matched(line: EventLine, ids: Sequence[str]) -> Matched:
    return Matched(line.number, ids, line.text, lambda: line.event)


def _rejected(line: EventLine, error: TamisError) -> RejectedLine:
    if not isinstance(error, EventError | LimitError):
        raise error
    return RejectedLine(line.number, "", inside(f"line {line.number}", error))

"""Which filters each event satisfies: by the reference semantics, or, with many, by the engine.

Both give the same outcomes, which a test compares. The engine takes a moment to load, and more to
compile its kernels on first use; with a few filters that is longer than it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from tamis.cli.event_input import EventLine
from tamis.cli.filters.files import NamedFilter
from tamis.errors import EventError, LimitError, TamisError
from tamis.events import Event, RejectedLine, Schema
from tamis.events.places import inside
from tamis.filters import Mode

# The engine is worth loading from this many filters on, and from this many pairs of an event and a
# filter, which the reference semantics takes a second or two for.
MIN_FILTERS_FOR_ENGINE: Final = 100
MIN_PAIRS_FOR_ENGINE: Final = 500_000
_BYTES_PER_EVENT: Final = 100
# A batch holds at most this many events, and at most this many pairs of an event and a filter.
MAX_BATCH_EVENTS: Final = 1_000
MAX_BATCH_PAIRS: Final = 5_000_000


class Matched(NamedTuple):
    """An event and the ids of the filters that it satisfies, perhaps none."""

    line: int
    event: Event
    ids: Sequence[str]
    text: bytes


Outcome = Matched | RejectedLine
Matching = Callable[[Iterable[EventLine | RejectedLine]], Iterator[Outcome]]


def matching_of(
    named: Sequence[NamedFilter],
    schema: Schema | None,
    *,
    input_bytes: int | None,
    watch: Callable[[Sequence[NamedFilter]], Iterable[NamedFilter]] = iter,
) -> Matching:
    """Return the function from lines to outcomes.

    Args:
        named: The filters.
        schema: The schema that they are bound to.
        input_bytes: The size of the input; None is a stream, whose lines are answered at once.
        watch: Passes the filters on while they are compiled, to show progress.
    """
    if not _is_work_for_engine(len(named), input_bytes):
        return lambda lines: _by_reference(lines, named, schema)
    size = max(1, min(MAX_BATCH_EVENTS, MAX_BATCH_PAIRS // len(named)))
    size = 1 if input_bytes is None else size
    return _EngineMatching(named, schema, size, watch)


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
            yield Matched(line.number, line.event, ids, line.text)


class _EngineMatching:
    def __init__(
        self,
        named: Sequence[NamedFilter],
        schema: Schema | None,
        batch_size: int,
        watch: Callable[[Sequence[NamedFilter]], Iterable[NamedFilter]],
    ) -> None:
        # Numba takes a while to load.
        from tamis.matching import Engine  # noqa: PLC0415

        self._batch_size = batch_size
        total = any(one.mode is Mode.TOTAL for one in named)
        self._engine = Engine(schema, Mode.TOTAL if total else Mode.SQL)
        for one in watch(named):
            self._engine.add(one.id, one.filter, mode=one.mode)

    def __call__(self, lines: Iterable[EventLine | RejectedLine]) -> Iterator[Outcome]:
        if self._batch_size == 1:
            yield from map(self._outcome, lines)
            return
        remaining = iter(lines)
        while batch := list(islice(remaining, self._batch_size)):
            yield from self._outcomes(batch)

    def _outcome(self, line: EventLine | RejectedLine) -> Outcome:
        if isinstance(line, RejectedLine):
            return line
        try:
            ids = self._engine.match(line.event)
        except (EventError, LimitError) as error:
            return _rejected(line, error)
        return Matched(line.number, line.event, [str(id_) for id_ in ids], line.text)

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
            yield (
                Matched(line.number, line.event, ids, line.text)
                if error is None
                else _rejected(line, error)
            )


def _rejected(line: EventLine, error: TamisError) -> RejectedLine:
    if not isinstance(error, EventError | LimitError):
        raise error
    return RejectedLine(line.number, "", inside(f"line {line.number}", error))

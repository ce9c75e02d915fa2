"""The engine as the benchmarks use it: built from a workload, called in each of its ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.harness import step
from benchmarks.workloads.events import Events, Field
from benchmarks.workloads.forms import Predicates, Programs
from tamis.events import Schema, decode_json
from tamis.events.batch import EventBatch
from tamis.filters import Filter, Mode
from tamis.matching import Engine, Subscription
from tamis.matching.compile import programs as filter_programs
from tamis.matching.compile.compiled import Compiled, compile_programs
from tamis.matching.compile.vocabulary import Vocabulary

# A million filters at once need more memory than the engine.
FILTERS_PER_PART: Final = 50_000

Counts = NDArray[np.int64]


class SizedFilters(Protocol):
    """Subscriptions, a number of them."""

    count: int

    def filters(self, first: int = 0, last: int | None = None) -> list[Filter]: ...


class Workload(SizedFilters, Protocol):
    """Subscriptions with matching events."""

    @property
    def fields(self) -> Sequence[Field]: ...

    @property
    def programs(self) -> Programs: ...

    @property
    def predicates(self) -> Predicates: ...

    def events(self, count: int, seed: int) -> Events: ...


class Case(NamedTuple):
    """A workload and the kind of engine it is for."""

    draw: Callable[[int, int], Workload]
    schema: Schema | None = None
    mode: Mode = Mode.SQL

    def engine(self) -> Engine:
        """Return an empty engine."""
        return Engine(self.schema, self.mode)


def filters_in_parts(work: SizedFilters, last: int) -> Iterator[Filter]:
    """Yield the first `last` filters, building a part at a time, and show the progress."""
    with step(f"took in {last:,} filters") as show:
        for first in range(0, last, FILTERS_PER_PART):
            show(f"{first:,}")
            yield from work.filters(first, min(first + FILTERS_PER_PART, last))


def engine_of(work: SizedFilters, case: Case | None = None, last: int | None = None) -> Engine:
    """Return an engine with the first `last` subscriptions of a workload, or all of them."""
    engine = Engine() if case is None else case.engine()
    fill(engine, filters_in_parts(work, work.count if last is None else last))
    with step(f"compiled {len(engine):,} subscriptions"):
        engine.compact()
    return engine


def compiled_of(
    work: Workload,
    mode: Mode = Mode.SQL,
    schema: Schema | None = None,
    plan: int | None = None,
) -> Compiled:
    """Return the compiled form of a workload, without the limits and ids of an engine."""
    vocabulary = Vocabulary(schema, total=mode is Mode.TOTAL)
    filters = filters_in_parts(work, len(work.programs))
    codes = [
        np.array(filter_programs.compile_filter(one, mode, vocabulary), np.int32) for one in filters
    ]
    with step(f"compiled {len(codes):,} filters, mode {mode}"):
        used, programs = filter_programs.Programs.of(codes).renumbered()
        return compile_programs(programs, vocabulary.leaf_set(used), schema, plan=plan)


def fill(engine: Engine, filters: Iterable[Filter | str]) -> None:
    """Add filters, numbered from 0, and fail if any is rejected."""
    rejected = engine.add_many(map(Subscription, count(), filters)).rejected
    if rejected:
        raise ValueError(f"{len(rejected):,} filters were rejected, the first one: {rejected[0]}")


def count_batch(engine: Engine, events: EventBatch | pa.RecordBatch) -> Counts:
    """Match a batch, and count the matches of each event."""
    return engine.match_batch(events).counts()


def count_texts(engine: Engine, texts: Iterable[str]) -> Counts:
    """Match JSON texts as one batch, and count the matches of each event."""
    return engine.match_batch([decode_json(text) for text in texts]).counts()


def count_singly(engine: Engine, events: Sequence[Mapping[str, object]]) -> Counts:
    """Match the events one by one, and count the matches of each."""
    return np.array([len(engine.match(event)) for event in events], np.int64)


def nbytes(value: Any) -> int:
    """Return the memory of all arrays in nested tuples."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(map(nbytes, value))

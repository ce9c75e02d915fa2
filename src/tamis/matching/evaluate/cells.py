"""The cells of the values in a batch, and the predicates that hold."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.diagrams.value_order import BRACKET_OF_KIND, NUMBERS, OTHER, TEXTS, Partition
from tamis.events import Kind
from tamis.events.batch import Column, Entries, EventBatch, split_numbers
from tamis.events.kinds import KINDS, Value, kind_of
from tamis.events.packed import MAX_LAYOUTS, NumberColumns, PackedColumns, packed
from tamis.events.undecoded_texts import UndecodedTexts
from tamis.matching.compile.compiled import Compiled
from tamis.matching.evaluate.batch_kernels import (
    CellEntries,
    CellsByAttribute,
    NumberRanks,
    PackedValues,
    RankTable,
    look_up,
    rank_packed,
)
from tamis.matching.evaluate.metering import Meter
from tamis.matching.evaluate.predicates import PredicateIndex
from tamis.matching.evaluate.text_order_kernels import (
    EncodedTexts,
    encoded,
    enter_texts,
    rank_texts,
)

EventCells = tuple[NDArray[np.int32], NDArray[np.int32]]
"""The event and the cell of every value of one attribute."""

_NO_TABLE: Final = RankTable(np.empty(0), np.empty(0, np.int32), np.empty(0, np.int32))
_NOTHING: Final[EventCells] = (np.empty(0, np.int32), np.empty(0, np.int32))

# A binary search among fewer breakpoints is as fast as a table.
MIN_TABLE_BREAKPOINTS: Final = 16
MAX_TABLE_ENTRIES: Final = 1 << 16
# All attributes together should not take much more memory than their breakpoints.
MAX_ENTRIES_PER_BREAKPOINT: Final = 8
MAX_TABLE_NUMBER: Final = float(2**50)
# Of fewer columns, each is ranked by itself, where a table may be at hand.
MIN_COLUMNS_RANKED_TOGETHER: Final = 32


class BatchCells(NamedTuple):
    """The cells and predicates of a batch, in terms of the variables of one compiled set."""

    by_attribute: CellsByAttribute
    passing: NDArray[np.bool_]
    """Whether each predicate holds for each event, with columns up to a multiple of 64."""
    multivalued: NDArray[np.bool_] | None
    """The events in which an indexed attribute holds several values; None if there are none."""
    multivalued_names: frozenset[str]
    """Those attributes."""


class CellFinder:
    """Finds the cells of batches for one compiled set."""

    def __init__(self, compiled: Compiled) -> None:
        self.predicates: Final = PredicateIndex(compiled.variables.predicates, compiled.schema)
        blocks = compiled.variables.blocks
        self.rankers: Final = {name: Ranker(block.partition) for name, block in blocks.items()}
        self.predicate: Final = np.full(len(compiled.variables), NONE, np.int32)
        """The predicate of each variable, or NONE."""
        self._numbers: Final = _AllNumberBreakpoints(self.rankers)
        for number, variable in enumerate(compiled.variables.predicates.values()):
            self.predicate[variable] = number

    def find(self, batch: EventBatch, meter: Meter | None = None) -> BatchCells:
        """Return the cells and predicates of a batch."""
        columns, together = batch.columns, None
        if len(columns) >= MIN_COLUMNS_RANKED_TOGETHER:
            columns = packed(columns)
        if isinstance(columns, PackedColumns):
            together = self._numbers.arrange(columns.numbers)
            columns = {**columns.others, **together.inexact}
        found, starts = [_NOTHING], [0]
        multivalued, names = None, set[str]()
        for name, ranker in self.rankers.items() if columns else ():
            # The block of no attribute has predicates only.
            column = columns.get(name) if name else None
            if column is not None:
                found.append(ranker.rank(column))
                events = None if column.is_single else column.multivalued(batch.length)
                if events is not None and events.any():
                    multivalued = events if multivalued is None else multivalued | events
                    names.add(name)
            starts.append(starts[-1] + (0 if column is None else len(found[-1][0])))
        cells = CellEntries(
            np.array(starts if columns else [0] * (1 + len(self.rankers)), np.int64),
            np.concatenate([events for events, _ in found]),
            np.concatenate([cells for _, cells in found]),
        )
        if together is not None:
            cells = self._numbers.rank(together, cells)
        passing = self.predicates.find(batch, meter)
        words = np.packbits(passing, axis=1, bitorder="little").view("<u8")
        by_attribute = CellsByAttribute(*cells, passing=words.astype(np.uint64, copy=False))
        return BatchCells(by_attribute, passing, multivalued, frozenset(names))


class Ranker:
    """Finds the cells of values in one attribute's partition."""

    def __init__(self, partition: Partition) -> None:
        keys, base = partition.values_by_bracket(), partition.first_cells()
        self._base: Final[dict[Kind | None, int]] = {
            None: base[OTHER],
            **{kind: base[bracket] for kind, bracket in BRACKET_OF_KIND.items()},
        }
        self._keys: Final = {kind: keys[bracket] for kind, bracket in BRACKET_OF_KIND.items()}
        self._numbers: Final = _NumberBreakpoints(keys[NUMBERS])
        self._texts: Final[Sequence[str]] = keys[TEXTS]
        self._passed_at: Final = {text: passed for passed, text in enumerate(self._texts, 1)}
        self._stored: Final = {
            kind: np.array(list(map(traits.store, keys[BRACKET_OF_KIND[kind]])), traits.dtype)
            for kind, traits in KINDS.items()
            if traits.store is not None
        }

    @property
    def numbers(self) -> NDArray[np.float64] | None:
        """Return the breakpoints that are numbers; None if they are not exact as floats."""
        return self._numbers.exact

    @property
    def first_number(self) -> int:
        """Return the cell of the least number."""
        return self._base[Kind.NUMBER]

    def cell(self, value: Value) -> int:
        """Return the cell of a single value."""
        kind = kind_of(value)
        base = self._base[kind]
        if kind is Kind.TEXT:
            return base + (self._passed_at.get(value) or bisect_right(self._texts, value))
        # Bits are tested one by one and have no keys.
        keys = self._keys[kind] if kind is not None else ()
        return base + bisect_right(keys, value) if keys else base

    def rank(self, column: Column) -> EventCells:
        """Return the event and the cell of every value; an absent attribute has none."""
        found = [_NOTHING]
        for kind, entries in column.entries.items():
            # How many breakpoints of its bracket each value has passed.
            passed: Any = 0
            match kind:
                case Kind.NUMBER:
                    passed = self._numbers.passed(entries)
                case Kind.TEXT:
                    texts, ranks = entries.texts, np.zeros(len(entries.texts), np.int32)
                    if self._texts and isinstance(texts, UndecodedTexts):
                        rank_texts(self._encoded, texts.data, texts.starts, texts.ends, ranks)
                    elif self._texts:
                        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
                        ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
                        data = np.frombuffer(b"".join(parts), np.uint8)
                        rank_texts(self._encoded, data, ends[:-1], ends[1:], ranks)
                    passed = ranks[entries.values]
                case None:
                    passed = np.zeros(len(entries.events), np.int32)
                case _:
                    passed = _passed_stored(self._stored[kind], entries.values)
            found.append((entries.events, np.asarray(self._base[kind] + passed, np.int32)))
        if len(found) == 2:
            return found[1]
        events, cells = zip(*found, strict=True)
        return np.concatenate(events), np.concatenate(cells)

    @cached_property
    def _encoded(self) -> EncodedTexts:
        texts = encoded(list(self._texts))
        enter_texts(texts, 0, len(self._texts), 0)
        return texts


def _passed_stored(breakpoints: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    if len(breakpoints) > 1:
        return np.searchsorted(breakpoints, values, side="right")
    # With one breakpoint, as booleans have, a comparison is many times as fast.
    return values >= breakpoints[0] if len(breakpoints) else np.zeros(len(values), np.int32)


class _NumberBreakpoints:
    """The breakpoints of a value order that are numbers, ascending."""

    def __init__(self, breakpoints: Sequence[int | float]) -> None:
        self._floats, self._residues = split_numbers(breakpoints)
        self._groups: Final = np.unique(self._floats)
        """Different large integers may share one float; those form a group."""
        self._keys: Final = self._key(self._floats, self._residues)
        self._table: Final = None if self._residues is not None else _table(self._floats)

    @property
    def exact(self) -> NDArray[np.float64] | None:
        """Return them as floats, None if some are between two floats."""
        return self._floats if self._residues is None else None

    def passed(self, entries: Entries) -> NDArray[np.integer]:
        """Return how many of the breakpoints each number has passed."""
        if self._residues is None and entries.residues is None:
            if self._table is None:
                return np.searchsorted(self._floats, entries.values, side="right")
            passed = np.empty(len(entries.values), np.int32)
            look_up(self._table, entries.values, passed)
            return passed
        keys = self._key(entries.values, entries.residues)
        return np.searchsorted(self._keys, keys, side="right")

    def _key(
        self, floats: NDArray[np.float64], residues: NDArray[np.int16] | None
    ) -> NDArray[np.int64]:
        """Return integers in the order of the numbers: by group, then by residue.

        A number between two groups gets a key below all keys of the second, since residues exceed
        -(2**15), which is no number's residue.
        """
        groups = np.searchsorted(self._groups, floats)
        inside = groups < np.searchsorted(self._groups, floats, side="right")
        offsets = np.where(inside, 0 if residues is None else residues, -(2**15))
        return groups * 2**16 + offsets


class _AllNumberBreakpoints:
    """The numbers among the breakpoints of all attributes, to rank many columns in one call."""

    def __init__(self, rankers: Mapping[str, Ranker]) -> None:
        floats = {name: ranker.numbers for name, ranker in rankers.items()}
        self._names: Final = tuple(rankers)
        self._inexact: Final = [name for name, numbers in floats.items() if numbers is None]
        self._are_inexact: Final = np.array([n is None for n in floats.values()], np.bool_)
        self._last: tuple[tuple[Mapping[str, int], NDArray[np.int32]], ...] = ()
        """Table after table has the columns of one of a few sources; the last comes first."""
        known = [np.empty(0) if numbers is None else numbers for numbers in floats.values()]
        tables = [_small_table(numbers) for numbers in known]
        self._ranks: Final = NumberRanks(
            starts=np.cumsum([0, *map(len, known)], dtype=np.int64),
            numbers=np.concatenate([np.empty(0), *known]),
            first_cell=np.array([ranker.first_number for ranker in rankers.values()], np.int32),
            table_starts=np.cumsum([0, *(len(table.at) for table in tables)], dtype=np.int64),
            tables=RankTable(
                *(
                    np.concatenate([none, *parts])
                    for none, *parts in zip(_NO_TABLE, *tables, strict=True)
                )
            ),
        )

    def arrange(self, numbers: NumberColumns) -> _Arranged:
        """Find the attributes among packed columns."""
        inexact = {
            name: numbers.column(numbers.places[name])
            for name in self._inexact
            if name in numbers.places
        }
        return _Arranged(numbers, self._place_of(numbers.places), inexact)

    def _place_of(self, places: Mapping[str, int]) -> NDArray[np.int32]:
        """Return for each attribute its column, or NONE."""
        last = self._last
        for known, place_of in last:
            if known is places:
                return place_of
        place_of = np.array([places.get(name, NONE) for name in self._names], np.int32)
        place_of[self._are_inexact] = NONE
        self._last = ((places, place_of), *last[: MAX_LAYOUTS - 1])
        return place_of

    def rank(self, arranged: _Arranged, others: CellEntries) -> CellEntries:
        """Return the cells of packed numbers, together with those of other columns."""
        numbers, place_of, _ = arranged
        most = len(numbers.events) + len(others.events)
        found = CellEntries(
            np.empty(len(place_of) + 1, np.int64),
            np.empty(most, np.int32),
            np.empty(most, np.int32),
        )
        given = PackedValues(numbers.starts, numbers.events, numbers.values)
        rank_packed(self._ranks, place_of, given, others, found)
        count = int(found.starts[-1])
        return found._replace(events=found.events[:count], cells=found.cells[:count])


class _Arranged(NamedTuple):
    """Packed columns, and where the attributes are among them."""

    numbers: NumberColumns
    place_of: NDArray[np.int32]
    """For each attribute its column, or NONE."""
    inexact: Mapping[str, Column]
    """The columns that must not be ranked as floats."""


def _small_table(breakpoints: NDArray[np.float64]) -> RankTable:
    """Return a table that is about as large as the breakpoints; an empty one if there is none."""
    most = MAX_ENTRIES_PER_BREAKPOINT * len(breakpoints)
    if len(breakpoints) and breakpoints[-1] - breakpoints[0] < most:
        return _table(breakpoints) or _NO_TABLE._replace(low=np.zeros(1))
    return _NO_TABLE._replace(low=np.zeros(1))


def _table(breakpoints: NDArray[np.float64]) -> RankTable | None:
    """Return a table of ranks for breakpoints at whole numbers, or None if it is not worthwhile.

    A test of equality with a whole number has a breakpoint just below it and one just above it.
    Then all values between two whole numbers have passed the same breakpoints.
    """
    if (
        len(breakpoints) < MIN_TABLE_BREAKPOINTS
        or not -MAX_TABLE_NUMBER < breakpoints[0] <= breakpoints[-1] < MAX_TABLE_NUMBER
    ):
        return None
    whole = np.floor(breakpoints)
    low, high = int(whole[0]), int(whole[-1])
    right_over = np.nextafter(whole, np.inf)
    if (
        high - low >= MAX_TABLE_ENTRIES
        or not ((breakpoints == whole) | (breakpoints == right_over)).all()
    ):
        return None
    numbers = np.arange(low, high + 1, dtype=np.float64)
    return RankTable(
        low=np.array([low], np.float64),
        at=np.searchsorted(breakpoints, numbers, side="right").astype(np.int32),
        over=np.searchsorted(breakpoints, np.nextafter(numbers, np.inf), side="right").astype(
            np.int32
        ),
    )

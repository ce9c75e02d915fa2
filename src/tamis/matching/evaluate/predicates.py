"""Tests that the value order cannot decide: text, bits, and comparisons of attributes."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.events import Kind, Schema
from tamis.events.batch import NO_COLUMN, EventBatch
from tamis.events.columns import Entries
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Caseless, HasBits, ValueAtom
from tamis.matching.compile.leaves import Predicate
from tamis.matching.evaluate.batch_kernels import gather_holders, mark_holders
from tamis.matching.evaluate.caseless_finders import caseless_finders, placed_folded
from tamis.matching.evaluate.metering import Meter
from tamis.matching.evaluate.relations import (
    MeteredRelation,
    Operands,
    PlannedRelation,
    find_related,
)
from tamis.matching.evaluate.text_finders import Finder, Placed, asked_by, finders_by_op

# Results are passed on for this many texts at a time, or once they are this many, so that they
# never fill the memory.
TEXTS_PER_PASS: Final = 256
MAX_PASSED_PER_PASS: Final = 1_000_000

# --- the text predicates of an attribute ----------------------------------------------------------


class TextIndex:
    """The text predicates of one attribute, each with the row that its results go to."""

    def __init__(self) -> None:
        self._atoms: list[ValueAtom] = []
        self._rows: list[int] = []
        self._row_asking: dict[tuple[str, str], int] = {}
        self._copies: dict[int, int] = {}

    def add(self, row: int, atom: ValueAtom) -> None:
        """Add a predicate; its results go to this row."""
        asked = asked_by(atom)
        if asked in self._row_asking:
            self._copies[row] = self._row_asking[asked]
            return
        self._row_asking[asked] = row
        self._rows.append(row)
        self._atoms.append(atom)

    @cached_property
    def _finders(self) -> list[Finder]:
        exact, folded = list[Placed](), list[Placed]()
        for row, atom in zip(self._rows, self._atoms, strict=True):
            op, text = asked_by(atom)
            if op.startswith("~") and isinstance(atom, Caseless):
                folded.append(placed_folded(row, atom))
            else:
                exact.append(Placed(row, atom, text))
        return [*caseless_finders(folded, exact)] if folded else finders_by_op(exact)

    def asking_as(self, row: int) -> list[int]:
        """Return the rows that ask the same as one, and itself."""
        return [row, *self._twins.get(row, ())]

    @cached_property
    def _twins(self) -> dict[int, list[int]]:
        """The rows that ask the same as a row."""
        twins: dict[int, list[int]] = {}
        for row, original in self._copies.items():
            twins.setdefault(original, []).append(row)
        return twins

    def rows_passed(self, text: str, meter: Meter | None = None) -> list[int]:
        """Return the rows of the predicates that a text of a single event passes."""
        if meter is None:
            rows = [row for finder in self._finders for row in finder.find(text)]
        else:
            rows = [row for finder in self._finders for row in finder.find_within(text, meter)]
            if meter.left_out:
                meter.note([0])
        if self._copies:
            rows += [twin for row in rows for twin in self._twins.get(row, ())]
        return rows

    def set_rows(
        self, entries: Entries, rows: NDArray[np.bool_], meter: Meter | None = None
    ) -> None:
        """Mark the events that pass each predicate in its row."""
        starts = np.zeros(len(entries.texts) + 1, np.int64)
        holders = np.empty(len(entries.events), np.int32)
        gather_holders(entries.values, entries.events, starts, holders)
        first, texts, finders = 0, entries.texts, self._finders
        while first < len(texts):
            # The rows of the predicates that each text passes.
            found: list[list[int]] = []
            total, last = 0, min(first + TEXTS_PER_PASS, len(texts))
            while first + len(found) < last and total < MAX_PASSED_PER_PASS:
                text = texts[first + len(found)]
                if meter is None:
                    found.append([row for finder in finders for row in finder.find(text)])
                else:
                    own = [row for finder in finders for row in finder.find_within(text, meter)]
                    found.append(own)
                    if meter.left_out:
                        place = first + len(found) - 1
                        meter.note(holders[starts[place] : starts[place + 1]].tolist())
                total += len(found[-1])
            passed = np.fromiter(chain.from_iterable(found), np.int32, total)
            places = np.arange(first, first + len(found), dtype=np.int32)
            mark_holders(passed, np.repeat(places, list(map(len, found))), starts, holders, rows)
            first += len(found)
        if self._copies:
            rows[[*self._copies]] = rows[[*self._copies.values()]]


# --- all predicates -------------------------------------------------------------------------------


Rows = NDArray[np.bool_]


class PredicateIndex:
    """All predicates of a compiled set; made once, used for any number of batches."""

    def __init__(self, predicates: Collection[Predicate], schema: Schema | None) -> None:
        self._count: Final = len(predicates)
        self._schema: Final = schema
        self.texts: Final[dict[str, TextIndex]] = {}
        """The text predicates of each attribute."""
        self._bits: Final[list[tuple[int, HasBits]]] = []
        self._relations: Final[dict[tuple[Relation, bool], list[tuple[int, bool]]]] = {}
        """For each comparison, with or without defaults, its rows: where it is true, or false."""
        self._of_relation: Final[dict[int, list[tuple[int, bool]]]] = {}
        self._by_default: Final[dict[str, list[int]]] = {}
        for row, predicate in enumerate(predicates):
            self._add(row, predicate)

    @property
    def is_only_texts(self) -> bool:
        """Return whether all test texts, and none holds for an absent one."""
        return not (self._bits or self._relations or self._by_default)

    @property
    def are_metered(self) -> bool:
        """Return whether there are tests that an event can make slow."""
        return bool(self.texts or self._relations)

    def asking_as(self, row: int) -> list[int]:
        """Return the rows of the predicates that are tested with one, and itself."""
        if row in self._of_relation:
            return [row for row, _ in self._of_relation[row]]
        return [*{one for tests in self.texts.values() for one in tests.asking_as(row)}]

    def find(self, batch: EventBatch, meter: Meter | None = None) -> Rows:
        """Return whether each predicate, in the given order, holds for each event.

        There are columns up to a multiple of 64, so that the rows can be packed into words.
        """
        rows = np.zeros((self._count, -(-batch.length // 64) * 64), np.bool_)
        for name, tests in self.texts.items():
            column = batch.columns.get(name, NO_COLUMN)
            if Kind.TEXT in column.entries:
                tests.set_rows(column.entries[Kind.TEXT], rows, meter)
        for row, atom in self._bits:
            column = batch.columns.get(atom.attribute, NO_COLUMN)
            if Kind.BITS in column.entries:
                events, masks = column.entries[Kind.BITS][:2]
                rows[row, events[_has_bits(atom, masks)]] = True
        for name, by_default in self._by_default.items():
            rows[np.ix_(np.array(by_default), _absent(name, batch))] = True
        if self._relations:
            self._set_relations(batch, rows, meter)
        return rows

    def _add(self, row: int, predicate: Predicate) -> None:
        atom = predicate.atom
        if isinstance(atom, Relation):
            own = self._relations.setdefault((atom, predicate.completed), [])
            own.append((row, predicate.truth))
            self._of_relation[row] = own
            return
        assert isinstance(atom, ValueAtom)  # noqa: S101 - the only other atoms without intervals
        if isinstance(atom, HasBits):
            self._bits.append((row, atom))
        else:
            self.texts.setdefault(atom.attribute, TextIndex()).add(row, atom)
        declared = self._schema.get(atom.attribute) if self._schema else None
        if predicate.completed and declared is not None and atom.passes(declared.default):
            self._by_default.setdefault(atom.attribute, []).append(row)

    @cached_property
    def _planned(self) -> list[tuple[PlannedRelation, bool, list[tuple[int, bool]]]]:
        """The comparisons; those of the same attributes one after the other."""
        found = [
            (PlannedRelation.of(relation), completed, own)
            for (relation, completed), own in self._relations.items()
        ]
        return sorted(found, key=lambda one: (one[0].names, one[1]))

    def _set_relations(self, batch: EventBatch, rows: Rows, meter: Meter | None) -> None:
        operands = {False: Operands(batch, None), True: Operands(batch, self._schema)}
        for planned, completed, own in self._planned:
            metered = None if meter is None else MeteredRelation(meter, own[0][0])
            found = find_related(planned, operands[completed], metered)
            if found is None:
                continue
            for row, truth in own:
                rows[row, : batch.length] = found.known & (found.holds == truth)


def _has_bits(atom: HasBits, masks: NDArray[np.uint64]) -> Rows:
    wanted = np.uint64(atom.bits.mask)
    found = masks & wanted
    passing: Rows = found == wanted if atom.op == "all" else found != 0
    return passing


def _absent(name: str, batch: EventBatch) -> NDArray[np.intp]:
    counts = batch.columns.get(name, NO_COLUMN).counts(len(batch))
    return np.flatnonzero(counts == 0)

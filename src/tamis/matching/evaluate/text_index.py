"""The text predicates of one attribute, or of any, all tested together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.events import Kind, Schema
from tamis.events.batch import EventBatch
from tamis.events.columns import Entries
from tamis.events.packed import PackedColumns
from tamis.filters import Filter
from tamis.filters.any_text import AnyText, text_attributes
from tamis.filters.atoms import Caseless, ValueAtom
from tamis.matching.compile.leaves import Predicate
from tamis.matching.evaluate.batch_kernels import gather_holders, mark_holders
from tamis.matching.evaluate.caseless_finders import caseless_finders, placed_folded
from tamis.matching.evaluate.metering import Meter
from tamis.matching.evaluate.text_finders import Finder, Placed, asked_by, finders_by_op

# Results are passed on for this many texts at a time, or once they are this many, so that they
# never fill the memory.
TEXTS_PER_PASS: Final = 256
MAX_PASSED_PER_PASS: Final = 1_000_000


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


class AnyTextIndex:
    """The tests of any attribute: the texts of all attributes go through one index."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema: Final = schema
        self._exact: Final = TextIndex()
        self._caseless: Final = TextIndex()
        """The same tests, of attributes that the schema declares as caseless."""
        self._true_rows: Final[dict[Filter, int]] = {}
        """The rows of tests without regard to defaults."""
        self._false_rows: Final[dict[Filter, int]] = {}
        self._by_default: Final[dict[str, list[int]]] = {}

    @property
    def is_by_default(self) -> bool:
        """Return whether a test may hold by the default of an absent attribute."""
        return bool(self._by_default)

    @property
    def indexes(self) -> tuple[TextIndex, TextIndex]:
        """Return what tests the texts."""
        return self._exact, self._caseless

    def add(self, row: int, atom: AnyText, predicate: Predicate) -> None:
        """Add a predicate on an atom; its results go to this row."""
        if not predicate.truth:
            self._false_rows[atom] = row
            return
        self._exact.add(row, atom.test)
        self._caseless.add(row, atom.caseless_test)
        if not predicate.completed:
            self._true_rows[atom] = row
            return
        for name, declared in (self._schema or {}).items():
            test = atom.of(name, self._schema)
            if test is not None and test.passes(declared.default):
                self._by_default.setdefault(name, []).append(row)

    @cached_property
    def _opposites(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The rows of tests that fail, and for each that of the test that passes."""
        false = np.fromiter(self._false_rows.values(), np.int32)
        return false, np.array([self._true_rows[atom] for atom in self._false_rows], np.int32)

    def set_rows(self, batch: EventBatch, rows: NDArray[np.bool_], meter: Meter | None) -> None:
        """Mark the events that pass each test in its row."""
        has_text = np.zeros(rows.shape[1], np.bool_)
        # Apart, because tests that ask the same of texts in any case may differ otherwise.
        folded = None
        for name, entries in self._texts(batch):
            has_text[entries.events] = True
            if self._index_of(name) is self._exact:
                self._exact.set_rows(entries, rows, meter)
            else:
                folded = np.zeros_like(rows) if folded is None else folded
                self._caseless.set_rows(entries, folded, meter)
        if folded is not None:
            rows |= folded
        for name, by_default in self._by_default.items():
            rows[np.ix_(np.array(by_default), batch.lacking(name))] = True
        false, true = self._opposites
        rows[false] = has_text & ~rows[true]

    def _texts(self, batch: EventBatch) -> Iterator[tuple[str, Entries]]:
        """Yield the texts of each attribute that has any."""
        columns = batch.columns
        if isinstance(columns, PackedColumns):
            columns = columns.others
        names = columns if self._schema is None else text_attributes(self._schema)
        for name in names:
            if name in columns and Kind.TEXT in columns[name].entries:
                yield name, columns[name].entries[Kind.TEXT]

    def _index_of(self, name: str) -> TextIndex | None:
        """Return what tests the texts of an attribute; None if they do not count."""
        if self._schema is None:
            return self._exact
        declared = self._schema.get(name)
        if declared is None or declared.kind is not Kind.TEXT:
            return None
        return self._caseless if declared.caseless else self._exact

    def rows_passed(
        self, texts: Iterable[tuple[str, str]], meter: Meter | None = None
    ) -> NDArray[np.int32]:
        """Return the rows that a single event passes, given its texts with their attributes."""
        passed, has_text = set[int](), False
        for name, text in texts:
            index = self._index_of(name)
            if index is not None:
                has_text = True
                passed.update(index.rows_passed(text, meter))
        rows = np.fromiter(passed, np.int32, len(passed))
        false, true = self._opposites
        if not has_text or not len(false):
            return rows
        is_passed = np.zeros(int(true.max()) + 1, np.bool_)
        is_passed[rows[rows < len(is_passed)]] = True
        return np.concatenate((rows, false[~is_passed[true]]))

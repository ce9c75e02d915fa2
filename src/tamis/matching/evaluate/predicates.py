"""What no line decides: which events pass tests of text and bits, and comparisons of attributes."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.events import Kind, Schema
from tamis.events.batch import NO_COLUMN, Entries, EventBatch
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import HasBits, ValueAtom
from tamis.matching.compile.vocabulary import Predicate
from tamis.matching.evaluate.batch_kernels import gather_holders, mark_holders
from tamis.matching.evaluate.relations import Operands, find_related
from tamis.matching.evaluate.text_predicates import TextIndex, asked_by

Rows = NDArray[np.bool_]


class PredicateIndex:
    """All predicates of a compiled set; made once, used for any number of batches."""

    def __init__(self, predicates: Collection[Predicate], schema: Schema | None) -> None:
        self._count: Final = len(predicates)
        self._schema: Final = schema
        self._texts: Final[dict[str, _TextRows]] = {}
        self._bits: Final[list[tuple[int, HasBits]]] = []
        self._relations: Final[list[tuple[int, Relation, Predicate]]] = []
        self._by_default: Final[dict[str, list[int]]] = {}
        for row, predicate in enumerate(predicates):
            self._add(row, predicate)

    def find(self, batch: EventBatch) -> Rows:
        """Tell for each predicate, in the order given, and each event whether it holds."""
        rows = np.zeros((self._count, len(batch)), np.bool_)
        self._set_texts(batch, rows)
        self._set_bits(batch, rows)
        for name, by_default in self._by_default.items():
            rows[np.ix_(np.array(by_default), _absent(name, batch))] = True
        self._set_relations(batch, rows)
        return rows

    def _add(self, row: int, predicate: Predicate) -> None:
        atom = predicate.atom
        if isinstance(atom, Relation):
            self._relations.append((row, atom, predicate))
            return
        assert isinstance(atom, ValueAtom)  # noqa: S101 - the only other atoms without intervals
        if isinstance(atom, HasBits):
            self._bits.append((row, atom))
        else:
            self._texts.setdefault(atom.attribute, _TextRows()).add(row, atom)
        declared = self._schema.get(atom.attribute) if self._schema else None
        if predicate.completed and declared is not None and atom.passes(declared.default):
            self._by_default.setdefault(atom.attribute, []).append(row)

    def _set_texts(self, batch: EventBatch, rows: Rows) -> None:
        for name, tests in self._texts.items():
            entries = _entries(name, Kind.TEXT, batch)
            if entries is not None:
                tests.set_rows(entries, rows)

    def _set_bits(self, batch: EventBatch, rows: Rows) -> None:
        for row, atom in self._bits:
            entries = _entries(atom.attribute, Kind.BITS, batch)
            if entries is not None:
                rows[row, entries.events[_has_bits(atom, entries.values)]] = True

    def _set_relations(self, batch: EventBatch, rows: Rows) -> None:
        operands = {False: Operands(batch, None), True: Operands(batch, self._schema)}
        for row, relation, predicate in self._relations:
            seen = operands[predicate.completed]
            rows[row] = find_related(relation, seen, truth=predicate.truth)


class _TextRows:
    """The tests of one attribute's text, and the rows that say which events pass them."""

    def __init__(self) -> None:
        self._atoms: list[ValueAtom] = []
        self._rows: list[int] = []
        self._row_asking: dict[tuple[str, str], int] = {}
        self._copies: dict[int, int] = {}

    def add(self, row: int, atom: ValueAtom) -> None:
        """Let a row be that of a test."""
        asked = asked_by(atom)
        if asked in self._row_asking:
            self._copies[row] = self._row_asking[asked]
            return
        self._row_asking[asked] = row
        self._rows.append(row)
        self._atoms.append(atom)

    @cached_property
    def _index(self) -> TextIndex:
        return TextIndex(self._atoms)

    def set_rows(self, entries: Entries, rows: Rows) -> None:
        """Set which events pass, in the rows of all tests."""
        starts = np.zeros(len(entries.texts) + 1, np.int64)
        holders = np.empty(len(entries.events), np.int32)
        gather_holders(entries.values, entries.events, starts, holders)
        own = np.array(self._rows, np.int32)
        for tests, texts in self._index.find_pairs(entries.texts):
            mark_holders(own[tests], texts, starts, holders, rows)
        rows[[*self._copies]] = rows[[*self._copies.values()]]


def _entries(name: str, kind: Kind, batch: EventBatch) -> Entries | None:
    return batch.columns.get(name, NO_COLUMN).entries.get(kind)


def _has_bits(atom: HasBits, masks: NDArray[np.uint64]) -> Rows:
    wanted = np.uint64(atom.bits.mask)
    found = masks & wanted
    passing: Rows = found == wanted if atom.op == "all" else found != 0
    return passing


def _absent(name: str, batch: EventBatch) -> NDArray[np.intp]:
    counts = batch.columns.get(name, NO_COLUMN).counts(len(batch))
    return np.flatnonzero(counts == 0)

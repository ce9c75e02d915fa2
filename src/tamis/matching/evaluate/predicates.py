"""Tests that the value order cannot decide: text, bits, and comparisons of attributes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.events import Kind, Schema
from tamis.events.batch import NO_COLUMN, EventBatch
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import HasBits, ValueAtom
from tamis.matching.compile.vocabulary import Predicate
from tamis.matching.evaluate.relations import Operands, find_related
from tamis.matching.evaluate.text_predicates import TextIndex

Rows = NDArray[np.bool_]


class PredicateIndex:
    """All predicates of a compiled set; made once, used for any number of batches."""

    def __init__(self, predicates: Collection[Predicate], schema: Schema | None) -> None:
        self._count: Final = len(predicates)
        self._schema: Final = schema
        self._texts: Final[dict[str, TextIndex]] = {}
        self._bits: Final[list[tuple[int, HasBits]]] = []
        self._relations: Final[list[tuple[int, Relation, Predicate]]] = []
        self._by_default: Final[dict[str, list[int]]] = {}
        for row, predicate in enumerate(predicates):
            self._add(row, predicate)

    def find(self, batch: EventBatch) -> Rows:
        """Return whether each predicate, in the given order, holds for each event.

        There are columns up to a multiple of 64, so that the rows can be packed into words.
        """
        rows = np.zeros((self._count, -(-batch.length // 64) * 64), np.bool_)
        for name, tests in self._texts.items():
            column = batch.columns.get(name, NO_COLUMN)
            if Kind.TEXT in column.entries:
                tests.set_rows(column.entries[Kind.TEXT], rows)
        for row, atom in self._bits:
            column = batch.columns.get(atom.attribute, NO_COLUMN)
            if Kind.BITS in column.entries:
                events, masks = column.entries[Kind.BITS][:2]
                rows[row, events[_has_bits(atom, masks)]] = True
        for name, by_default in self._by_default.items():
            rows[np.ix_(np.array(by_default), _absent(name, batch))] = True
        if self._relations:
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
            self._texts.setdefault(atom.attribute, TextIndex()).add(row, atom)
        declared = self._schema.get(atom.attribute) if self._schema else None
        if predicate.completed and declared is not None and atom.passes(declared.default):
            self._by_default.setdefault(atom.attribute, []).append(row)

    def _set_relations(self, batch: EventBatch, rows: Rows) -> None:
        operands = {False: Operands(batch, None), True: Operands(batch, self._schema)}
        for row, relation, predicate in self._relations:
            seen = operands[predicate.completed]
            rows[row, : batch.length] = find_related(relation, seen, truth=predicate.truth)


def _has_bits(atom: HasBits, masks: NDArray[np.uint64]) -> Rows:
    wanted = np.uint64(atom.bits.mask)
    found = masks & wanted
    passing: Rows = found == wanted if atom.op == "all" else found != 0
    return passing


def _absent(name: str, batch: EventBatch) -> NDArray[np.intp]:
    counts = batch.columns.get(name, NO_COLUMN).counts(len(batch))
    return np.flatnonzero(counts == 0)

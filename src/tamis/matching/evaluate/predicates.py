"""Tests that the value order cannot decide: text, bits, and comparisons of attributes."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.events import Kind, Schema
from tamis.events.batch import NO_COLUMN, EventBatch
from tamis.filters.any_text import AnyText
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import HasBits, ValueAtom
from tamis.matching.compile.leaves import Predicate
from tamis.matching.evaluate.metering import Meter
from tamis.matching.evaluate.relations import (
    MeteredRelation,
    Operands,
    PlannedRelation,
    find_related,
)
from tamis.matching.evaluate.text_index import AnyTextIndex, TextIndex

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
        self.any_texts: AnyTextIndex | None = None
        """The tests of any attribute."""
        for row, predicate in enumerate(predicates):
            self._add(row, predicate)

    @property
    def is_only_texts(self) -> bool:
        """Return whether all test texts, and none holds for an absent one."""
        by_default = self._by_default or (self.any_texts and self.any_texts.is_by_default)
        return not (self._bits or self._relations or by_default)

    @property
    def are_metered(self) -> bool:
        """Return whether there are tests that an event can make slow."""
        return bool(self.texts or self._relations or self.any_texts)

    def asking_as(self, row: int) -> list[int]:
        """Return the rows of the predicates that are tested with one, and itself."""
        if row in self._of_relation:
            return [row for row, _ in self._of_relation[row]]
        any_texts = () if self.any_texts is None else self.any_texts.indexes
        indexes = (*self.texts.values(), *any_texts)
        return [*{one for tests in indexes for one in tests.asking_as(row)}]

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
            rows[np.ix_(np.array(by_default), batch.lacking(name))] = True
        if self.any_texts is not None:
            self.any_texts.set_rows(batch, rows, meter)
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
        if isinstance(atom, AnyText):
            self.any_texts = self.any_texts or AnyTextIndex(self._schema)
            self.any_texts.add(row, atom, predicate)
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

"""What no line decides: which events pass tests of text and bits, and comparisons of attributes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.events import Schema
from tamis.events.batch import NO_COLUMN, EventBatch
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import HasBits, ValueAtom
from tamis.filters.modes import View
from tamis.matching.vocabulary import Predicate


def events_that_pass(
    predicate: Predicate, batch: EventBatch, schema: Schema | None
) -> NDArray[np.bool_]:
    """Tell of every event whether a predicate holds."""
    atom = predicate.atom
    if isinstance(atom, Relation):
        return _relation(predicate, atom, batch, schema)
    assert isinstance(atom, ValueAtom)  # noqa: S101 - the only other atoms without intervals
    passing = np.zeros(len(batch), np.bool_)
    entries = batch.columns.get(atom.attribute, NO_COLUMN).entries.get(atom.kind)
    if entries is not None:
        if isinstance(atom, HasBits):
            accepted = _bits(atom, entries.values)
        else:
            of_text = np.array([atom.accepts(text) for text in entries.texts], np.bool_)
            accepted = of_text[entries.values]
        passing[entries.events[accepted]] = True
    if predicate.completed and schema is not None:
        passing |= _default(atom, schema) & _absent(atom.attribute, batch)
    return passing


def _bits(atom: HasBits, masks: NDArray[np.uint64]) -> NDArray[np.bool_]:
    wanted = np.uint64(atom.bits.mask)
    found = masks & wanted
    passing: NDArray[np.bool_] = found == wanted if atom.op == "all" else found != 0
    return passing


def _default(atom: ValueAtom, schema: Schema) -> bool:
    declared = schema.get(atom.attribute)
    if declared is None or declared.default is None or declared.kind is not atom.kind:
        return False
    return atom.accepts(declared.default)


def _absent(name: str, batch: EventBatch) -> NDArray[np.bool_]:
    absent = np.ones(len(batch), np.bool_)
    for entries in batch.columns.get(name, NO_COLUMN).entries.values():
        absent[entries.events] = False
    return absent


def _relation(
    predicate: Predicate, relation: Relation, batch: EventBatch, schema: Schema | None
) -> NDArray[np.bool_]:
    passing = np.zeros(len(batch), np.bool_)
    names = sorted(relation.attributes())
    for number in range(len(batch)):
        event = batch.event(number, names)
        if predicate.completed and schema is not None:
            event = schema.with_defaults(event)
        passing[number] = relation.truth(View(event, None)) is predicate.truth
    return passing

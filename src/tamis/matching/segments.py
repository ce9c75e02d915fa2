"""Subscriptions that were compiled together, and what several such sets find in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events.batch import EventBatch
from tamis.filters import Mode
from tamis.matching.compiled import Compiled
from tamis.matching.evaluation import Bitmap, Evaluator
from tamis.matching.matches import Id, Matches
from tamis.matching.vocabulary import Vocabulary


class Entry(NamedTuple):
    """One subscription as the engine keeps it."""

    id: Id
    program: NDArray[np.int32]
    mode: Mode
    expires_at: float


class Segment(NamedTuple):
    """Subscriptions that were compiled together; which of them are still there is a mask."""

    entries: tuple[Entry, ...]
    evaluator: Evaluator
    ids: NDArray[np.object_]
    expires_at: NDArray[np.float64]
    places: dict[Id, int]
    alive: NDArray[np.bool_]

    @classmethod
    def of(cls, entries: Sequence[Entry], vocabulary: Vocabulary) -> Segment:
        """Compile some subscriptions."""
        ids = np.empty(len(entries), np.object_)
        ids[:] = [entry.id for entry in entries]
        return cls(
            entries=tuple(entries),
            evaluator=Evaluator(Compiled([entry.program for entry in entries], vocabulary)),
            ids=ids,
            expires_at=np.array([entry.expires_at for entry in entries], np.float64),
            places={entry.id: place for place, entry in enumerate(entries)},
            alive=np.ones(len(entries), np.bool_),
        )

    def without(self, id_: Id) -> Segment:
        """Return the segment with one subscription gone."""
        alive = self.alive.copy()
        alive[self.places[id_]] = False
        return self._replace(alive=alive)

    def living(self) -> list[Entry]:
        """Return the subscriptions that are still there."""
        return [entry for entry, alive in zip(self.entries, self.alive, strict=True) if alive]

    def find(
        self, batch: EventBatch, now: float, threads: int
    ) -> tuple[NDArray[np.object_], Bitmap]:
        """Return the ids of the subscriptions in force, and the events that match each."""
        matched = self.evaluator.evaluate(batch, threads)
        in_force = self.alive & (self.expires_at > now)
        if in_force.all():
            return self.ids, matched
        return self.ids[in_force], matched[in_force]


def joined_matches(
    segments: Sequence[Segment], batch: EventBatch, now: float, threads: int
) -> Matches:
    """Return what all segments find, in their order: that of adding."""
    words = -(-len(batch) // 64)
    found = [segment.find(batch, now, threads) for segment in segments]
    if len(found) == 1:
        return Matches(len(batch), *found[0], batch.errors)
    ids = np.concatenate([np.empty(0, np.object_), *(ids for ids, _ in found)])
    bitmap = np.concatenate([np.empty((0, words), np.uint64), *(bits for _, bits in found)])
    return Matches(len(batch), ids, bitmap, batch.errors)

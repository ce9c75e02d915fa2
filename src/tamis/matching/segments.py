"""Subscriptions that were compiled together, and what several such sets find in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events.batch import EventBatch
from tamis.filters import Mode
from tamis.matching.compiled import Compiled
from tamis.matching.evaluation import Evaluator
from tamis.matching.matches import Id, Matches, Share
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

    def find(self, batch: EventBatch, now: float, threads: int) -> Share:
        """Return which subscriptions are in force, and which events match them."""
        in_force = self.alive & (self.expires_at > now)
        return Share(self.ids, in_force, self.evaluator.evaluate(batch, threads))


def joined_matches(
    segments: Sequence[Segment], batch: EventBatch, now: float, threads: int
) -> Matches:
    """Return what all segments find, in their order: that of adding."""
    shares = [segment.find(batch, now, threads) for segment in segments]
    return Matches(len(batch), shares, batch.errors)

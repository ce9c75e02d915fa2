"""Segments: subscriptions that were compiled together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events import Event
from tamis.filters import Id, Mode
from tamis.filters.translations import Residual
from tamis.matching.compile.compiled import compile_programs
from tamis.matching.compile.programs import Programs
from tamis.matching.compile.vocabulary import Vocabulary
from tamis.matching.evaluate.evaluator import Evaluator
from tamis.matching.evaluate.metering import MatchingBudget, Meter
from tamis.matching.matches import Ids, MatchedSegment
from tamis.matching.store.residual_columns import (
    ResidualColumn,
    Residuals,
    joined_residuals,
    residuals_of,
)

MODES: Final = tuple(Mode)
_NUMBERS_OF_MODES: Final = {mode: number for number, mode in enumerate(MODES)}


class CompiledSubscription(NamedTuple):
    """One subscription, as it enters the engine and moves between segments."""

    id: Id
    program: NDArray[np.int32]
    mode: Mode
    expires_at: float
    residual: Residual | None = None
    """What is left to check of an event that satisfies the program."""

    def renumbered(self, numbers: NDArray[np.int32]) -> CompiledSubscription:
        """Return it with other numbers of its leaves."""
        return self._replace(program=_renumbered(self.program, numbers))


class UncompiledColumns(NamedTuple):
    """Subscriptions that will be compiled together, in columns."""

    ids: NDArray[np.object_]
    programs: Programs
    modes: NDArray[np.int8]
    expires_at: NDArray[np.float64]
    residuals: Residuals

    @classmethod
    def of(cls, entries: Sequence[CompiledSubscription]) -> UncompiledColumns:
        """Put some subscriptions in columns."""
        ids = np.empty(len(entries), np.object_)
        ids[:] = [entry.id for entry in entries]
        return cls(
            ids,
            Programs.of([entry.program for entry in entries]),
            np.array([_NUMBERS_OF_MODES[entry.mode] for entry in entries], np.int8),
            np.array([entry.expires_at for entry in entries], np.float64),
            residuals_of([entry.residual for entry in entries]),
        )

    @classmethod
    def joined(cls, parts: Sequence[UncompiledColumns]) -> UncompiledColumns:
        """Concatenate columns."""
        if len(parts) == 1:
            return parts[0]
        ids, programs, modes, expires_at, residuals = zip(*parts, strict=True)
        return cls(
            np.concatenate(ids),
            Programs.joined(programs),
            np.concatenate(modes),
            np.concatenate(expires_at),
            joined_residuals(residuals, [*map(len, ids)]),
        )


class SubscriptionColumns(NamedTuple):
    """The subscriptions of a segment in columns, a few bytes each."""

    ids: Ids
    modes: NDArray[np.int8]
    expires_at: NDArray[np.float64]
    soonest: float
    """When the first of them expires."""
    hashes: NDArray[np.int64]
    """The hashes of the ids, ascending, for lookup by id."""
    by_hash: NDArray[np.int32]
    left: ResidualColumn | None
    """What is left to check; None: nothing."""

    @classmethod
    def of(
        cls,
        ids: NDArray[np.object_],
        modes: NDArray[np.int8],
        expires_at: NDArray[np.float64],
        residuals: Residuals = None,
    ) -> SubscriptionColumns:
        """Index the ids."""
        hashes = np.fromiter(map(hash, ids), np.int64, len(ids))
        by_hash = np.argsort(hashes, kind="stable").astype(np.int32)
        soonest = float(expires_at.min(initial=np.inf))
        left = ResidualColumn.of(residuals)
        return cls(Ids(ids), modes, expires_at, soonest, hashes[by_hash], by_hash, left)

    def places(self, id_: Id) -> Iterator[int]:
        """Yield the positions of an id; several if it was removed and added again."""
        first = int(np.searchsorted(self.hashes, hash(id_)))
        while first < len(self.hashes) and self.hashes[first] == hash(id_):
            place = int(self.by_hash[first])
            if self.ids.objects[place] == id_:
                yield place
            first += 1


class Segment(NamedTuple):
    """Subscriptions that were compiled together, with a mask of those not removed."""

    evaluator: Evaluator
    columns: SubscriptionColumns
    alive: NDArray[np.bool_]
    leaves: NDArray[np.int32]
    """The number of each leaf in the vocabulary; NONE where only removed ones had it."""
    removed: int = 0
    """How many have been removed."""

    @classmethod
    def of(cls, columns: UncompiledColumns, vocabulary: Vocabulary) -> Segment:
        """Compile some subscriptions."""
        used, programs = columns.programs.renumbered()
        return cls(
            Evaluator(compile_programs(programs, vocabulary.leaf_set(used), vocabulary.schema)),
            SubscriptionColumns.of(
                columns.ids, columns.modes, columns.expires_at, columns.residuals
            ),
            np.ones(len(columns.ids), np.bool_),
            used,
        )

    @property
    def size(self) -> int:
        """Return the number of compiled subscriptions, including removed ones."""
        return len(self.alive)

    def place(self, id_: Id) -> int | None:
        """Return the position of a subscription that was not removed."""
        return next((place for place in self.columns.places(id_) if self.alive[place]), None)

    def entry(self, place: int) -> CompiledSubscription:
        """Return one subscription."""
        columns = self.columns
        return CompiledSubscription(
            columns.ids.objects[place],
            _renumbered(self.evaluator.compiled.programs.program(place), self.leaves),
            MODES[columns.modes[place]],
            float(columns.expires_at[place]),
            None if columns.left is None else columns.left.objects[place],
        )

    def without(self, place: int) -> Segment:
        """Return the segment with one more tombstone."""
        alive = self.alive.copy()
        alive[place] = False
        return self._replace(alive=alive, removed=self.removed + 1)

    def without_all(self, places: NDArray[np.int64]) -> Segment:
        """Return the segment with many more tombstones."""
        alive = self.alive.copy()
        alive[places] = False
        return self._replace(alive=alive, removed=int(np.count_nonzero(~alive)))

    def used_leaves(self) -> NDArray[np.int32]:
        """Return the numbers of the leaves of the subscriptions that were not removed."""
        if not self.removed:
            return self.leaves
        living = np.flatnonzero(self.alive).astype(np.int32)
        codes = self.evaluator.compiled.programs.some(living).codes
        return self.leaves[np.unique(codes[codes >= 0])]

    def renumbered(self, numbers: NDArray[np.int32]) -> Segment:
        """Return the segment with other numbers of its leaves."""
        return self._replace(leaves=_renumbered(self.leaves, numbers))

    def with_alive(self, alive: NDArray[np.bool_]) -> Segment:
        """Return a copy of which only some subscriptions are left."""
        return self._replace(alive=alive, removed=int(np.count_nonzero(~alive)))

    def living(self) -> UncompiledColumns:
        """Return the subscriptions that were not removed."""
        columns, places = self.columns, np.flatnonzero(self.alive).astype(np.int32)
        codes, starts = self.evaluator.compiled.programs.some(places)
        return UncompiledColumns(
            columns.ids.objects[places],
            Programs(_renumbered(codes, self.leaves), starts),
            columns.modes[places],
            columns.expires_at[places],
            None if columns.left is None else columns.left.objects[places],
        )

    def has_any(self, ids: Sequence[Id]) -> bool:
        """Return whether one of many ids is that of a subscription that was not removed."""
        hashes = np.fromiter(map(hash, ids), np.int64, len(ids))
        known = self.columns.hashes
        found = np.searchsorted(known, hashes)
        is_near = known[np.minimum(found, len(known) - 1)] == hashes if len(known) else found < 0
        return any(self.place(ids[place]) is not None for place in np.flatnonzero(is_near).tolist())

    def ids(self) -> list[Id]:
        """Return the ids of the subscriptions that were not removed."""
        return list(self.columns.ids.objects[self.alive])

    def matched(self, now: float) -> MatchedSegment:
        """Return the ids, and which subscriptions are in force."""
        in_force = self.alive if self.removed else None
        if now >= self.columns.soonest:
            in_force = self.alive & (self.columns.expires_at > now)
        return MatchedSegment(self.columns.ids, in_force)

    def meter(self, budget: MatchingBudget, first_event: int) -> Meter:
        """Return what runs its slow tests within a budget."""
        records = budget.records(self.evaluator, self.removed)
        return Meter(budget, records, self._ids_testing, first_event)

    def _ids_testing(self, predicate: int) -> list[Id]:
        places = self.evaluator.testing(predicate)
        return self.columns.ids.taken(places[self.alive[places]])

    def match_one(
        self,
        event: Event,
        now: float,
        budget: MatchingBudget | None = None,
        check: Callable[[Id, Residual], bool] | None = None,
    ) -> list[Id]:
        """Return the subscriptions in force that one event satisfies.

        Without a check, what is left of them is left.
        """
        meter = None
        if budget is not None and self.evaluator.is_metered:
            meter = self.meter(budget, budget.event)
        found = self.evaluator.evaluate_one(event, meter)
        if check is not None and self.columns.left is not None:
            found = self._checked(self.columns.left, self._in_force(found, now), check)
        return self._taken(found, now)

    def _checked(
        self,
        left: ResidualColumn,
        found: NDArray[np.int32],
        check: Callable[[Id, Residual], bool],
    ) -> NDArray[np.int32]:
        """Return those of which nothing is left, or what is left holds."""
        kept = np.ones(len(found), np.bool_)
        for at in np.flatnonzero(left.is_left[found]).tolist():
            place = found[at]
            kept[at] = check(self.columns.ids.objects[place], left.objects[place])
        return found[kept]

    def match_plain(self, event: dict[str, Any], now: float) -> list[Id] | None:
        """Return the same for a mapping; None if it is not surely plain."""
        found = self.evaluator.single.evaluate_plain(event)
        return None if found is None else self._taken(found, now)

    def match_json(self, data: bytes, now: float) -> list[Id] | None:
        """Return the same for an event in JSON; None if the strict reader decides."""
        found = self.evaluator.single_json.evaluate(data)
        return None if found is None else self._taken(found, now)

    def _taken(self, found: NDArray[np.int32], now: float) -> list[Id]:
        """Return the ids of those that are in force."""
        return self.columns.ids.taken(self._in_force(found, now)) if len(found) else []

    def _in_force(self, found: NDArray[np.int32], now: float) -> NDArray[np.int32]:
        if self.removed or now >= self.columns.soonest:
            return found[self.alive[found] & (self.columns.expires_at[found] > now)]
        return found


def _renumbered(codes: NDArray[np.int32], numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return codes with other numbers of their leaves; operators and NONE are negative."""
    is_leaf = codes >= 0
    renumbered = codes.copy()
    renumbered[is_leaf] = numbers[codes[is_leaf]]
    return renumbered

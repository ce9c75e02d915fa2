"""Batches: many new subscriptions of one principal, stored with one sync.

Their filters are read and compiled beside the matcher, a few at a time, so that nobody's events
wait. Then one change puts them in force, between two events: until then the engine knows nothing of
them, and a crash leaves nothing of them that is not on disk as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from tamis.access import Principal, Rights
from tamis.broker.deliver.subscriptions import (
    ActiveSubscription,
    Extra,
    SubscriptionIndex,
    mark_of,
)
from tamis.broker.match.changes import Updater
from tamis.broker.operations.fair_executor import FairExecutor, Slices, too_many_at_once
from tamis.broker.operations.health import storage_refusal
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.subscribe.filter_reader import FilterReader
from tamis.broker.subscribe.making import (
    TASK,
    SubscriptionMaker,
    begun,
    made_twice,
    no_longer_valid,
    too_many,
)
from tamis.errors import RefusedError, StorageError, TamisError
from tamis.filters import Filter, Mode
from tamis.matching import Addition, Engine
from tamis.protocol import Code, Subscribe
from tamis.storage import Storage, StoredSubscription

# Read at once, in less than a millisecond.
FILTERS_PER_SLICE: Final = 128
LANGUAGE: Final = "tamis"
# Nobody need wait for a batch, so connections do not bound them.
MAX_WAITING: Final = 16
MAX_WAITING_IN_ALL: Final = 200

Made = ActiveSubscription | RefusedError


class _PreparedBatch:
    """New subscriptions by their places in the request, and what became of them."""

    def __init__(self, rights: Rights, addition: Addition) -> None:
        self.rights = rights
        self.addition = addition
        self.made: dict[int, ActiveSubscription] = {}
        self.since: dict[int, int] = {}
        """The first events of those that begin in the past."""
        self.refused: dict[int, RefusedError] = {}


class _NewRow(NamedTuple):
    place: int
    stored: StoredSubscription
    mode: Mode


class SubscriptionBatches:
    """Makes many subscriptions at once."""

    def __init__(
        self,
        *,
        store: Storage,
        engine: Engine,
        subscription_index: SubscriptionIndex,
        updater: Updater,
        maker: SubscriptionMaker,
        reader: FilterReader,
        rights_of: Callable[[Principal], Rights],
        is_welcome: Callable[[Principal], bool],
        since_of: Callable[[Subscribe], int | None],
        clock: Callable[[], float],
        executor: FairExecutor,
        supervisor: Supervisor,
        on_made: Callable[[ActiveSubscription], None],
    ) -> None:
        """Make batches; `since_of` returns the first event of the past that is wanted.

        `on_made` gets each subscription that has come into force.
        """
        self._store = store
        self._engine = engine
        self._index = subscription_index
        self._updater = updater
        self._maker = maker
        self._reader = reader
        self._rights_of = rights_of
        self._is_welcome = is_welcome
        self._since_of = since_of
        self._clock = clock
        self._executor = executor
        self._supervisor = supervisor
        self._on_made = on_made
        self._waiting: Counter[str] = Counter()
        """How many batches of each principal are not in force yet."""

    def divide(
        self, wanted: Sequence[Subscribe], principal: Principal
    ) -> tuple[dict[int, Subscribe], dict[int, Subscribe]]:
        """Return those with new names, and the others, by place."""
        new: dict[int, Subscribe] = {}
        rest: dict[int, Subscribe] = {}
        names = set[str]()
        for place, one in enumerate(wanted):
            name = one.durable or ""
            is_new = name not in names and self._index.find(principal.name, name) is None
            (new if is_new else rest)[place] = one
            names.add(name)
        return new, rest

    async def make(self, wanted: Mapping[int, Subscribe], principal: Principal) -> dict[int, Made]:
        """Add subscriptions with new names; return each, or why it is refused.

        Whoever gives up waiting does not stop it half-way.
        """
        if not wanted:
            return {}
        self._require_room(principal.name)
        self._waiting[principal.name] += 1
        return await self._supervisor.finish(TASK, self._make_one(wanted, principal))

    def _require_room(self, owner: str) -> None:
        what = "batches of subscriptions"
        if self._waiting[owner] >= MAX_WAITING:
            raise too_many_at_once(f"{owner} asks for more than {MAX_WAITING} {what}")
        if self._waiting.total() >= MAX_WAITING_IN_ALL:
            raise too_many_at_once(f"clients ask for more than {MAX_WAITING_IN_ALL} {what}")

    async def _make_one(
        self, wanted: Mapping[int, Subscribe], principal: Principal
    ) -> dict[int, Made]:
        try:
            return await self._make(wanted, principal)
        finally:
            self._waiting[principal.name] -= 1
            # Forget who waits for nothing.
            self._waiting = +self._waiting

    async def _make(self, wanted: Mapping[int, Subscribe], principal: Principal) -> dict[int, Made]:
        while True:
            rights = self._rights_of(principal)
            compiling = self._compile(wanted, principal, rights)
            batch = await self._executor.run_slices(principal.name, compiling)
            put = partial(self._put_in_force, batch, principal)
            if await self._updater.do(put, [principal.name]):
                break
        for made in batch.made.values():
            self._on_made(made)
        return {**batch.made, **batch.refused}

    # --- beside the matcher ----------------------------------------------------------------------

    def _compile(
        self, wanted: Mapping[int, Subscribe], principal: Principal, rights: Rights
    ) -> Slices[_PreparedBatch]:
        batch = _PreparedBatch(rights, self._engine.addition(self._reader.limits))
        numbers = iter(self._store.state.reserve_numbers(len(wanted)))
        places = [*wanted]
        for first in range(0, len(places), FILTERS_PER_SLICE):
            rows = list[_NewRow]()
            for place in places[first : first + FILTERS_PER_SLICE]:
                try:
                    rows.append(self._row(batch, place, wanted[place], principal, next(numbers)))
                except RefusedError as error:
                    batch.refused[place] = error
            yield from self._read(batch, rows)
            yield
        batch.addition.compile()
        return batch

    def _row(
        self,
        batch: _PreparedBatch,
        place: int,
        wanted: Subscribe,
        principal: Principal,
        number: int,
    ) -> _NewRow:
        mode, since = self._reader.mode(wanted.mode), self._since_of(wanted)
        if since is not None:
            batch.since[place] = since
        stored = self._maker.row(wanted, mode, principal, self._clock(), number)
        return _NewRow(place, stored, mode)

    def _read(self, batch: _PreparedBatch, rows: Sequence[_NewRow]) -> Slices[None]:
        """Read filters: plain ones together, the others and those of restricted readers alone."""
        left = rows
        if not batch.rights.hides_anything:
            left = []
            for mode in {row.mode for row in rows}:
                some = [row for row in rows if row.mode is mode]
                left += self._read_together(batch, some, mode)
        for row in left:
            self._read_alone(batch, row)
            yield

    def _read_together(
        self, batch: _PreparedBatch, rows: Sequence[_NewRow], mode: Mode
    ) -> list[_NewRow]:
        """Read plain filters; return those that are not."""
        are_read = batch.addition.add_texts(
            [row.stored.number for row in rows],
            [row.stored.filter if row.stored.language == LANGUAGE else "" for row in rows],
            mode,
            [row.stored.expires_at for row in rows],
        )
        for row, is_read in zip(rows, are_read, strict=True):
            if is_read:
                self._build(batch, row)
        return [row for row, is_read in zip(rows, are_read, strict=True) if not is_read]

    def _read_alone(self, batch: _PreparedBatch, row: _NewRow) -> None:
        stored = row.stored
        try:
            filter_, _, effective = self._reader.read(
                stored.filter, stored.language, stored.mode, batch.rights
            )
            batch.addition.add(stored.number, *effective, stored.expires_at)
        except RefusedError as error:
            batch.refused[row.place] = error
        except TamisError as error:
            batch.refused[row.place] = RefusedError(Code.BAD_FILTER, str(error))
        else:
            self._build(batch, row, filter_)

    def _build(self, batch: _PreparedBatch, row: _NewRow, filter_: Filter | None = None) -> None:
        """Make a subscription; a plain filter is parsed when somebody needs it, mostly never."""
        queue = self._maker.new_queue(row.stored, nothing_yet=True)
        made = ActiveSubscription(row.stored, filter_, batch.rights, queue)
        made.mark = mark_of(row.stored, batch.rights)
        batch.made[row.place] = made

    # --- between two batches of events -----------------------------------------------------------

    def _put_in_force(self, batch: _PreparedBatch, principal: Principal) -> bool:
        """Store all that is not refused, then match it; False: rights have changed since."""
        if not self._is_welcome(principal):
            raise no_longer_valid()
        if self._rights_of(principal) is not batch.rights:
            return False
        self._refuse_some(batch, principal.name)
        start, chosen = self._store.log.next_sequence, batch.made
        rows = [begun(made.stored, start, batch.since.get(place)) for place, made in chosen.items()]
        try:
            self._store.state.add_subscriptions(rows)
        except StorageError as error:
            batch.refused |= dict.fromkeys(chosen, storage_refusal(error))
            batch.made = {}
            return True
        for made, row in zip(chosen.values(), rows, strict=True):
            made.stored = row
        for place in batch.since.keys() & chosen.keys():
            made = chosen[place]
            if Extra.of(made.stored).replay_from:
                made.queue = self._maker.new_queue(made.stored, nothing_yet=False)
        self._match(batch)
        return True

    def _refuse_some(self, batch: _PreparedBatch, owner: str) -> None:
        """Refuse names that others have added meanwhile, and those beyond the quota."""
        most = self._maker.quota(batch.rights)
        room = most - self._index.count_of(owner)
        for place, made in [*batch.made.items()]:
            if self._index.find(owner, made.stored.name) is not None:
                batch.refused[place] = made_twice(made.stored.name)
            elif room <= 0:
                batch.refused[place] = too_many(owner, most)
            else:
                room -= 1
                continue
            del batch.made[place]

    def _match(self, batch: _PreparedBatch) -> None:
        numbers = {made.number for made in batch.made.values()}
        try:
            batch.addition.commit(numbers)
        except BaseException:
            # A bug, but what is refused must not be there after a restart.
            self._store.state.remove_subscriptions(numbers)
            raise
        self._index.add_all([*batch.made.values()])

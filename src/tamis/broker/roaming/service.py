"""Roaming: finds the home of a subscription that a client asks for here, and brings it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from tamis.access import Principal, Rights
from tamis.broker.deliver.subscriptions import ActiveSubscription, Arrival, Extra
from tamis.broker.match.matcher import Matcher
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import EventCache
from tamis.broker.roaming.correspondence import Correspondence
from tamis.broker.roaming.departures import Departures
from tamis.broker.roaming.move_messages import HomeAnswer, HomeQuestion
from tamis.broker.roaming.takeovers import Takeovers
from tamis.broker.sessions import SessionServices
from tamis.broker.subscribe.groups import group_stays
from tamis.broker.subscribe.making import (
    WAIT,
    expiry,
    made_twice,
    no_longer_valid,
    too_many,
    used_by_others,
)
from tamis.errors import DisconnectedError, RefusedError, TamisError
from tamis.filters import Filter
from tamis.ports import RandomBytes
from tamis.protocol import Code, Subscribe
from tamis.routing.inputs import RouterInput
from tamis.routing.messages import Letter
from tamis.storage import StoredSubscription

LOG: Final = get_logger("tamis.roaming")

SEARCH_SECONDS: Final = 5.0
MOVE_SECONDS: Final = 20.0
"""How long a client waits; the move goes on after that."""
MAX_ASKED: Final = 1_000
"""Brokers that are asked whether a subscription is at home there."""


class Roaming:
    """Brings the subscriptions of clients that have moved, and lets others go."""

    def __init__(
        self,
        services: SessionServices,
        *,
        matcher: Matcher,
        event_cache: EventCache,
        supervisor: Supervisor,
        put: Callable[[RouterInput], None],
        told_local: Callable[[], Awaitable[None]],
        random: RandomBytes,
    ) -> None:
        self._services = services
        self._store = services.store
        self._index = services.subscription_index
        self._manager = services.subscription_manager
        self._updater = matcher.updater
        self._supervisor = supervisor
        self._random = random
        self._changed = asyncio.Event()
        """Set when a move has come to an end."""
        departures = Departures(services, matcher, event_cache, self._changed.set)
        self._here = services.store.state.broker_id
        self._correspondence = Correspondence(self._here, put, supervisor, departures.answer)
        self._takeovers = Takeovers(
            services, matcher, event_cache, self._correspondence, told_local
        )

    def take(self, peer: str, letter: Letter) -> None:
        """Take a letter that a peer has passed on."""
        self._correspondence.take(peer, letter)

    def start(self) -> None:
        """Go on with moves that an earlier run has begun."""
        for subscription in self._index:
            if subscription.arrival is not None:
                self._begin(subscription)

    # --- for sessions ----------------------------------------------------------------------------

    async def bring(self, wanted: Subscribe, principal: Principal, rights: Rights) -> None:
        """Return when the subscription is here, or nowhere; refuse if that takes too long."""
        try:
            async with asyncio.timeout(MOVE_SECONDS):
                await self._bring(wanted, principal, rights)
        except TimeoutError:
            raise RefusedError(
                Code.UNAVAILABLE,
                f"the subscription {wanted.durable!r} is not here yet; it is brought from its "
                "former home as soon as that can be reached: try again",
                retry_after=1.0,
            ) from None

    async def _bring(self, wanted: Subscribe, principal: Principal, rights: Rights) -> None:
        name = wanted.durable or ""
        while True:
            known = self._index.find(principal.name, name)
            if known is not None and not known.is_moving:
                return
            if known is None:
                home = await self._find_home(principal.name, name)
                if home is None:
                    return
                known = await self._receive(wanted, principal, rights, *home)
                self._begin(known)
            self._changed.clear()
            if known.is_moving and self._index.get(known.number) is known:
                await self._changed.wait()

    def _begin(self, arriving: ActiveSubscription) -> None:
        self._supervisor.start("move", self._follow(arriving))

    async def _follow(self, arriving: ActiveSubscription) -> None:
        await self._takeovers.bring(arriving, self._changed.set)

    # --- finding the home ------------------------------------------------------------------------

    async def _find_home(self, owner: str, name: str) -> tuple[str, HomeAnswer] | None:
        """Return the broker that has a subscription, and what it says of it; None: nobody has."""
        question = HomeQuestion(move="0" * 32, owner=owner, name=name)
        # Those behind a broker that has just started may not be known yet: it knows its own peers.
        seen, rest, silent = {self._here}, {*self._index.links}, set[str]()
        while rest:
            seen |= rest
            if len(seen) > MAX_ASKED:
                raise RefusedError(
                    Code.TOO_MANY, f"more than {MAX_ASKED:,} brokers are linked: nobody asks them"
                )
            answers = await asyncio.gather(*(self._ask_whether(one, question) for one in rest))
            rest = set()
            for broker, answer in answers:
                if answer is None:
                    silent.add(broker)
                elif answer.found:
                    return broker, answer
                elif answer.is_moving:
                    raise RefusedError(
                        Code.UNAVAILABLE,
                        f"the subscription {name!r} is on its way to another broker; try again",
                        retry_after=1.0,
                    )
                else:
                    rest |= {*answer.peers} - seen
        if silent:
            raise RefusedError(
                Code.UNAVAILABLE,
                f"nobody knows whether {name!r} is at home elsewhere: "
                f"{', '.join(one[:8] for one in sorted(silent)[:5])} cannot be asked now, or "
                "never, if a link on the way hides something from its peer; try again, or "
                "subscribe without roaming",
                retry_after=1.0,
            )
        return None

    async def _ask_whether(
        self, broker: str, question: HomeQuestion
    ) -> tuple[str, HomeAnswer | None]:
        try:
            answer = await self._correspondence.ask(broker, question, SEARCH_SECONDS)
        except (DisconnectedError, RefusedError):
            return broker, None
        return broker, answer if isinstance(answer, HomeAnswer) else None

    # --- the beginning of a move -----------------------------------------------------------------

    async def _receive(
        self,
        wanted: Subscribe,
        principal: Principal,
        rights: Rights,
        home: str,
        answer: HomeAnswer,
    ) -> ActiveSubscription:
        """Store a subscription that is to come here, and return it."""
        if answer.is_group:
            raise RefusedError(Code.CONFLICT, group_stays(wanted.durable or ""))
        manager = self._manager
        filter_, mode = manager.parse_allowed(wanted.filter, wanted.language, wanted.mode, rights)
        there, its_mode = manager.parse_stored(
            wanted.durable or "", answer.filter, answer.language, answer.mode, rights
        )
        if not wanted.resumes and (filter_, mode) != (there, its_mode):
            raise RefusedError(
                Code.CONFLICT,
                f"the subscription {wanted.durable!r} has another filter at its home, "
                f"{answer.filter!r:.200}; ask for that one, and update it then",
            )
        # Those of credentials that have used it at home, too: what they may see, and this one may
        # not, waits for them.
        roles = (*answer.roles, *sorted({*principal.roles} - {*answer.roles}))
        users = self._services.access_control.rights(Principal(principal.name, roles))
        try:
            users.effective(there, its_mode)
        except TamisError:
            raise used_by_others(wanted.durable or "") from None
        row = self._row(wanted, Principal(principal.name, roles), home, answer)
        made = await self._updater.do(partial(self._make, row, principal, rights, there))
        self._manager.watch(made)
        return made

    def _row(
        self, wanted: Subscribe, principal: Principal, home: str, answer: HomeAnswer
    ) -> StoredSubscription:
        now = self._services.clock()
        expires_at = expiry(now, wanted.lifetime)
        if wanted.lifetime is None and answer.expires_at is not None:
            expires_at = answer.expires_at
        arrival = Arrival(self._random(16).hex(), home, 0)
        return StoredSubscription(
            owner=principal.name,
            name=wanted.durable or "",
            filter=answer.filter,
            language=answer.language,
            mode=answer.mode,
            created_at=now,
            expires_at=expires_at,
            start=0,
            overflow=WAIT,
            durable=True,
            max_attempts=answer.max_attempts,
            extra=Extra(principal.roles, arrival=arrival, moves=answer.moves + 1).text(),
        )

    def _make(
        self, row: StoredSubscription, principal: Principal, rights: Rights, filter_: Filter
    ) -> ActiveSubscription:
        """Store a subscription between two batches; what comes from now on may be its own."""
        name, maker = row.name, self._manager.maker
        if not self._services.access_control.is_welcome(principal):
            raise no_longer_valid()
        if self._index.find(principal.name, name) is not None:
            raise made_twice(name)
        if self._index.count_of(principal.name) >= maker.quota(rights):
            raise too_many(principal.name, maker.quota(rights))
        start, extra = self._store.log.next_sequence, Extra.of(row)
        assert extra.arrival is not None  # noqa: S101 - as made above
        arrival = msgspec.structs.replace(extra.arrival, since=start)
        text = msgspec.structs.replace(extra, arrival=arrival).text()
        row = msgspec.structs.replace(row, start=start, extra=text)
        number = self._store.state.add_subscription(row)
        made = maker.build(msgspec.structs.replace(row, number=number), filter_, is_new=False)
        self._index.add(made)
        LOG.info("subscription comes", subscription=name, move=arrival.id, home=arrival.home)
        return made

"""The advertisements of a broker's clients: told to the router, and what it says told to them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, Protocol

from tamis.access import Rights
from tamis.broker.operations.settings import BrokerSettings
from tamis.errors import FilterError, LimitError, RefusedError
from tamis.filters import Filter
from tamis.protocol import Code
from tamis.protocol.advertising import WantedChange
from tamis.routing.inputs import LocalAdvertisementAdded, LocalAdvertisementRemoved, RouterInput

MAX_PER_PRINCIPAL: Final = 1_000
MAX_IN_ALL: Final = 5_000
"""Less than a peer takes of one link."""


class AdvertisingRouter(Protocol):
    """Whoever knows what is asked for, here and behind the links."""

    async def told_local(self) -> None:
        """Return when it knows all local subscriptions that are in force now."""

    async def handle(self, given: RouterInput) -> None:
        """Return when it has handled an input, and what it says is carried out."""

    def put(self, given: RouterInput) -> None:
        """Hand it an input, after those before it."""


class WantedSink(Protocol):
    """Where a publisher hears whether it is wanted; nobody waits for that."""

    def offer(self, frame: WantedChange) -> None:
        """Send a frame as soon as the client takes it, in place of an earlier one."""


class Advertiser(Protocol):
    """The session of a publisher."""

    @property
    def rights(self) -> Rights:
        """Return what it may do at the moment."""


class ClientAdvertisement:
    """What one client has advertised."""

    def __init__(self, id_: str, owner: str, client: Advertiser, sink: WantedSink) -> None:
        self.id: Final = id_
        self.owner: Final = owner
        self.client: Final = client
        self._sink: Final = sink
        self.is_wanted = False
        self._told: bool | None = None
        self._is_confirmed = False

    @property
    def wanted(self) -> bool | None:
        """Return what the client may know: whether anybody asks for any of it."""
        return self.is_wanted if self.client.rights.may_quench else None

    def confirm(self) -> bool | None:
        """Return what the client is told with the answer; changes are told from then on."""
        self._is_confirmed, self._told = True, self.wanted
        return self._told

    def tell(self) -> None:
        """Send the client the news, unless it has it."""
        if self._is_confirmed and self.wanted is not self._told:
            self._told = self.wanted
            self._sink.offer(WantedChange(advertisement=self.id, wanted=self._told))


class AdvertisingService:
    """The advertisements of all clients; all methods run on the event loop."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self.router: AdvertisingRouter | None = None
        """Set once by whoever has it."""
        self._all: dict[str, ClientAdvertisement] = {}
        self._count_of: Counter[str] = Counter()
        self._last = 0

    def __len__(self) -> int:
        return len(self._all)

    async def advertise(
        self, client: Advertiser, owner: str, sink: WantedSink, filter_: Filter
    ) -> ClientAdvertisement:
        """Advertise what a client will publish, as a filter of mode `sql`."""
        router = self._require_router()
        if self._count_of[owner] >= MAX_PER_PRINCIPAL:
            raise RefusedError(
                Code.TOO_MANY, f"{owner} has {MAX_PER_PRINCIPAL:,} advertisements, the limit"
            )
        if len(self._all) >= MAX_IN_ALL:
            raise RefusedError(
                Code.TOO_MANY, f"this broker has {MAX_IN_ALL:,} advertisements, the limit"
            )
        self._last += 1
        made = ClientAdvertisement(f"adv-{self._last}", owner, client, sink)
        self._all[made.id] = made
        self._count_of[owner] += 1
        try:
            # A subscription that is in force must count, or what it wants would be dropped.
            await router.told_local()
            await router.handle(LocalAdvertisementAdded(made.id, filter_))
        except BaseException as error:
            self._forget(made)
            # It may have been handled all the same.
            router.put(LocalAdvertisementRemoved(made.id))
            if isinstance(error, FilterError | LimitError):
                raise RefusedError(Code.BAD_FILTER, str(error)) from None
            raise
        return made

    async def withdraw(self, client: Advertiser, id_: str) -> None:
        """Withdraw an advertisement of a client."""
        known = self._all.get(id_)
        if known is None or known.client is not client:
            raise RefusedError(Code.NOT_FOUND, f"there is no advertisement {id_!r:.80}")
        self._forget(known)
        await self._require_router().handle(LocalAdvertisementRemoved(id_))

    def end_client(self, client: Advertiser) -> None:
        """Withdraw what a client has advertised, unless it is back soon and advertises it again."""
        gone = [one for one in self._all.values() if one.client is client]
        for one in gone:
            self._forget(one)
        if gone and self.router is not None:
            loop, seconds = asyncio.get_running_loop(), self._settings.advertisement_grace
            for one in gone:
                loop.call_later(seconds, self.router.put, LocalAdvertisementRemoved(one.id))

    async def settle(self) -> None:
        """Return when publishers have been told of all subscriptions that are in force."""
        if self._all and self.router is not None:
            await self.router.told_local()

    def note_wanted(self, id_: str, is_wanted: bool) -> None:
        """Note whether anybody asks for what was advertised under an id."""
        known = self._all.get(id_)
        if known is not None:
            known.is_wanted = is_wanted
            known.tell()

    def apply_policy(self) -> None:
        """Send clients whose rights have changed what they may know now."""
        for one in self._all.values():
            one.tell()

    def _forget(self, one: ClientAdvertisement) -> None:
        if self._all.pop(one.id, None) is not None:
            self._count_of[one.owner] -= 1
            if not self._count_of[one.owner]:
                del self._count_of[one.owner]

    def _require_router(self) -> AdvertisingRouter:
        if self.router is None:
            raise RefusedError(Code.UNAVAILABLE, "the broker is starting")
        return self.router

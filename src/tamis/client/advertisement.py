"""The client's end of an advertisement: what it will publish, and whether anybody wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from tamis.client import option_checks as checks
from tamis.client.messages import EncodedEvent
from tamis.errors import DisconnectedError, RefusedError, TamisError
from tamis.events import Event, decode_cloudevent, decode_json
from tamis.filters import Filter, Mode
from tamis.languages import parse
from tamis.protocol.advertising import Advertise, Advertised


class AdvertisementOptions(NamedTuple):
    """What is advertised, checked."""

    filter: Filter
    text: str
    language: str
    quench: bool
    on_wanted: Callable[[bool | None], object] | None

    @classmethod
    def of(
        cls,
        filter_: str | Filter,
        language: str,
        quench: bool,
        on_wanted: Callable[[bool | None], object] | None,
    ) -> AdvertisementOptions:
        """Return the options; refuse what cannot be used."""
        is_text = isinstance(filter_, str)
        chosen = checks.check_language(language) if is_text else "tamis"
        text = checks.check_filter(filter_)
        return cls(
            filter=parse(text, chosen),
            text=text,
            language=chosen,
            quench=checks.check_flag("quench", quench),
            on_wanted=checks.check_function("on_wanted", on_wanted),
        )


class AdvertisementRegistry(Protocol):
    """The part of a bus that an advertisement needs."""

    @property
    def timeout(self) -> float | None:
        """Return the seconds to wait for an answer."""

    def start(self, advertisement: Advertisement) -> None:
        """Advertise, now and after every reconnect."""

    async def withdraw(self, advertisement: Advertisement) -> None:
        """Withdraw it."""


class Advertisement:
    """What a client will publish; made by `Bus.advertise`.

    It is advertised from `await` or `async with` on, until it is closed or the bus is. After a lost
    connection it is advertised again.
    """

    def __init__(self, registry: AdvertisementRegistry, options: AdvertisementOptions) -> None:
        self._registry = registry
        self._options = options
        self.id = ""
        """The broker's id of it; another after each connection."""
        self._wanted: bool | None = None
        self._is_exact = False
        self._has_news = asyncio.Event()
        self._confirmed: asyncio.Future[None] | None = None
        self._is_closed = False
        self._error: TamisError | None = None
        self.quenched = 0
        """How many events were not sent because nobody wanted them."""

    @property
    def filter(self) -> str:
        """Return what is advertised."""
        return self._options.text

    @property
    def wanted(self) -> bool | None:
        """Return whether anybody asks for any of it; None: unknown."""
        return self._wanted

    @property
    def is_closed(self) -> bool:
        """Return whether it is no longer advertised."""
        return self._is_closed

    def __repr__(self) -> str:
        words = {None: "not known to be wanted", True: "wanted", False: "unwanted"}
        state = "closed" if self._is_closed else words[self._wanted]
        return f"<Advertisement {self.filter!r:.80}, {state}>"

    @property
    def was_confirmed(self) -> bool:
        """Return whether the broker has ever confirmed it."""
        known = self._confirmed
        return known is not None and known.done() and known.exception() is None

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Advertise; raise `RefusedError` if the broker refuses."""
        if self._confirmed is None:
            self._confirmed = asyncio.get_running_loop().create_future()
            self._registry.start(self)
        try:
            async with asyncio.timeout(self._registry.timeout):
                await asyncio.shield(self._confirmed)
        except TimeoutError:
            raise DisconnectedError(
                "the broker did not confirm what is advertised in time"
            ) from None
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def close(self) -> None:
        """Advertise it no longer."""
        if not self._is_closed:
            self.end(None)
            await self._registry.withdraw(self)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(self) -> None:
        """Advertise until it is closed; raise the error that ends it."""
        await self.start()
        while not self._is_closed:
            self._has_news.clear()
            await self._has_news.wait()
        if self._error is not None:
            raise self._error

    async def wait_until(self, *, wanted: bool) -> None:
        """Return when it is known to be wanted, or unwanted; raise the error that ends it."""
        await self.start()
        while self._wanted is not wanted:
            if self._is_closed:
                raise self._error or DisconnectedError("it is no longer advertised")
            self._has_news.clear()
            await self._has_news.wait()

    # --- events ----------------------------------------------------------------------------------

    @property
    def quenches(self) -> bool:
        """Return whether events of it need not be sent now."""
        return self._options.quench and self._wanted is False and self._is_exact

    def has(self, event: Event) -> bool:
        """Return whether an event belongs to it."""
        return self._options.filter.matches(event, Mode.SQL)

    # --- called by the bus -----------------------------------------------------------------------

    def request(self, ref: int) -> Advertise:
        """Return the frame that advertises, at every connection."""
        return Advertise(ref=ref, filter=self._options.text, language=self._options.language)

    def confirmed(self, reply: Advertised) -> None:
        """Handle the broker's answer."""
        self.id, self._is_exact = reply.advertisement, reply.exact
        self.changed(reply.wanted)
        if self._confirmed is not None and not self._confirmed.done():
            self._confirmed.set_result(None)

    def changed(self, wanted: bool | None) -> None:
        """Note whether it is wanted; None: nobody knows."""
        is_new, self._wanted = wanted is not self._wanted, wanted
        self._has_news.set()
        if is_new and self._options.on_wanted is not None:
            self._options.on_wanted(wanted)

    def disconnected(self) -> None:
        """Handle the loss of the connection: until the next one, everything may be wanted."""
        self.id = ""
        self.changed(None)

    def end(self, error: RefusedError | None) -> None:
        """Close it for good; raise the error, if any, to those who wait."""
        if self._is_closed:
            return
        self._is_closed, self._error = True, error
        if self._confirmed is not None and not self._confirmed.done():
            self._confirmed.set_exception(error or DisconnectedError("it is no longer advertised"))
            # Mark it as retrieved: there may be no waiter.
            self._confirmed.exception()
        self.changed(None)


def read_encoded(event: EncodedEvent) -> Event | None:
    """Return what an event says; None if that is not known here, or the broker will refuse it."""
    try:
        if event.format == "xml":
            # What it says is not known without parsing it: the broker does that.
            return None
        if event.format == "cloudevents":
            return decode_cloudevent(event.text).event()
        return decode_json(event.text)
    except TamisError:
        return None

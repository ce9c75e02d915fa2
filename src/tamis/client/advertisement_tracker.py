"""What a bus has advertised, and the frames about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tamis.client.advertisement import Advertisement, read_encoded
from tamis.client.messages import EncodedEvent
from tamis.errors import RefusedError
from tamis.protocol.advertising import (
    Advertised,
    AdvertisementWithdrawn,
    WantedChange,
    WithdrawAdvertisement,
)
from tamis.protocol.codes import RETRYABLE
from tamis.protocol.frames import AdvertisingReply, AdvertisingRequest


class AdvertisingSender(Protocol):
    """The part of a connection that sends requests of publishers."""

    def send_frame(self, frame: AdvertisingRequest) -> None:
        """Send a frame soon."""

    def next_ref(self) -> int:
        """Return a number for a request."""


class AdvertisementTracker:
    """Knows the advertisements of a bus, whichever connection it has."""

    def __init__(self, check: Callable[[], None], timeout: Callable[[], float | None]) -> None:
        self._check = check
        self._timeout = timeout
        self._sender: AdvertisingSender | None = None
        self._all: dict[Advertisement, None] = {}
        self._waiting: dict[int, Advertisement] = {}
        """Whom each request was about, until it is answered."""

    @property
    def timeout(self) -> float | None:
        """Return the seconds to wait for an answer."""
        return self._timeout()

    # --- for advertisements ----------------------------------------------------------------------

    def start(self, advertisement: Advertisement) -> None:
        """Advertise, now and after every reconnect."""
        self._check()
        self._all[advertisement] = None
        if self._sender is not None:
            self._request(self._sender, advertisement)

    async def withdraw(self, advertisement: Advertisement) -> None:
        """Withdraw an advertisement; without a connection, the broker does that by itself."""
        self._all.pop(advertisement, None)
        sender, id_ = self._sender, advertisement.id
        if sender is not None and id_:
            sender.send_frame(WithdrawAdvertisement(ref=sender.next_ref(), advertisement=id_))

    # --- for publications ------------------------------------------------------------------------

    def drops(self, event: EncodedEvent) -> bool:
        """Return whether an event need not be sent, because nobody wants it, and count it then."""
        if not self._all:
            return False
        quenching = [one for one in self._all if one.quenches]
        if not quenching:
            return False
        read = read_encoded(event)
        found = None if read is None else next((one for one in quenching if one.has(read)), None)
        if found is None:
            return False
        found.quenched += 1
        return True

    # --- for connections -------------------------------------------------------------------------

    def connected(self, sender: AdvertisingSender) -> None:
        """Advertise everything on a new connection."""
        self._sender = sender
        for advertisement in self._all:
            self._request(sender, advertisement)

    def disconnected(self) -> None:
        """Note that the connection is lost."""
        self._sender = None
        self._waiting.clear()
        for advertisement in [*self._all]:
            advertisement.disconnected()

    def fail(self, error: RefusedError) -> None:
        """End everything: the bus is closed, or lost for good."""
        self.disconnected()
        for advertisement in [*self._all]:
            advertisement.end(error)
        self._all.clear()

    def knows(self, ref: int) -> bool:
        """Return whether a request was about an advertisement."""
        return ref in self._waiting

    def refused(self, ref: int, error: RefusedError) -> None:
        """End an advertisement that the broker refuses."""
        advertisement = self._waiting.pop(ref)
        if advertisement.was_confirmed and error.code in RETRYABLE:
            # It was there before the connection was lost: reconnect and try again.
            raise error
        self._all.pop(advertisement, None)
        advertisement.end(error)

    def handle(self, reply: AdvertisingReply) -> None:
        """Hand a reply to the advertisement that it is about."""
        match reply:
            case Advertised(ref=ref, advertisement=id_):
                advertisement = self._waiting.pop(ref, None)
                if advertisement is None or advertisement.is_closed:
                    # It was closed before the broker had answered.
                    if (sender := self._sender) is not None:
                        ref = sender.next_ref()
                        sender.send_frame(WithdrawAdvertisement(ref=ref, advertisement=id_))
                    return
                advertisement.confirmed(reply)
            case WantedChange(advertisement=id_, wanted=wanted):
                for one in self._all:
                    if one.id == id_:
                        one.changed(wanted)
            case AdvertisementWithdrawn():
                pass

    def _request(self, sender: AdvertisingSender, advertisement: Advertisement) -> None:
        ref = sender.next_ref()
        self._waiting[ref] = advertisement
        sender.send_frame(advertisement.request(ref))

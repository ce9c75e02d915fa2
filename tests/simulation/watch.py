"""Watches a connection at the broker's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.credentials import Credential
from simulation.model import PublicationModel, SubscriptionModel
from tamis.broker.frontend.connection_ends import INTERNAL_ERROR
from tamis.protocol import (
    Acknowledge,
    Credit,
    Deliver,
    Dropped,
    Ended,
    Publish,
    Published,
    Refused,
    Reject,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    Welcome,
)
from tamis.protocol.frames import decode_reply, decode_request

if TYPE_CHECKING:
    from simulation.checker import Checker


class ConnectionWatch:
    """Tells the checker what one connection receives and sends."""

    def __init__(self, checker: Checker, credential: Credential) -> None:
        self._checker = checker
        self.credential = credential
        self._publications: dict[int, PublicationModel] = {}
        self._asked: dict[int, tuple[Subscribe, float]] = {}
        self._deleting: dict[int, tuple[tuple[str, str], SubscriptionModel | None]] = {}
        self._attached: dict[str, SubscriptionModel] = {}
        self._is_manual: dict[str, bool] = {}
        self._credit: dict[str, int] = {}
        self._acknowledged: Acknowledge | None = None
        """The acknowledgement that was received last."""
        self._who = f"{credential}@{checker.world.next_number()}"

    def received(self, text: bytes) -> None:
        """Look at a frame that the broker gets."""
        checker, key = self._checker, self._key
        checker.world.trace(self._who, "asks", text.decode())
        match decode_request(text):
            case Publish() as frame:
                first = checker.event_in(frame.events[0])
                self._publications[frame.ref] = checker.publications[first]
            case Subscribe() as frame:
                checker.asking(self.credential, frame)
                self._asked[frame.ref] = frame, checker.now
            case Unsubscribe() as frame:
                if frame.delete:
                    meant = key(frame.subscription)
                    self._deleting[frame.ref] = meant, checker.subscriptions.get(meant)
                    checker.ending(meant)
            case Acknowledge() as frame:
                self._acknowledged = frame
                checker.acknowledging(
                    self.credential, frame.subscription, frame.sequences, frame.up_to, holder=self
                )
            case Reject() as frame:
                checker.rejecting(key(frame.subscription), frame.sequence)
            case Credit() as frame:
                self._credit[frame.subscription] += frame.events

    def sending(self, text: bytes) -> None:  # noqa: PLR0912 - a case for each frame
        """Look at a frame that the broker hands to the connection."""
        checker = self._checker
        checker.world.trace(self._who, "gets", text.decode())
        match decode_reply(text):
            case Published() as frame:
                checker.published(self._publications[frame.ref], frame.duplicates, frame.first)
            case Welcome():
                checker.check_credential(self.credential, "a welcome is sent")
            case Subscribed() as frame:
                self._subscribed(frame)
            case Unsubscribed() as frame:
                if frame.ref in self._deleting:
                    checker.is_gone(*self._deleting.pop(frame.ref))
                self._attached.pop(frame.subscription, None)
            case Deliver() as frame:
                self._deliver(frame)
            case Dropped() as frame:
                subscription = self._attached.get(frame.subscription)
                if subscription is None:
                    checker.fail(f"a loss is told for {frame.subscription}, not subscribed here")
                elif frame.reason == "retention":
                    subscription.told_lost += frame.count
                else:
                    subscription.told_slow += frame.count
            case Ended() as frame:
                ended = self._attached.pop(frame.subscription, None)
                if ended is not None:
                    checker.told_end(ended, frame.reason)
            case Refused() as frame:
                self._refused(frame)

    def sent(self, text: bytes) -> None:
        """Look at a frame that the connection has taken."""
        frame = decode_reply(text) if text.startswith(b'{"type":"deliver"') else None
        if not isinstance(frame, Deliver):
            return
        subscription = self._attached.get(frame.subscription)
        if subscription is None:
            return
        self._checker.handed(subscription, frame.events)
        if not self._is_manual[frame.subscription]:
            for event in frame.events:
                subscription.settle(event.sequence, self._checker.now)

    def closing(self, code: int) -> None:
        """Look at the end of the connection."""
        if code == INTERNAL_ERROR and self._acknowledged is not None:
            # Perhaps this was what could not be done, because the disk could not be read.
            frame = self._acknowledged
            self._checker.doubt(self._key(frame.subscription), frame.sequences, frame.up_to)

    def _key(self, name: str) -> tuple[str, str]:
        return self.credential.principal, name

    def _subscribed(self, frame: Subscribed) -> None:
        wanted, asked_at = self._asked.pop(frame.ref)
        name = frame.subscription
        subscription = self._checker.subscribed(
            self.credential, wanted, asked_at, name, frame.start, resumed=frame.resumed
        )
        self._attached[name] = subscription
        self._is_manual[name] = wanted.acknowledge == "manual"
        self._credit[name] = wanted.credit

    def _deliver(self, frame: Deliver) -> None:
        subscription = self._attached.get(frame.subscription)
        if subscription is None:
            self._checker.fail(f"{frame.subscription} delivers where it is not subscribed")
            return
        self._credit[frame.subscription] -= len(frame.events)
        if self._credit[frame.subscription] < 0:
            self._checker.fail(f"{subscription} delivers more events than it has credit for")
        self._checker.deliver(subscription, self.credential, frame.events, self)

    def _refused(self, frame: Refused) -> None:
        if frame.ref is None:
            self._checker.disconnected(self.credential, frame)
        elif frame.ref in self._asked:
            wanted, _ = self._asked.pop(frame.ref)
            self._checker.subscription_refused(self.credential, wanted, frame)
        elif frame.ref in self._publications:
            self._checker.publication_refused(self._publications.pop(frame.ref), frame)
        elif frame.ref in self._deleting:
            meant, asked = self._deleting.pop(frame.ref)
            if frame.code == "not_found":
                self._checker.not_found(meant, asked)

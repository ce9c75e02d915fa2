"""Letters: they follow the filters before them, and wait for events where they are to drain."""

from __future__ import annotations

import msgspec

from tamis.covering import CoveringIndex
from tamis.filters import attr
from tamis.routing import (
    Greeting,
    Holdings,
    Letter,
    LinkOpened,
    LocalFilterAdded,
    MessageReceived,
    Router,
)
from tamis.routing.inputs import LetterGiven, LinkClosed, LinkDrained
from tamis.routing.instructions import AwaitDrained, SendMessage, TakeLetter
from tamis.routing.messages import BrokerEntry, FilterChanges

BODY = msgspec.Raw(b"{}")


def linked_router() -> Router:
    """Return a router with two peers, left and right; behind right there is another, far."""
    router = Router("here", make_index=CoveringIndex)
    for peer, behind in (("left", ()), ("right", (BrokerEntry("far", "right", 1, "Far"),))):
        router.handle(LinkOpened(peer))
        router.handle(MessageReceived(peer, Greeting(peer, 1, behind)))
        router.handle(MessageReceived(peer, Holdings()))
    return router


def letter(target: str, *, drains: bool = False, ref: int = 1) -> Letter:
    return Letter("left", target, ref, BODY, drains=drains)


def test_a_letter_is_passed_on_towards_its_target() -> None:
    router = linked_router()
    assert router.handle(MessageReceived("left", letter("far"))) == [
        SendMessage("right", letter("far"))
    ]
    assert router.handle(MessageReceived("left", letter("here"))) == [
        TakeLetter("left", letter("here"))
    ]


def test_a_letter_is_dropped_where_it_cannot_go_on() -> None:
    router = linked_router()
    # To nobody known, back to where it came from, and over a link that is down.
    assert router.handle(MessageReceived("left", letter("nobody"))) == []
    assert router.handle(MessageReceived("left", letter("left"))) == []
    router.handle(LinkClosed("right"))
    assert router.handle(MessageReceived("left", letter("far"))) == []


def test_a_letter_follows_the_filters_before_it() -> None:
    router = linked_router()
    added = router.handle(LocalFilterAdded("a", attr("price") < 5))
    given = router.handle(LetterGiven(letter("far")))
    sent = [one.message for one in [*added, *given] if isinstance(one, SendMessage)]
    to_right = [type(one) for one in sent if isinstance(one, FilterChanges | Letter)]
    assert to_right == [FilterChanges, FilterChanges, Letter]


def test_a_letter_that_drains_waits_for_the_events_before_it() -> None:
    router = linked_router()
    wanted = letter("far", drains=True)
    [waiting] = router.handle(MessageReceived("left", wanted))
    assert isinstance(waiting, AwaitDrained)
    # Written again, it need not wait anew.
    assert router.handle(MessageReceived("left", wanted)) == []
    assert router.handle(LinkDrained("right", waiting.ticket - 1)) == []
    assert router.handle(LinkDrained("right", waiting.ticket)) == [SendMessage("right", wanted)]
    assert router.handle(LinkDrained("right", waiting.ticket)) == []


def test_letters_that_wait_are_lost_with_the_connection() -> None:
    router = linked_router()
    [waiting] = router.handle(MessageReceived("left", letter("far", drains=True)))
    assert isinstance(waiting, AwaitDrained)
    router.handle(LinkClosed("right"))
    assert router.handle(LinkDrained("right", waiting.ticket)) == []

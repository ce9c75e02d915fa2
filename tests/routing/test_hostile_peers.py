"""Whatever a peer sends, the router takes it or refuses it by a sentence, and stays right."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from routing.pool import PoolIndex, the_pool
from seeds import seeds
from tamis.filters.structure import to_structure
from tamis.routing import (
    AdvertisementChanges,
    BrokerChanges,
    BrokerEntry,
    ChangeRoutes,
    FilterChanges,
    ForgetLink,
    Greeting,
    Holdings,
    Letter,
    LinkClosed,
    LinkDrained,
    LinkEnd,
    LinkMessage,
    LinkOpened,
    LocalFilterAdded,
    MessageReceived,
    RefuseLink,
    Router,
    RouterLimits,
    SendMessage,
)

PER_SEED = 60
LIMITS = RouterLimits(filters=6, advertisements=4, brokers=5)
NAMES = ("good", "bad", "us", "x", "y", "")
ODD_STRUCTURES: tuple[list[Any], ...] = ([], [1], [1, ["maybe"]], [2, ["true"]], [1, ["not"]])


def random_entries(rng: Random) -> tuple[BrokerEntry, ...]:
    if rng.random() < 0.3:
        # A cycle that is not there.
        through = BrokerEntry("good", "bad", rng.randint(0, 9))
        return through, BrokerEntry("us", "good", rng.randint(0, 9))
    return tuple(
        BrokerEntry(rng.choice(NAMES), rng.choice(NAMES), rng.randint(-1, 9))
        for _ in range(rng.randint(0, 4))
    )


def random_digests(rng: Random) -> tuple[str, ...]:
    return tuple(rng.choice((*the_pool().digests, "z")) for _ in range(rng.randint(0, 3)))


def random_structures(rng: Random) -> tuple[list[Any], ...]:
    if rng.random() < 0.05:
        return (rng.choice(ODD_STRUCTURES),)
    drawn = [the_pool().filters[the_pool().draw(rng)] for _ in range(rng.randint(0, 3))]
    return tuple(map(to_structure, drawn))


def random_message(rng: Random) -> LinkMessage:
    match rng.randrange(12):
        case 0 | 1:
            return Greeting("Bad", rng.randint(-1, 9), random_entries(rng))
        case 2 | 3:
            return Holdings(random_digests(rng), random_digests(rng), rng.random() < 0.7)
        case 4 | 5 | 6:
            return FilterChanges(random_structures(rng), random_digests(rng))
        case 7 | 8:
            return AdvertisementChanges(random_structures(rng), random_digests(rng))
        case 9 | 10:
            return BrokerChanges(random_entries(rng), random_digests(rng))
        case _:
            return LinkEnd("go away")


def check_world(rng: Random) -> int:
    """Let a peer send anything; return how often it was refused."""
    router = Router(
        "us",
        make_index=PoolIndex,
        advertisements=rng.choice(("ignore", "require")),
        limits=LIMITS,
    )
    pool = the_pool()
    own = pool.draw(rng)
    router.handle(LocalFilterAdded("own", pool.filters[own]))
    router.handle(LinkOpened("good"))
    router.handle(MessageReceived("good", Greeting("Good", 1)))
    held, routes, refused = set[str](), set[str](), 0
    done = router.handle(MessageReceived("good", Holdings()))
    for _ in range(PER_SEED):
        for one in done:
            if isinstance(one, SendMessage) and one.peer == "good":
                assert isinstance(one.message, FilterChanges | AdvertisementChanges | BrokerChanges)
                if isinstance(one.message, FilterChanges):
                    held |= {name for name in pool.digests if is_among(name, one.message.add)}
                    held -= {*one.message.remove}
            if isinstance(one, ChangeRoutes) and one.peer == "bad":
                routes = (routes | one.add.keys()) - {*one.remove}
            if isinstance(one, ForgetLink):
                # An invented cycle may cost the one who invents it its link, but nobody else.
                assert one.peer == "bad"
                routes = set()
            if isinstance(one, RefuseLink):
                assert one.reason
                refused += 1
        assert held == {*router.forwarded("good")}
        known = {view.peer: view for view in router.links()}
        assert known["good"].is_synchronised
        assert routes == ({*router.routes("bad")} if "bad" in known else set())
        assert len(routes) <= LIMITS.filters
        roll = rng.random()
        if "bad" not in known or not known["bad"].is_open or roll < 0.03:
            done = router.handle(LinkOpened("bad"))
        elif roll < 0.06:
            done = router.handle(LinkClosed("bad"))
        elif roll < 0.1:
            done = router.handle(LinkDrained("bad", rng.randint(0, 5)))
        else:
            done = router.handle(MessageReceived("bad", random_message(rng)))
    return refused


def is_among(name: str, structures: tuple[list[Any], ...]) -> bool:
    return to_structure(the_pool().filters[name]) in structures


@pytest.mark.parametrize("seed", seeds(100, by_default=1))
def test_a_peer_that_sends_anything_harms_nobody_else(seed: int) -> None:
    rng = Random(seed)
    assert sum(check_world(rng) for _ in range(20)) > 20


def greeted(us: str, *peers: tuple[str, int]) -> Router:
    """Return a router with links of given generations."""
    router = Router(us, make_index=PoolIndex, limits=LIMITS)
    for peer, generation in peers:
        router.handle(LinkOpened(peer))
        router.handle(MessageReceived(peer, Greeting(peer, generation)))
        router.handle(MessageReceived(peer, Holdings()))
    return router


def test_a_cycle_that_a_broker_far_away_claims_ends_no_link() -> None:
    router = greeted("us", ("near", 1), ("hub", 9))
    claim = BrokerChanges(
        (
            BrokerEntry("bad", "hub", 3),
            BrokerEntry("near", "bad", 0),
            BrokerEntry("us", "near", 0),
        )
    )
    done = router.handle(MessageReceived("hub", claim))
    assert not any(isinstance(one, ForgetLink) for one in done)
    # If there is such a cycle, the peer at its other end is told of it, too.
    around = (
        BrokerEntry("bad", "near", 0),
        BrokerEntry("hub", "bad", 3),
        BrokerEntry("us", "hub", 9),
    )
    done = router.handle(MessageReceived("near", BrokerChanges(around)))
    assert [one.peer for one in done if isinstance(one, ForgetLink)] == ["hub"]


def test_a_broker_stays_behind_the_link_that_told_of_it_first() -> None:
    router = greeted("us", ("good", 1), ("bad", 2))
    far = BrokerEntry("far", "good", 1)
    router.handle(MessageReceived("good", BrokerChanges((far,))))
    claims = (BrokerEntry("good", "bad", 0), BrokerEntry("far", "bad", 0))
    router.handle(MessageReceived("bad", BrokerChanges(claims)))
    expected = {"good": "good", "bad": "bad", "far": "good"}
    assert router.link_of() == expected
    router.handle(LinkClosed("good"))
    assert router.link_of() == expected
    router.handle(LinkOpened("good"))
    router.handle(MessageReceived("good", Greeting("good", 1, (far,))))
    assert router.link_of() == expected


def test_a_stored_peer_speaks_for_itself_before_it_is_back() -> None:
    router = Router("us", make_index=PoolIndex, limits=LIMITS)
    router.restore("good", (), ())
    router.handle(LinkOpened("bad"))
    router.handle(MessageReceived("bad", Greeting("bad", 1, (BrokerEntry("good", "bad", 0),))))
    assert router.link_of()["good"] == "good"


def test_a_letter_goes_to_the_broker_itself_and_not_to_one_that_claims_it() -> None:
    router = greeted("us", ("good", 1), ("bad", 2), ("sender", 3))
    claims = (BrokerEntry("good", "bad", 0),)
    router.handle(MessageReceived("bad", BrokerChanges(claims)))
    done = router.handle(MessageReceived("sender", Letter("sender", "good", 1, msgspec.Raw(b"{}"))))
    assert [one.peer for one in done if isinstance(one, SendMessage)] == ["good"]

"""The router, step by step: what it tells its peers, and what it refuses."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from tamis import Schema, attr, parse
from tamis.covering import CoveringIndex
from tamis.filters import Filter
from tamis.filters.structure import digest, to_structure
from tamis.routing import (
    AdvertisementChanges,
    AwaitDrained,
    BrokerChanges,
    BrokerEntry,
    ChangeAdvertisements,
    ChangeRoutes,
    FilterChanges,
    ForgetLink,
    Greeting,
    Holdings,
    Instruction,
    Letter,
    LinkClosed,
    LinkDrained,
    LinkEnd,
    LinkMessage,
    LinkOpened,
    LinkRemoved,
    LocalAdvertisementAdded,
    LocalAdvertisementRemoved,
    LocalFilterAdded,
    LocalFilterRemoved,
    MessageReceived,
    RefuseLink,
    Router,
    RouterLimits,
    RouterMessage,
    SendMessage,
    WantedChanged,
)
from tamis.routing import messages as link_messages
from tamis.routing.router import AdvertisementPolicy

WIDE, NARROW, OTHER = parse("x < 10"), parse("x < 5"), parse("y = 1")


def a_router(
    advertisements: AdvertisementPolicy = "ignore", limits: RouterLimits | None = None
) -> Router:
    return Router(
        "us",
        name="Us",
        make_index=partial(CoveringIndex, many=True),
        advertisements=advertisements,
        limits=limits,
    )


def connect(router: Router, peer: str, holdings: Holdings | None = None) -> list[Instruction]:
    """Connect a peer that has nobody behind it; return what the router does about it."""
    done = router.handle(LinkOpened(peer))
    done += router.handle(MessageReceived(peer, Greeting(peer.title(), 1)))
    return done + router.handle(MessageReceived(peer, holdings or Holdings()))


def sent(instructions: list[Instruction], peer: str) -> list[LinkMessage]:
    return [i.message for i in instructions if isinstance(i, SendMessage) and i.peer == peer]


def added(*filters: Filter) -> tuple[list[Any], ...]:
    return tuple(map(to_structure, filters))


def names(*filters: Filter) -> tuple[str, ...]:
    return tuple(map(digest, filters))


def test_a_link_begins_with_a_greeting_and_what_is_held() -> None:
    router = a_router()
    router.restore("them", [WIDE], [OTHER])
    assert sent(router.handle(LinkOpened("them")), "them") == [
        Greeting("Us", 0),
        Holdings(names(WIDE), names(OTHER)),
    ]


def test_nothing_is_sent_before_the_peer_has_said_what_it_holds() -> None:
    router = a_router()
    router.handle(LinkOpened("them"))
    router.handle(MessageReceived("them", Greeting("Them", 1)))
    assert not router.handle(LocalFilterAdded("a", WIDE))
    assert sent(router.handle(MessageReceived("them", Holdings())), "them") == [
        FilterChanges(added(WIDE))
    ]


def test_a_link_that_connects_again_gets_the_difference() -> None:
    router = a_router()
    for id_, filter_ in (("a", WIDE), ("b", OTHER)):
        router.handle(LocalFilterAdded(id_, filter_))
    done = connect(router, "them", Holdings(names(OTHER, NARROW)))
    assert sent(done, "them")[2:] == [FilterChanges(added(WIDE), names(NARROW))]


def test_a_covered_filter_is_not_forwarded_until_what_covers_it_goes() -> None:
    router = a_router()
    connect(router, "them")
    done = router.handle(LocalFilterAdded("wide", WIDE))
    assert sent(done, "them") == [FilterChanges(added(WIDE))]
    assert not router.handle(LocalFilterAdded("narrow", NARROW))
    assert sent(router.handle(LocalFilterRemoved("wide")), "them") == [
        FilterChanges(added(NARROW), names(WIDE))
    ]


def test_a_filter_is_not_sent_back_to_where_it_came_from() -> None:
    router = a_router()
    connect(router, "left")
    connect(router, "right")
    done = router.handle(MessageReceived("left", FilterChanges(added(WIDE))))
    assert done[0] == ChangeRoutes("left", {digest(WIDE): WIDE}, ())
    assert not sent(done, "left")
    assert sent(done, "right") == [FilterChanges(added(WIDE))]
    # Now somebody else asks for it, too.
    done = router.handle(MessageReceived("right", FilterChanges(added(WIDE))))
    assert sent(done, "left") == [FilterChanges(added(WIDE))]
    done = router.handle(MessageReceived("left", FilterChanges((), names(WIDE))))
    assert sent(done, "right") == [FilterChanges((), names(WIDE))]


def test_equal_filters_of_several_clients_are_one() -> None:
    router = a_router()
    connect(router, "them")
    router.handle(LocalFilterAdded("a", WIDE))
    assert not router.handle(LocalFilterAdded("b", WIDE))
    assert not router.handle(LocalFilterRemoved("a"))
    assert sent(router.handle(LocalFilterRemoved("b")), "them") == [FilterChanges((), names(WIDE))]


def test_a_filter_is_replaced_in_one_change() -> None:
    router = a_router()
    connect(router, "them")
    router.handle(LocalFilterAdded("a", WIDE))
    done = router.handle(LocalFilterAdded("a", OTHER))
    assert sent(done, "them") == [FilterChanges(added(OTHER), names(WIDE))]
    assert not router.handle(LocalFilterAdded("a", OTHER))


def test_messages_may_repeat() -> None:
    router = a_router()
    connect(router, "them")
    change = FilterChanges(added(WIDE), names(OTHER))
    assert router.handle(MessageReceived("them", change))
    assert not router.handle(MessageReceived("them", change))
    assert not router.handle(LocalFilterRemoved("nobody"))
    assert not router.handle(LocalAdvertisementRemoved("nobody"))
    assert not router.handle(LinkClosed("nobody"))
    assert not router.handle(LinkRemoved("nobody"))
    assert not router.handle(LinkDrained("nobody", 1))


def test_routes_stay_while_the_peer_is_away() -> None:
    router = a_router()
    connect(router, "them")
    router.handle(MessageReceived("them", FilterChanges(added(WIDE))))
    assert not router.handle(LinkClosed("them"))
    assert [*router.routes("them")] == [*names(WIDE)]
    assert not router.handle(MessageReceived("them", FilterChanges((), names(WIDE))))
    assert [*router.routes("them")] == [*names(WIDE)]


def test_a_link_that_is_removed_leaves_nothing() -> None:
    router = a_router()
    connect(router, "them")
    connect(router, "others")
    router.handle(MessageReceived("them", FilterChanges(added(WIDE))))
    done = router.handle(LinkRemoved("them"))
    assert done[:2] == [
        SendMessage("them", LinkEnd("Us has removed its link")),
        ForgetLink("them", "Us has removed its link"),
    ]
    assert sent(done, "others") == [BrokerChanges((), ("them",)), FilterChanges((), names(WIDE))]
    assert [view.peer for view in router.links()] == ["others"]


def test_a_peer_can_end_its_link() -> None:
    router = a_router()
    connect(router, "them")
    assert router.handle(MessageReceived("them", LinkEnd("gone"))) == [ForgetLink("them", "gone")]
    assert not router.links()


# --- advertisements --------------------------------------------------------------------------


def test_a_filter_goes_only_to_where_it_is_advertised() -> None:
    router = a_router("require")
    connect(router, "them")
    assert not router.handle(LocalFilterAdded("a", NARROW))
    done = router.handle(MessageReceived("them", AdvertisementChanges(added(OTHER))))
    assert done[0] == ChangeAdvertisements("them", {digest(OTHER): OTHER}, ())
    # An event may have both attributes.
    assert sent(done, "them") == [FilterChanges(added(NARROW))]
    done = router.handle(
        MessageReceived("them", AdvertisementChanges(added(parse("x > 7")), names(OTHER)))
    )
    # Not if the attribute may have several values, as here: 1 and 8.
    assert not sent(done, "them")
    gone = names(parse("x > 7"))
    done = router.handle(MessageReceived("them", AdvertisementChanges((), gone)))
    assert sent(done, "them") == [FilterChanges((), names(NARROW))]
    [view] = router.links()
    assert (view.forwarded, view.covered, view.stopped) == (0, 0, 1)


def test_an_advertisement_is_withdrawn_after_its_events() -> None:
    router = a_router()
    connect(router, "them")
    done = router.handle(LocalAdvertisementAdded("a", WIDE))
    assert sent(done, "them") == [AdvertisementChanges(added(WIDE))]
    assert router.handle(LocalAdvertisementRemoved("a")) == [AwaitDrained("them", 1)]
    assert sent(router.handle(LinkDrained("them", 1)), "them") == [
        AdvertisementChanges((), names(WIDE))
    ]
    assert not router.handle(LinkDrained("them", 1))


def test_an_advertisement_that_comes_again_is_not_withdrawn() -> None:
    router = a_router()
    connect(router, "them")
    router.handle(LocalAdvertisementAdded("a", WIDE))
    router.handle(LocalAdvertisementRemoved("a"))
    assert not sent(router.handle(LocalAdvertisementAdded("b", WIDE)), "them")
    assert not router.handle(LinkDrained("them", 1))


def test_a_new_connection_waits_again_before_it_withdraws() -> None:
    router = a_router()
    done = connect(router, "them", Holdings((), names(WIDE)))
    assert done[-1] == AwaitDrained("them", 1)
    router.handle(LinkClosed("them"))
    assert not router.handle(LinkDrained("them", 1))
    assert connect(router, "them", Holdings((), names(WIDE)))[-1] == AwaitDrained("them", 2)
    assert not router.handle(LinkDrained("them", 1))
    assert router.handle(LinkDrained("them", 2))


def test_publishers_are_told_whether_anybody_wants_their_events() -> None:
    router = a_router()
    connect(router, "them")
    assert WantedChanged("a", True) not in router.handle(LocalAdvertisementAdded("a", WIDE))
    done = router.handle(MessageReceived("them", FilterChanges(added(NARROW))))
    assert done[-1] == WantedChanged("a", True)
    assert router.is_wanted("a")
    assert router.handle(LocalAdvertisementAdded("b", WIDE)) == [WantedChanged("b", True)]
    done = router.handle(MessageReceived("them", FilterChanges((), names(NARROW))))
    assert done[-2:] == [WantedChanged("a", False), WantedChanged("b", False)]
    assert not router.is_wanted("nobody")


# --- parts -----------------------------------------------------------------------------------


def test_much_goes_in_parts_and_removals_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.routing.links.MAX_CHANGE_BYTES", 30)
    monkeypatch.setattr("tamis.routing.links.MAX_DIGESTS", 2)
    router = a_router()
    filters = [attr("x") == number for number in range(5)]
    for number, filter_ in enumerate(filters):
        router.handle(LocalFilterAdded(str(number), filter_))
    held = [f"{number:032x}" for number in range(3)]
    router.restore("them", [parse(f"y = {n}") for n in range(3)], [OTHER])
    done = router.handle(LinkOpened("them"))
    parts = [one for one in sent(done, "them") if isinstance(one, Holdings)]
    assert [(len(p.filters), len(p.advertisements), p.is_last) for p in parts] == [
        (2, 1, False),
        (1, 0, True),
    ]
    router.handle(MessageReceived("them", Greeting("Them", 1)))
    assert not router.handle(MessageReceived("them", Holdings(tuple(held[:2]), is_last=False)))
    done = router.handle(MessageReceived("them", Holdings(tuple(held[2:]))))
    changes = [one for one in sent(done, "them") if isinstance(one, FilterChanges)]
    assert [one for change in changes for one in change.add] == [*added(*filters)]
    assert len(changes) > 3
    first = next(number for number, change in enumerate(changes) if change.remove)
    assert all(not change.add for change in changes[first + 1 :])
    assert [name for change in changes for name in change.remove] == held


def test_messages_are_data() -> None:
    every = [
        Greeting("Us", 3, (BrokerEntry("a", "b", 1, "A"),)),
        Holdings(("d",), (), is_last=False),
        FilterChanges(added(WIDE), ("d",)),
        AdvertisementChanges(added(WIDE), ("d",)),
        BrokerChanges((BrokerEntry("a", "b", 1),), ("c",)),
        # A text that is a number in both codecs.
        Letter("a", "b", 1, msgspec.Raw(b"1"), drains=True),
        LinkEnd("why"),
    ]
    for codec in (msgspec.json, msgspec.msgpack):
        for one in every:
            assert codec.decode(codec.encode(one), type=RouterMessage) == one
    assert {type(one) for one in every} == set(LinkMessage.__subclasses__())
    assert link_messages.MAX_DIGESTS > 0


# --- what is refused -------------------------------------------------------------------------

GREETED = [Greeting("Them", 1)]
REFUSED: list[tuple[list[LinkMessage], str]] = [
    ([*GREETED, *GREETED], "a connection has one greeting"),
    ([*GREETED, Holdings(), Holdings()], "what a peer holds is said once in a connection"),
    (
        [*GREETED, FilterChanges(([1, ["maybe"]],))],
        "node 1 of the filter, ['maybe']: 'maybe' is not a word that begins a node",
    ),
    (
        [*GREETED, AdvertisementChanges(([3],))],
        (
            "the structure of a filter has version 3, but this Tamis knows only versions 1 and 2: "
            "update the older of the two"
        ),
    ),
    (
        [*GREETED, FilterChanges(added(WIDE, NARROW)), FilterChanges(added(OTHER))],
        "filters of one peer: 3 exceeds the limit of 2",
    ),
    (
        [*GREETED, AdvertisementChanges(added(WIDE, OTHER))],
        "advertisements of one peer: 2 exceeds the limit of 1",
    ),
    ([*GREETED, Holdings(("a", "b", "c"))], "filters of one peer: 3 exceeds the limit of 2"),
    ([Greeting("Them", -1)], "the generation -1 is none of a link"),
    ([Greeting("x" * 201, 1)], "characters in a name: 201 exceeds the limit of 200"),
    (
        [Greeting("Them", 1, tuple(BrokerEntry(f"b{n}", "them", 1) for n in range(4)))],
        "brokers behind one link: 4 exceeds the limit of 3",
    ),
    (
        [*GREETED, BrokerChanges((BrokerEntry("", "them", 1),))],
        "BrokerEntry(id='', parent='them', generation=1, name='') is not a broker behind a link",
    ),
    ([*GREETED, LinkMessage()], "LinkMessage is not a message of a router"),
]
FEW = RouterLimits(filters=2, advertisements=1, brokers=3)


@pytest.mark.parametrize(("messages", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_what_makes_no_sense_is_refused(messages: list[LinkMessage], sentence: str) -> None:
    router = a_router(limits=FEW)
    router.handle(LinkOpened("them", "Them"))
    for message in messages[:-1]:
        done = router.handle(MessageReceived("them", message))
        assert not any(isinstance(one, RefuseLink) for one in done)
    before = router.routes("them")
    assert router.handle(MessageReceived("them", messages[-1]))[0] == RefuseLink(
        "them", f"Them sent what this broker cannot use: {sentence}"
    )
    # The link is closed, and what it had is still there.
    assert not router.links()[0].is_open
    assert router.routes("them") == before
    assert not router.handle(MessageReceived("them", FilterChanges(added(OTHER))))


def test_what_comes_before_the_greeting_is_left_over() -> None:
    router = a_router()
    router.handle(LinkOpened("them"))
    for message in (FilterChanges(added(WIDE)), Holdings(), BrokerChanges((), ("b",))):
        assert not router.handle(MessageReceived("them", message))
    assert not router.routes("them")
    router.handle(MessageReceived("them", Greeting("Them", 1)))
    assert router.handle(MessageReceived("them", FilterChanges(added(WIDE))))


def test_a_link_that_would_close_a_cycle_is_refused_by_its_path() -> None:
    router = a_router()
    behind = (BrokerEntry("b", "a", 1, "Bee"), BrokerEntry("c", "b", 2, "Sea"))
    router.handle(LinkOpened("a"))
    router.handle(MessageReceived("a", Greeting("Ay", 1, behind)))
    assert router.path_to("c") == ["Us", "Ay", "Bee", "Sea"]
    reason = (
        "a link from Us to Sea would close a cycle: Us – Ay – Bee – Sea are linked already; "
        "remove one of these links first"
    )
    assert router.handle(LinkOpened("c")) == [
        SendMessage("c", LinkEnd(reason)),
        RefuseLink("c", reason),
    ]
    refused = RefuseLink("us", "Us cannot have a link to itself")
    assert router.handle(LinkOpened("us"))[-1] == refused
    router.handle(MessageReceived("a", BrokerChanges((), ("c",))))
    assert router.path_to("c") is None
    assert router.handle(LinkOpened("c"))


def test_of_links_made_at_the_same_time_the_youngest_goes() -> None:
    router = a_router()
    for peer in ("a", "c"):
        router.handle(LinkOpened(peer))
        router.handle(MessageReceived(peer, Greeting(peer, 1)))
    # Meanwhile a and c have linked, and both tell of it.
    for peer, other in (("a", "c"), ("c", "a")):
        news = BrokerChanges((BrokerEntry(other, peer, 1), BrokerEntry("us", other, 1)))
        done = router.handle(MessageReceived(peer, news))
    reason = "the link closes a cycle, Us – c – a – Us, and is the youngest of its links"
    assert done[:2] == [SendMessage("c", LinkEnd(reason)), ForgetLink("c", reason)]
    assert [view.peer for view in router.links()] == ["a"]


def test_a_cycle_whose_youngest_link_is_elsewhere_is_for_others_to_break() -> None:
    router = a_router()
    for peer in ("a", "c"):
        router.handle(LinkOpened(peer))
        router.handle(MessageReceived(peer, Greeting(peer, 1)))
    news = BrokerChanges((BrokerEntry("c", "a", 7), BrokerEntry("us", "c", 2)))
    assert not any(isinstance(one, ForgetLink) for one in router.handle(MessageReceived("a", news)))


@pytest.mark.parametrize("message", [FilterChanges, AdvertisementChanges])
def test_of_changes_with_a_filter_that_cannot_be_used_nothing_is_kept(
    message: type[FilterChanges | AdvertisementChanges],
) -> None:
    schema = Schema({"x": int})
    router = Router(
        "us", make_index=partial(CoveringIndex, schema=schema), advertisements="require"
    )
    router.handle(LinkOpened("them"))
    router.handle(MessageReceived("them", Greeting("Them", 1)))
    router.handle(MessageReceived("them", Holdings()))
    both = message((to_structure(WIDE), to_structure(parse("x = 'text'"))))
    done = router.handle(MessageReceived("them", both))
    assert [type(one) for one in done] == [RefuseLink]
    # What it held of them would be sent no more, and no event would go there.
    assert not router.routes("them")
    assert not router.advertisements("them")

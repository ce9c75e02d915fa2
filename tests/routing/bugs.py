"""Bugs to plant: each is a small change that the simulation of the overlay must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import msgspec

from routing.broker import ModelBroker, Wire
from routing.pool import PoolForest
from routing.roaming import ModelArrival, Moves
from tamis.covering import RootChange
from tamis.filters import Filter, Id
from tamis.routing import AdvertisementChanges, FilterChanges, Letter
from tamis.routing import router as routing
from tamis.routing.links import Link
from tamis.routing.overlay import OverlayMap
from tamis.routing.router import Router

BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {}
"""Context managers that plant a bug, by a phrase that says what it does."""


def bug(phrase: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Add a bug to the list."""

    def add(planting: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        BUGS[phrase] = contextmanager(planting)
        return planting

    return add


@bug("filters are not forwarded again when what covered them goes")
def uncovered() -> Iterator[None]:
    original = PoolForest.remove

    def remove(forest: PoolForest, id_: Id) -> RootChange:
        return original(forest, id_)._replace(became=())

    with mock.patch.object(PoolForest, "remove", remove):
        yield


@bug("the numbers of events are reset when a link connects again")
def reset_numbers() -> Iterator[None]:
    original = ModelBroker.opened

    def opened(broker: ModelBroker, peer: str, wire: Wire) -> None:
        broker.highest.clear()
        original(broker, peer, wire)

    with mock.patch.object(ModelBroker, "opened", opened):
        yield


@bug("advertisements are withdrawn before their events have passed")
def early_withdrawal() -> Iterator[None]:
    def advertise(router: Router, link: Link, add: Iterable[str], remove: Iterable[str]) -> None:
        structures = routing._structures(router._advertisements, add)
        message = AdvertisementChanges(tuple(structures), tuple(remove))
        router._send_unless_empty(link.peer, message)

    with mock.patch.object(Router, "_advertise", advertise):
        yield


@bug("a filter is removed before those that take its place are added")
def gap() -> Iterator[None]:
    def forward(router: Router, peer: str, add: Iterable[str], remove: Iterable[str]) -> None:
        structures = tuple(routing._structures(router._filters, add))
        router._send_unless_empty(peer, FilterChanges((), tuple(remove)))
        router._send_unless_empty(peer, FilterChanges(structures))

    with mock.patch.object(Router, "_forward", forward):
        yield


@bug("what a peer has too much is not withdrawn when it connects again")
def leftovers() -> Iterator[None]:
    original = Router._synchronise

    def synchronise(router: Router, link: Link) -> None:
        link.held_filters &= {*router._filters.forwarded(link.peer)}
        original(router, link)

    with mock.patch.object(Router, "_synchronise", synchronise):
        yield


@bug("what a peer lacks is not sent when it connects again")
def gaps() -> Iterator[None]:
    original = Router._synchronise

    def synchronise(router: Router, link: Link) -> None:
        link.held_filters |= {*router._filters.forwarded(link.peer)}
        original(router, link)

    with mock.patch.object(Router, "_synchronise", synchronise):
        yield


@bug("the advertisements of peers are lost in a crash")
def lost_advertisements() -> Iterator[None]:
    original = Router.restore

    def restore(router: Router, peer: str, routes: Iterable[Filter], _: Iterable[Filter]) -> None:
        original(router, peer, routes, ())

    with mock.patch.object(Router, "restore", restore):
        yield


@bug("an advertisement that comes again is withdrawn all the same")
def stale_withdrawal() -> Iterator[None]:
    original = Router._advertise

    def advertise(router: Router, link: Link, add: Iterable[str], remove: Iterable[str]) -> None:
        waiting = dict(link.withdrawals)
        original(router, link, add, remove)
        link.withdrawals.update(waiting)

    with mock.patch.object(Router, "_advertise", advertise):
        yield


@bug("routes are dropped while their peer is away")
def dropped_routes() -> Iterator[None]:
    original = Router._close

    def close(router: Router, peer: str) -> None:
        if peer in router._links:
            router._change_routes(peer, {}, [*router._filters.received(peer)])
        original(router, peer)

    with mock.patch.object(Router, "_close", close):
        yield


@bug("brokers that have gone stay on the map")
def stale_map() -> Iterator[None]:
    original = OverlayMap.change

    def change(overlay: OverlayMap, peer: str, add: Any, remove: Iterable[str]) -> None:  # noqa: ARG001
        original(overlay, peer, add, ())

    with mock.patch.object(OverlayMap, "change", change):
        yield


@bug("letters do not wait for the events before them")
def hasty_letters() -> Iterator[None]:
    original = Router._pass_on

    def pass_on(router: Router, letter: Letter, sender: str) -> None:
        original(router, msgspec.structs.replace(letter, drains=False), sender)

    with mock.patch.object(Router, "_pass_on", pass_on):
        yield


@bug("what came at the former home is taken again from the new one's log")
def forgotten_line() -> Iterator[None]:
    original = Moves._settle_in

    def settle_in(moves: Moves, arrival: ModelArrival, _: dict[str, int]) -> None:
        original(moves, arrival, {})

    with mock.patch.object(Moves, "_settle_in", settle_in):
        yield

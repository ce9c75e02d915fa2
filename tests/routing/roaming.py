"""Roaming in a world: a durable subscription moves to another broker, by letters of the routers.

A model of what `broker/roaming` does, without what waits for a client: here clients take everything
at once. What it needs of the routers is that a letter follows the filters and events before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tamis.routing import LocalFilterAdded, LocalFilterRemoved
from tamis.routing.inputs import LetterGiven
from tamis.routing.messages import Letter

if TYPE_CHECKING:
    from routing.broker import ModelBroker, Subscription
    from routing.world import World

RESEND_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 0.2


class ModelArrival:
    """A subscription that comes to a broker."""

    def __init__(self, subscription: Subscription, home: str, move: int, since: int) -> None:
        self.subscription: Final = subscription
        self.home: Final = home
        self.move: Final = move
        self.since: Final = since
        """The first event here that may be its own."""
        self.is_over = False
        """Whether only its former home does not know yet."""


class ModelDeparture(NamedTuple):
    """A subscription that has gone, and the line behind what it got here, by origin."""

    subscription: Subscription
    move: int
    cut: dict[str, int]


class Moves:
    """The moves of subscriptions to and from a broker; all of it is on disk."""

    def __init__(self, world: World, broker: ModelBroker) -> None:
        self._world = world
        self._broker = broker
        self.arriving: dict[str, ModelArrival] = {}
        self.departed: dict[str, ModelDeparture] = {}
        self._fencing: set[int] = set()

    # --- the new home ------------------------------------------------------------------------

    def begin(self, subscription: Subscription, home: str, move: int) -> None:
        """Bring a subscription here."""
        broker, id_ = self._broker, subscription.id
        self.arriving[id_] = ModelArrival(subscription, home, move, len(broker.log))
        broker.moving[id_] = subscription.filter
        broker.handle(LocalFilterAdded(id_, broker.pool.filters[subscription.filter]))
        self._write(id_, move, RESEND_SECONDS)

    def _write(self, id_: str, move: int, pause: float) -> None:
        """Ask the former home, again and again, for what is to happen next."""
        arrival = self.arriving.get(id_)
        if arrival is None or arrival.move != move:
            return
        if self._broker.is_up:
            kind = "farewell" if arrival.is_over else "fence"
            moves = arrival.subscription.moves
            self._send(arrival.home, move, [kind, id_, moves], drains=kind == "fence")
        # Slow links would carry nothing else if there were ever more letters.
        self._world.later(lambda: self._write(id_, move, pause * 2), pause)

    def _send(self, target: str, move: int, body: list[Any], **more: bool) -> None:
        raw = msgspec.Raw(msgspec.json.encode(body))
        self._broker.handle(LetterGiven(Letter(self._broker.id, target, move, raw, **more)))

    def _settle_in(self, arrival: ModelArrival, cut: dict[str, int]) -> None:
        """Add what came here by itself and lies behind the line, and match from then on."""
        broker, one = self._broker, arrival.subscription
        for stored in broker.log[arrival.since :]:
            is_behind = stored.sequence > cut.get(stored.origin, 0)
            if is_behind and stored.publication.event in broker.pool.matched[one.filter]:
                one.got.append(stored.publication)
        one.cut, one.start = cut, len(broker.log)
        one.moves += 1
        arrival.is_over = True
        del broker.moving[one.id], self._world.travelling[one.id]
        broker.subscriptions[one.id] = one
        self._send(arrival.home, arrival.move, ["farewell", one.id, 0])

    # --- letters -----------------------------------------------------------------------------

    def take(self, letter: Letter) -> None:
        """Take a letter for this broker."""
        kind, id_, value = msgspec.json.decode(letter.body)
        arrival = self.arriving.get(id_)
        is_mine = arrival is not None and arrival.move == letter.ref
        if kind == "fence" and letter.ref not in self._fencing:
            self._fencing.add(letter.ref)
            self._fence(letter, id_, value, len(self._broker.log))
        elif kind == "farewell":
            self._forget(id_, letter.ref)
            self._send(letter.source, letter.ref, ["gone", id_, 0], is_answer=True)
        elif kind == "fenced" and arrival is not None and is_mine and not arrival.is_over:
            self._settle_in(arrival, value)
        elif kind == "gone" and arrival is not None and is_mine and arrival.is_over:
            del self.arriving[id_]
            arrival.subscription.is_moving = False

    # --- the former home ---------------------------------------------------------------------

    def _fence(self, letter: Letter, id_: str, moves: int, position: int) -> None:
        """Deliver nothing more once all events up to a position are matched, and say so."""
        broker = self._broker
        if not broker.is_up:
            self._fencing.discard(letter.ref)
            return
        if broker.matched < position:
            self._world.later(lambda: self._fence(letter, id_, moves, position), LOOK_SECONDS)
            return
        self._fencing.discard(letter.ref)
        one = broker.subscriptions.get(id_)
        if id_ not in self.departed and one is not None and one.moves == moves:
            self._depart(one, letter.ref)
        departure = self.departed.get(id_)
        if departure is not None and departure.move == letter.ref:
            self._send(letter.source, letter.ref, ["fenced", id_, departure.cut], is_answer=True)

    def _depart(self, one: Subscription, move: int) -> None:
        broker, cut = self._broker, dict(one.cut)
        for stored in broker.log[: broker.matched]:
            cut[stored.origin] = max(cut.get(stored.origin, 0), stored.sequence)
        self.departed[one.id] = ModelDeparture(one, move, cut)
        self._world.travelling[one.id] = broker.subscriptions.pop(one.id)
        broker.moving[one.id] = one.filter

    def _forget(self, id_: str, move: int) -> None:
        departure = self.departed.get(id_)
        if departure is not None and departure.move == move:
            del self.departed[id_], self._broker.moving[id_]
            self._broker.handle(LocalFilterRemoved(id_))

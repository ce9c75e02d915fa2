"""A world made from a seed: a tree of brokers, their clients, and what goes wrong between them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from routing.broker import Frame, HangUp, ModelBroker, Publication, Subscription
from routing.pool import PoolIndex, the_pool
from routing.roaming import Moves
from tamis.covering import CoveringOrder
from tamis.routing import AdvertisementPolicy

MOST_STEPS: Final = 400_000


class Cable:
    """A connection between two brokers: frames in order, until it breaks."""

    def __init__(self, world: World, one: str, other: str) -> None:
        self._world = world
        self.is_whole = True
        self.ends: Final = {name: CableEnd(self) for name in (one, other)}
        self._lanes: dict[str, deque[Frame]] = {one: deque(), other: deque()}
        self._noticed: set[str] = set()
        self._delay: Final = world.slowness * world.rng.choice((0.1, 0.3, 1.0))

    def put(self, receiver: str, frame: Frame) -> None:
        """Put a frame on its way."""
        if self.is_whole:
            self._world.messages += 1
            lane = self._lanes[receiver]
            lane.append(frame)
            if len(lane) == 1 and receiver in self._noticed:
                self._deliver_later(receiver)

    @property
    def is_noticed(self) -> bool:
        """Return whether one of the brokers knew of it."""
        return bool(self._noticed)

    def notice(self, receiver: str) -> None:
        """Deliver what has arrived, now that the receiver knows of the connection."""
        self._noticed.add(receiver)
        if self._lanes[receiver]:
            self._deliver_later(receiver)

    def _deliver_later(self, receiver: str) -> None:
        delay = self._world.rng.random() * self._delay
        self._world.later(lambda: self._deliver(receiver), delay)

    def _deliver(self, receiver: str) -> None:
        lane = self._lanes[receiver]
        if not self.is_whole or not lane:
            return
        broker, [sender] = self._world.brokers[receiver], self.ends.keys() - {receiver}
        frame = lane.popleft()
        end = broker.links.get(sender)
        if isinstance(frame, HangUp):
            self._hang_up()
        if broker.is_up and end is not None and end.wire is self.ends[receiver]:
            broker.receive(sender, frame)
        if lane:
            self._deliver_later(receiver)

    def _hang_up(self) -> None:
        edge = frozenset(self.ends)
        if self._world.edges.get(edge) is self:
            self._world.cut(edge)
        self.is_whole = False

    def other(self, end: CableEnd) -> str:
        return next(name for name, one in self.ends.items() if one is not end)


class CableEnd:
    """What one of the two brokers holds of a connection."""

    def __init__(self, cable: Cable) -> None:
        self.cable: Final = cable

    def send(self, frame: Frame) -> None:
        """Send a frame to the other end."""
        self.cable.put(self.cable.other(self), frame)


class World:
    """Brokers, links and clients; everything that happens follows from the seed."""

    def __init__(self, seed: int, make_index: Callable[[], CoveringOrder] = PoolIndex) -> None:
        self.rng: Final = Random(seed)
        self.pool: Final = the_pool()
        self._make_index = make_index
        self.violations: list[str] = []
        self.messages = 0
        self.brokers: Final[dict[str, ModelBroker]] = {}
        self.moves: Final[dict[str, Moves]] = {}
        """To and from each broker."""
        self.travelling: Final[dict[str, Subscription]] = {}
        """Subscriptions that have left their former home, and have not arrived."""
        self.edges: Final[dict[frozenset[str], Cable | None]] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._now = 0.0
        self._scheduled = 0
        self._awake: set[Callable[[], bool]] = set()
        self.pace: Final[dict[str, float]] = {}
        """How long each broker takes to match an event, at most."""
        self._names = 0
        self._moves = 0
        self.published: dict[str, int] = {}
        """How many events each publisher has published."""
        self.retired: list[Subscription] = []
        """Subscriptions that have ended."""
        self.owed: list[tuple[Subscription, Publication]] = []
        """What must arrive, whatever happens."""
        self.needs_advertisements = False
        self.has_one_policy = True
        self.settled_advertisements: set[str] = set()
        self.slowness = self.rng.choice((0.1, 1.0, 1.0, 5.0))

    @property
    def now(self) -> float:
        """Return the time of the world, in seconds."""
        return self._now

    # --- time --------------------------------------------------------------------------------

    def later(self, action: Callable[[], None], delay: float | None = None) -> None:
        """Do something after a while."""
        if delay is None:
            delay = self.rng.random() * self.slowness
        self._scheduled += 1
        heapq.heappush(self._agenda, (self._now + delay, self._scheduled, action))

    def wake(self, broker: ModelBroker) -> None:
        """Let a broker work soon: carry out instructions, and match events, each at its pace."""
        for work in (broker.step, broker.match):
            if work not in self._awake:
                self._awake.add(work)
                pace = self.pace[broker.id] if work == broker.match else 0.3
                self.later(lambda work=work: self._work(broker, work), self.rng.random() * pace)  # type: ignore[misc]

    def _work(self, broker: ModelBroker, work: Callable[[], bool]) -> None:
        self._awake.discard(work)
        if broker.is_up and work():
            self.wake(broker)

    def run(self) -> None:
        """Let everything happen that is due, until nothing is."""
        for _ in range(MOST_STEPS):
            if not self._agenda:
                return
            self._now, _, action = heapq.heappop(self._agenda)
            action()
        self.violations.append("the overlay does not come to rest")

    # --- making ------------------------------------------------------------------------------

    def add_broker(self, advertisements: AdvertisementPolicy) -> str:
        """Add a broker without links."""
        name = f"b{len(self.brokers)}"
        self.pace[name] = self.rng.choice((0.1, 0.3, 0.3, 4.0))
        broker = ModelBroker(name, self._make_index, advertisements, self.wake)
        self.brokers[name], self.moves[name] = broker, Moves(self, broker)
        broker.take_letter = self.moves[name].take
        return name

    def connect(self, one: str, other: str) -> None:
        """Make a connection, which both brokers notice at some time."""
        cable = Cable(self, one, other)
        self.edges[frozenset((one, other))] = cable
        for name in self.rng.sample((one, other), 2):
            self.later(lambda name=name: self._notice(name, cable))  # type: ignore[misc]

    def _notice(self, name: str, cable: Cable) -> None:
        broker = self.brokers[name]
        if cable.is_whole and broker.is_up:
            broker.opened(cable.other(cable.ends[name]), cable.ends[name])
            cable.notice(name)
        elif cable.is_whole:
            self.cut(frozenset(cable.ends))

    # --- faults ------------------------------------------------------------------------------

    def cut(self, edge: frozenset[str]) -> None:
        """Break a connection; its brokers notice later, or not before the next one begins."""
        cable = self.edges.get(edge)
        if cable is None or not cable.is_whole:
            return
        cable.is_whole = False
        for name in sorted(edge):
            if self.rng.random() < 0.8:
                self.later(lambda name=name: self._notice_end(name, cable))  # type: ignore[misc]
        self.later(lambda: self._reconnect(edge), 2 + self.rng.random() * 5)

    def _notice_end(self, name: str, cable: Cable) -> None:
        broker, peer = self.brokers[name], cable.other(cable.ends[name])
        end = broker.links.get(peer)
        if broker.is_up and end is not None and end.wire is cable.ends[name]:
            broker.closed(peer)

    def _reconnect(self, edge: frozenset[str]) -> None:
        cable = self.edges.get(edge, None)
        if cable is None or cable.is_whole:
            return
        one, other = sorted(edge)
        is_known = other in self.brokers[one].links or one in self.brokers[other].links
        if cable.is_noticed and not is_known:
            return
        if all(self.brokers[name].is_up for name in edge):
            self.connect(*sorted(edge))
        else:
            self.later(lambda: self._reconnect(edge), 1.0)

    def crash(self, name: str) -> None:
        """Let a broker lose its memory, and come back."""
        broker = self.brokers[name]
        if not broker.is_up:
            return
        self.retired += [one for one in broker.subscriptions.values() if not one.is_durable]
        broker.crash()
        for edge in [*self.edges]:
            if name in edge:
                self.cut(edge)
        self.later(broker.restart, 1 + self.rng.random() * 4)

    # --- clients -----------------------------------------------------------------------------

    def new_name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def subscribe(self, broker: ModelBroker) -> None:
        digest = self.pool.draw(self.rng)
        is_durable = self.rng.random() < 0.7
        broker.subscribe(Subscription(self.new_name("s"), digest, is_durable=is_durable))

    def unsubscribe(self, broker: ModelBroker) -> None:
        staying = self._staying(broker)
        if staying:
            former = self.rng.choice(staying)
            self.retired.append(former)
            broker.unsubscribe(former.id)

    def roam(self, broker: ModelBroker) -> None:
        """Let a client go to another broker, with its subscription."""
        staying = [one for one in self._staying(broker) if one.is_durable]
        others = [one for one in self.brokers.values() if one is not broker and one.is_up]
        if staying and others:
            one, there = self.rng.choice(staying), self.rng.choice(others)
            one.is_moving = True
            self._moves += 1
            self.moves[there.id].begin(one, broker.id, self._moves)

    def _staying(self, broker: ModelBroker) -> list[Subscription]:
        return [one for one in broker.subscriptions.values() if not one.is_moving]

    def change_subscription(self, broker: ModelBroker) -> None:
        staying = self._staying(broker)
        if staying:
            former = self.rng.choice(staying)
            self.retired.append(former)
            changed = Subscription(
                former.id, self.pool.draw(self.rng), is_durable=former.is_durable
            )
            broker.subscribe(changed)

    def advertise(self, broker: ModelBroker) -> None:
        broker.advertise(self.new_name("a"), self.pool.draw(self.rng))

    def withdraw(self, broker: ModelBroker) -> None:
        if broker.offered:
            broker.withdraw(self.rng.choice([*broker.offered]))

    def publish(self, broker: ModelBroker) -> Publication:
        """Publish an event at random, more likely one that was advertised."""
        publisher = f"p-{broker.id}"
        number = self.published[publisher] = self.published.get(publisher, 0) + 1
        event = self.rng.randrange(len(self.pool.events))
        if broker.offered and self.rng.random() < 0.7:
            offered = self.pool.matched[self.rng.choice([*broker.offered.values()])]
            event = self.rng.choice(sorted(offered))
        publication = Publication(number, publisher, event)
        if self.is_announced(broker, event):
            for one in self.subscriptions():
                if one.is_settled and event in self.pool.matched[one.filter]:
                    self.owed.append((one, publication))
        broker.publish(publication)
        return publication

    def publish_and_go(self, broker: ModelBroker) -> None:
        """Publish what was advertised, and withdraw it at once."""
        settled = [id_ for id_ in broker.offered if id_ in self.settled_advertisements]
        if settled:
            id_ = self.rng.choice(settled)
            for _ in range(self.rng.randint(1, 3)):
                self.publish(broker)
            broker.withdraw(id_)

    def is_announced(self, broker: ModelBroker, event: int) -> bool:
        """Return whether an event reaches all who ask for it: it is advertised where it must be."""
        return not self.needs_advertisements or any(
            event in self.pool.matched[digest]
            for id_, digest in broker.offered.items()
            if id_ in self.settled_advertisements
        )

    def settle(self) -> None:
        """Note that all clients are known everywhere."""
        for one in self.subscriptions():
            one.is_settled = True
        offered = (broker.offered for broker in self.brokers.values())
        self.settled_advertisements = {id_ for ids in offered for id_ in ids}

    def subscriptions(self) -> Iterator[Subscription]:
        for broker in self.brokers.values():
            yield from broker.subscriptions.values()
        yield from self.travelling.values()

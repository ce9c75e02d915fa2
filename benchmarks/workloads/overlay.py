"""Overlays of brokers with subscriptions such as `symbol = "s7" and price < 40`.

Of these it is known which covers which, so that a thousand routers can be simulated in one process:
the indexes here look up what the product's would find out.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

import msgspec

from tamis.covering import RootChange
from tamis.filters import Filter, Id, attr
from tamis.filters.structure import digest, to_structure

PRICES: Final = 100
SHAPES: Final = ("star", "line", "random tree")


class Interest(NamedTuple):
    """What a subscription asks for: events of a symbol, below a price."""

    symbol: int
    below: int

    def filter(self) -> Filter:
        """Return it as a filter."""
        return (attr("symbol") == f"s{self.symbol}") & (attr("price") < self.below)


class Trade(NamedTuple):
    """An event, and where it is published."""

    symbol: int
    price: int
    broker: int


class OverlayWorkload:
    """A tree of brokers, the subscriptions at each, and events."""

    def __init__(
        self, shape: str, brokers: int, symbols: int, subscriptions: int, seed: int
    ) -> None:
        rng = Random(seed)
        self.edges: Final = [(_nearer(shape, one, rng), one) for one in range(1, brokers)]
        self.brokers: Final = brokers
        self.interests: Final = [
            [_interest(symbols, rng) for _ in range(subscriptions)] for _ in range(brokers)
        ]
        drawn = [_interest(symbols, rng) for _ in range(500)]
        self.trades: Final = [
            Trade(one.symbol, one.below - 1, rng.randrange(brokers)) for one in drawn
        ]

    @property
    def overlap(self) -> float:
        """Return the share of the subscriptions that another one covers."""
        every = [one for interests in self.interests for one in interests]
        widest: dict[int, int] = {}
        for one in every:
            widest[one.symbol] = max(one.below, widest.get(one.symbol, 0))
        return 1 - len(widest) / len(every)


def _nearer(shape: str, broker: int, rng: Random) -> int:
    return {"star": 0, "line": broker - 1, "random tree": rng.randrange(broker)}[shape]


def _interest(symbols: int, rng: Random) -> Interest:
    return Interest(rng.randrange(symbols), rng.randint(1, PRICES))


class Names:
    """The filters of interests, and the interests of digests."""

    def __init__(self, interests: Iterable[Interest]) -> None:
        self.filters: Final = {one: one.filter() for one in interests}
        self.interests: Final = {digest(one): each for each, one in self.filters.items()}
        self.read: Final = {
            msgspec.json.encode(to_structure(one)): (digest(one), one)
            for one in self.filters.values()
        }
        """Digests and filters by their structures."""


class LookupIndex:
    """A covering index for interests; with `covers=False`, one that finds nothing covered."""

    def __init__(self, names: Names, *, covers: bool) -> None:
        self._interests: Final = names.interests
        self._covers: Final = covers
        self._known: Final[dict[Id, Filter]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._known

    def ids(self) -> list[Id]:
        return [*self._known]

    def filter(self, id_: Id) -> Filter:
        return self._known[id_]

    def add(self, id_: Id, filter_: Filter) -> RootChange:
        self._known[id_] = filter_
        return RootChange()

    def add_many(self, filters: Iterable[tuple[Id, Filter]]) -> RootChange:
        self._known.update(filters)
        return RootChange()

    def remove(self, id_: Id) -> RootChange:
        del self._known[id_]
        return RootChange()

    def roots(self) -> list[Id]:
        raise NotImplementedError

    def parent(self, id_: Id) -> Id | None:
        raise NotImplementedError

    def covering(self, filter_: Filter) -> list[Id]:
        raise NotImplementedError

    def covered_by(self, filter_: Filter) -> list[Id]:
        raise NotImplementedError

    def intersecting(self, filter_: Filter) -> list[Id]:  # noqa: ARG002 - nothing is advertised
        return []

    def subset(self) -> LookupForest:
        return LookupForest(self._interests, covers=self._covers)


class LookupForest:
    """Interests by symbol; the one with the highest price is the root."""

    def __init__(self, interests: dict[str, Interest], *, covers: bool) -> None:
        self._interests: Final = interests
        self._covers: Final = covers
        self._below: Final[dict[object, dict[int, Id]]] = {}
        self._members: Final[dict[Id, None]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._members

    def add(self, id_: Id) -> RootChange:
        self._members[id_] = None
        group, below = self._group(id_)
        highest = max(group, default=0)
        group[below] = id_
        if below < highest:
            return RootChange()
        return RootChange((id_,), (group[highest],) if highest else ())

    def remove(self, id_: Id) -> RootChange:
        del self._members[id_]
        group, below = self._group(id_)
        del group[below]
        highest = max(group, default=0)
        if below < highest:
            return RootChange()
        return RootChange((group[highest],) if highest else (), (id_,))

    def roots(self) -> list[Id]:
        return [group[max(group)] for group in self._below.values() if group]

    def parent(self, id_: Id) -> Id | None:
        group, below = self._group(id_)
        return None if below == max(group) else group[max(group)]

    def _group(self, id_: Id) -> tuple[dict[int, Id], int]:
        interest = self._interests[str(id_)]
        key = interest.symbol if self._covers else id_
        return self._below.setdefault(key, {}), interest.below

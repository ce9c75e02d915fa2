"""What data there is, and behind which link: advertisements, covered as filters are.

A link is told only the advertisements that no other covers; a query that meets a covered one meets
the one that covers it, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from tamis.diagrams import Space
from tamis.filters import Filter
from tamis.filters.structure import digest

# A relation that needs more steps counts as unsure, which only sends more. Ordinary ones take a few
# hundred.
RELATION_STEPS: Final = 5_000
# Whoever asks what to send waits for it, and so does everybody else. More comparisons than this are
# left out, so that more is sent; most are known by then, from `compare`.
MAX_COMPARISONS_AT_ONCE: Final = 50
MAX_REMEMBERED: Final = 100_000
"""Relations between two filters."""


class DataAdvertisement(NamedTuple):
    """A filter that every row of some data matches."""

    filter: Filter
    many: bool
    """Whether attributes of a row may hold several values at once."""
    digest: str
    """A name for what is advertised, the same at every broker."""

    @classmethod
    def of(cls, filter_: Filter, *, many: bool = False) -> DataAdvertisement:
        """Return the advertisement of a filter."""
        return cls(filter_, many, f"{'many' if many else 'one'}:{digest(filter_)}")

    def covers(self, other: DataAdvertisement) -> bool:
        """Return whether a query that meets the other is sure to meet this one; unsure is no."""
        if other.many and not self.many:
            return False
        space = Space(many=self.many, budget=RELATION_STEPS)
        return bool(space.covers(self.filter, other.filter))

    def meets(self, query: Filter) -> bool:
        """Return whether some row may match both; unsure is yes."""
        space = Space(many=self.many, budget=RELATION_STEPS)
        return bool(space.intersects(self.filter, query))


class DataAdvertisements:
    """The advertisements of sources here, those received from peers, and those sent to them."""

    def __init__(self) -> None:
        self.attributes: Final[Counter[str]] = Counter()
        """How many advertisements mention each attribute."""
        self._local: dict[int, DataAdvertisement] = {}
        self._received: dict[str, dict[str, DataAdvertisement]] = {}
        self._forwarded: dict[str, set[str]] = {}
        """The digests that each connected peer has of ours."""
        self._without_hidden: dict[str, Callable[[Filter], Filter]] = {}
        """By peer that may not know everything: makes wider filters that say nothing hidden."""
        self._widened: dict[tuple[str, str], DataAdvertisement] = {}
        self._covering: dict[tuple[str, str], bool] = {}
        self._meeting: dict[tuple[str, Filter], bool] = {}
        self._comparisons_left = 0

    # --- changes ---------------------------------------------------------------------------------

    def put(self, source: int, advertisement: DataAdvertisement) -> None:
        """Advertise the data of a source, in place of what it advertised before."""
        self._count(self._local.get(source), advertisement)
        self._local[source] = advertisement

    def remove(self, source: int) -> None:
        """Withdraw the advertisement of a source."""
        self._count(self._local.pop(source, None), None)

    def receive(self, peer: str, advertisement: DataAdvertisement) -> None:
        """Note what a peer has advertised."""
        held = self._received.setdefault(peer, {})
        self._count(held.get(advertisement.digest), advertisement)
        held[advertisement.digest] = advertisement

    def withdraw(self, peer: str, digest_: str) -> None:
        """Note that a peer has withdrawn an advertisement."""
        held = self._received.get(peer, {})
        self._count(held.pop(digest_, None), None)
        if not held:
            self._received.pop(peer, None)

    def open(
        self,
        peer: str,
        held: Iterable[str],
        without_hidden: Callable[[Filter], Filter] | None = None,
    ) -> None:
        """Note what a connected peer has of ours, so that only the difference is sent.

        With `without_hidden`, it is told wider filters: those that this makes.
        """
        self._forwarded[peer] = {*held}
        if without_hidden is not None:
            self._without_hidden[peer] = without_hidden

    def close(self, peer: str) -> None:
        """Note that nothing can be sent to a peer."""
        self._forwarded.pop(peer, None)
        self._without_hidden.pop(peer, None)
        self._widened = {key: one for key, one in self._widened.items() if key[0] != peer}

    def forget(self, peer: str) -> None:
        """Forget a peer and all data behind it."""
        self.close(peer)
        for one in self._received.pop(peer, {}).values():
            self._count(one, None)

    def _count(self, former: DataAdvertisement | None, new: DataAdvertisement | None) -> None:
        for one, change in ((former, -1), (new, 1)):
            for name in () if one is None else one.filter.attributes():
                self.attributes[name] += change
                if not self.attributes[name]:
                    del self.attributes[name]

    # --- what to send ----------------------------------------------------------------------------

    @property
    def connected(self) -> list[str]:
        """Return the peers that have said what they hold."""
        return [*self._forwarded]

    def changes(self, peer: str) -> tuple[list[DataAdvertisement], list[str]]:
        """Return what to advertise to a peer and what to withdraw, and count it as sent."""
        before = self._forwarded[peer]
        after = self._maximal(self._wanted(peer), before)
        self._forwarded[peer] = {*after}
        added = [one for name, one in after.items() if name not in before]
        return added, sorted(before - after.keys())

    def _wanted(self, peer: str) -> dict[str, DataAdvertisement]:
        """Return all that a peer might be told: what does not come from it."""
        wanted = {one.digest: one for one in self._local.values()}
        for other, held in self._received.items():
            if other != peer:
                wanted.update(held)
        if peer in self._without_hidden:
            shown = (self._widen(peer, one) for one in wanted.values())
            return {one.digest: one for one in shown}
        return wanted

    def _widen(self, peer: str, one: DataAdvertisement) -> DataAdvertisement:
        """Return what a peer may know of an advertisement."""
        key = peer, one.digest
        if key not in self._widened:
            _make_room(self._widened)
            filter_ = self._without_hidden[peer](one.filter)
            self._widened[key] = DataAdvertisement.of(filter_, many=one.many)
        return self._widened[key]

    def _maximal(
        self, wanted: Mapping[str, DataAdvertisement], before: AbstractSet[str]
    ) -> dict[str, DataAdvertisement]:
        """Return advertisements that cover all, preferring those that were sent before."""
        kept = {name: one for name, one in wanted.items() if name in before}
        self._comparisons_left = MAX_COMPARISONS_AT_ONCE
        for name, one in wanted.items():
            if name not in kept and not any(self._surely_covers(k, one) for k in kept.values()):
                kept = {k: v for k, v in kept.items() if not self._surely_covers(one, v)}
                kept[name] = one
        return kept

    def _surely_covers(self, wide: DataAdvertisement, narrow: DataAdvertisement) -> bool:
        """Return whether one covers the other, if that is known or may still be compared."""
        found = self._covering.get((wide.digest, narrow.digest))
        if found is None and self._comparisons_left:
            self._comparisons_left -= 1
            found = self._covers(wide, narrow)
        return bool(found)

    def suppressed(self, peer: str) -> int:
        """Return how many advertisements a peer is not told because others cover them."""
        return len(self._wanted(peer)) - len(self._forwarded.get(peer, ()))

    # --- questions -------------------------------------------------------------------------------

    def sources_for(self, query: Filter) -> list[int]:
        """Return the sources here that a query may concern."""
        return [source for source, one in self._local.items() if self._meets(one, query)]

    def peers_for(self, query: Filter) -> list[str]:
        """Return the peers behind which there is data that a query may concern."""
        return [
            peer
            for peer, held in self._received.items()
            if any(self._meets(one, query) for one in held.values())
        ]

    def relate(self, query: Filter) -> Iterator[None]:
        """Find out in small steps, perhaps in another thread, what a query will ask for."""
        for one in self._all():
            self._meets(one, query)
            yield

    def compare(self, new: DataAdvertisement) -> Iterator[None]:
        """Find out in small steps, perhaps in another thread, what covers an advertisement."""
        for one in self._all():
            if one.digest != new.digest:
                self._covers(one, new)
                yield
                self._covers(new, one)
                yield

    def _all(self) -> list[DataAdvertisement]:
        # Each list is made at once, whatever other threads change.
        received = [one for held in [*self._received.values()] for one in [*held.values()]]
        return [*self._local.values(), *received]

    def received_from(self, peer: str) -> list[str]:
        """Return the digests of what a peer has advertised."""
        return [*self._received.get(peer, ())]

    @property
    def is_empty(self) -> bool:
        """Return whether there is no data anywhere."""
        return not self._local and not self._received and not any(self._forwarded.values())

    # --- relations, each computed once -----------------------------------------------------------

    def _covers(self, wide: DataAdvertisement, narrow: DataAdvertisement) -> bool:
        key = wide.digest, narrow.digest
        found = self._covering.get(key)
        if found is None:
            _make_room(self._covering)
            found = self._covering[key] = wide.covers(narrow)
        return found

    def _meets(self, advertisement: DataAdvertisement, query: Filter) -> bool:
        key = advertisement.digest, query
        found = self._meeting.get(key)
        if found is None:
            _make_room(self._meeting)
            found = self._meeting[key] = advertisement.meets(query)
        return found


def _make_room(remembered: dict[Any, Any]) -> None:
    if len(remembered) >= MAX_REMEMBERED:
        remembered.clear()

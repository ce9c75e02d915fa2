"""A link as a router keeps it, and as people see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from tamis.errors import LimitError, ProtocolError
from tamis.filters import FilterLimits
from tamis.filters.boolean import MAX_DEPTH
from tamis.filters.structure import Structure
from tamis.routing.messages import MAX_CHANGE_BYTES, MAX_DIGESTS, BrokerEntry, Greeting, Letter

# A filter of an overlay may be one that was joined with those of roles, and larger than a user's.
ROUTED_LIMITS: Final = FilterLimits(
    text=1024 * 1024, atoms=32 * 1024, depth=MAX_DEPTH, steps=32 * 1024
)
MAX_ID_CHARACTERS: Final = 200
"""Of a broker's id or name."""
MAX_GENERATION: Final = 2**53


class RouterLimits(NamedTuple):
    """Bounds on what a router takes from one peer."""

    filters: int = 100_000
    advertisements: int = 10_000
    brokers: int = 10_000
    filter: FilterLimits = ROUTED_LIMITS
    """On a single filter or advertisement."""


class LinkSummary(NamedTuple):
    """A link, for `tamis topology`: what goes over it and what does not."""

    peer: str
    name: str
    is_open: bool
    is_synchronised: bool
    """Each side has what it should have of the other, but for messages on the way."""
    brokers: tuple[BrokerEntry, ...]
    """Those behind the link, the peer first."""
    routes: int
    """Filters that the peer has forwarded to us."""
    forwarded: int
    """Filters that we have forwarded to it."""
    covered: int
    """Filters that we need not forward because others cover them."""
    stopped: int
    """Filters that we do not forward because nothing is advertised there that they ask for."""
    advertisements: int
    """Advertisements from there."""
    advertised: int
    """Advertisements that we have sent there."""


class Link:
    """What a router remembers of a link, beside its tables."""

    def __init__(self, peer: str, *, name: str = "", generation: int = 0) -> None:
        """Start closed; generation 0 is older than every link that is made now."""
        self.peer: Final = peer
        self.name = name
        self.generation = generation
        self.is_open = False
        self.is_greeted = False
        self.is_synchronised = False
        self.held_filters: set[str] = set()
        self.held_advertisements: set[str] = set()
        """What the peer says it holds of us; complete once it has sent the last part."""
        self.withdrawals: dict[str, int] = {}
        """Advertisements that the peer still has, and the ticket after which they go."""
        self.letters: dict[int, Letter] = {}
        """Letters that go after a ticket."""

    def open(self) -> None:
        """Begin a connection."""
        self.close()
        self.is_open = True

    def close(self) -> None:
        """Forget what belongs to one connection."""
        self.is_open = self.is_greeted = self.is_synchronised = False
        self.held_filters, self.held_advertisements = set(), set()
        self.withdrawals = {}
        self.letters = {}


def in_parts(digests: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield digests in as many parts as messages need; at least one, which may be empty."""
    whole = tuple(digests)
    yield whole[:MAX_DIGESTS]
    for start in range(MAX_DIGESTS, len(whole), MAX_DIGESTS):
        yield whole[start : start + MAX_DIGESTS]


def in_messages(structures: Iterable[Structure]) -> Iterator[tuple[Structure, ...]]:
    """Yield filters in as many parts as messages need; at least one, which may be empty."""
    part: list[Structure] = []
    size = 0
    for structure in structures:
        size += len(msgspec.json.encode(structure))
        if part and size > MAX_CHANGE_BYTES:
            yield tuple(part)
            part, size = [], len(msgspec.json.encode(structure))
        part.append(structure)
    yield tuple(part)


def check_greeting(greeting: Greeting, most: int) -> None:
    """Refuse a greeting that makes no sense, or announces too many brokers."""
    if not 0 <= greeting.generation <= MAX_GENERATION:
        raise ProtocolError(f"the generation {greeting.generation} is none of a link")
    if len(greeting.name) > MAX_ID_CHARACTERS:
        raise LimitError("characters in a name", actual=len(greeting.name), limit=MAX_ID_CHARACTERS)
    check_brokers(greeting.brokers, (), most)


def check_brokers(add: Iterable[BrokerEntry], known: Iterable[BrokerEntry], most: int) -> None:
    """Refuse brokers that make no sense, or are too many."""
    added = {entry.id: entry for entry in add}
    for entry in added.values():
        for text in (entry.id, entry.parent, entry.name):
            if len(text) > MAX_ID_CHARACTERS:
                what = "characters in the id or name of a broker"
                raise LimitError(what, actual=len(text), limit=MAX_ID_CHARACTERS)
        if not entry.id or not entry.parent or not 0 <= entry.generation <= MAX_GENERATION:
            raise ProtocolError(f"{entry} is not a broker behind a link")
    count = len(added.keys() | {entry.id for entry in known})
    if count > most:
        raise LimitError("brokers behind one link", actual=count, limit=most)

"""What a covering index is: filters under ids, questions about them, and their roots.

A filter *supersedes* another if it covers it and, where each covers the other, was added first. A
*root* is a filter that no other supersedes. Every other filter has a *parent* that supersedes it,
up to a root: an event that matches any of the filters matches a root.

All answers follow `Space`: a filter covers another only if that is proved, and intersects it unless
the contrary is proved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from tamis.errors import FilterError
from tamis.filters import Filter, Id


class RootChange(NamedTuple):
    """Which ids became roots, and which ceased to be; false if none did.

    >>> bool(RootChange()), bool(RootChange(became=("a",)))
    (False, True)
    """

    became: tuple[Id, ...] = ()
    ceased: tuple[Id, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.became or self.ceased)

    @classmethod
    def joined(cls, changes: Iterable[RootChange]) -> RootChange:
        """Return the effect of changes one after the other.

        >>> RootChange.joined([RootChange(("a",)), RootChange(("b",), ("a",))])
        RootChange(became=('b',), ceased=())
        """
        became: dict[Id, None] = {}
        ceased: dict[Id, None] = {}
        for change in changes:
            _cancel(change.ceased, became, ceased)
            _cancel(change.became, ceased, became)
        return cls(tuple(became), tuple(ceased))


def _cancel(ids: Iterable[Id], undone: dict[Id, None], done: dict[Id, None]) -> None:
    for id_ in ids:
        if id_ in undone:
            del undone[id_]
        else:
            done[id_] = None


class Forest(Protocol):
    """Some filters of an index, each a root or under a filter that supersedes it."""

    def __len__(self) -> int: ...

    def __contains__(self, id_: object) -> bool: ...

    def add(self, id_: Id) -> RootChange:
        """Add a filter of the index; return what changed among the roots."""

    def remove(self, id_: Id) -> RootChange:
        """Remove a filter; those that it alone superseded become roots."""

    def roots(self) -> list[Id]:
        """Return the roots, in the order in which they were added to the index."""

    def parent(self, id_: Id) -> Id | None:
        """Return a filter of the forest that supersedes this one; None for a root."""


class CoveringOrder(Protocol):
    """Filters under ids, in the order of covering, with the forest of all of them."""

    def __len__(self) -> int: ...

    def __contains__(self, id_: object) -> bool: ...

    def ids(self) -> list[Id]:
        """Return all ids, in order of adding."""

    def filter(self, id_: Id) -> Filter:
        """Return a filter, bound to the schema."""

    def add(self, id_: Id, filter_: Filter) -> RootChange:
        """Add a filter; return what changed among the roots."""

    def add_many(self, filters: Iterable[tuple[Id, Filter]]) -> RootChange:
        """Add filters; return what changed among the roots by all of them together."""

    def remove(self, id_: Id) -> RootChange:
        """Remove a filter; return what changed among the roots."""

    def roots(self) -> list[Id]:
        """Return the roots, in order of adding."""

    def parent(self, id_: Id) -> Id | None:
        """Return a filter that supersedes this one; None for a root."""

    def covering(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that cover this one, in order of adding."""

    def covered_by(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that this one covers, in order of adding."""

    def intersecting(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that may match an event that this one matches."""

    def subset(self) -> Forest:
        """Return a forest of some of the filters, at first of none."""


def known_already(id_: Id) -> FilterError:
    """Return the error for an id that is taken."""
    return FilterError(f"there is a filter {id_!r} already; remove it first")


def unknown_id(id_: object) -> FilterError:
    """Return the error for an id that is not there."""
    return FilterError(f"there is no filter {id_!r:.60}")


def require_id(id_: object) -> None:
    """Refuse what is no id."""
    if not isinstance(id_, str | int) or isinstance(id_, bool):
        raise FilterError(f"an id is a text or an integer, not {id_!r:.60}")


def still_held(id_: Id) -> FilterError:
    """Return the error for a filter that a subset still has."""
    return FilterError(f"the filter {id_!r} is still in a subset of the index; remove it there")

"""Which filters meet which advertisements: what may go to a link, and what publishers are told.

Where advertisements are required, a filter goes to a link only if it intersects one that came from
there. And a publisher is told whether any filter intersects what it advertised, which is quenching
as in Elvin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from tamis.routing.forwarding import LOCAL


class AdvertisementGate:
    """Filters and advertisements that intersect, for each source of advertisements."""

    def __init__(self, *, is_required: bool) -> None:
        """Start empty; unless advertisements are required, a link gets all filters."""
        self.is_required: Final = is_required
        # For each source: the advertisements that a filter meets, and the other way round.
        self._met: Final[dict[str, dict[str, set[str]]]] = defaultdict(dict)
        self._meeting: Final[dict[str, dict[str, set[str]]]] = defaultdict(dict)
        self._changed: set[str] = set()

    def admits(self, peer: str, filter_digest: str) -> bool:
        """Return whether a filter may go to a link."""
        return not self.is_required or filter_digest in self._met[peer]

    def is_wanted(self, advertisement: str) -> bool:
        """Return whether a filter meets an advertisement of this broker's own clients."""
        return bool(self._meeting[LOCAL].get(advertisement))

    def watches(self, source: str) -> bool:
        """Return whether it matters which filters the advertisements of a source meet."""
        return self.is_required or source == LOCAL

    def meet(self, source: str, advertisement: str, filter_digests: Iterable[str]) -> list[str]:
        """Note that an advertisement meets filters; return those that met none before."""
        met = self._met[source]
        filters = self._meeting[source].setdefault(advertisement, set())
        new = [one for one in filter_digests if one not in met]
        for one in filter_digests:
            met.setdefault(one, set()).add(advertisement)
            filters.add(one)
        self._changed.add(advertisement)
        return new

    def withdraw(self, source: str, advertisement: str) -> list[str]:
        """Forget an advertisement; return the filters that meet no other of its source."""
        met = self._met[source]
        gone = []
        for one in self._meeting[source].pop(advertisement, ()):
            met[one].remove(advertisement)
            if not met[one]:
                del met[one]
                gone.append(one)
        return gone

    def forget_filter(self, filter_digest: str) -> None:
        """Forget a filter that nobody asks for any more."""
        for source, met in self._met.items():
            for advertisement in met.pop(filter_digest, ()):
                self._meeting[source][advertisement].remove(filter_digest)
                self._changed.add(advertisement)

    def forget_source(self, source: str) -> None:
        """Forget a link."""
        self._met.pop(source, None)
        self._meeting.pop(source, None)

    def touch(self, advertisement: str) -> None:
        """Mark an advertisement, so that its publishers are notified of what has changed."""
        self._changed.add(advertisement)

    def take_changed(self) -> set[str]:
        """Return the advertisements for which something may have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

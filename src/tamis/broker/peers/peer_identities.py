"""Who speaks for which broker: an id is only claimed, so the first who claimed it is held to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tamis.broker.peers.link import LinkTerms, PeerLink
from tamis.broker.peers.peers_file import PeersFile
from tamis.errors import RefusedError
from tamis.ports import Executor
from tamis.protocol import Code

MAX_BROKERS_PER_SPEAKER: Final = 100
"""One token cannot take all links."""


class PeerIdentities:
    """The speaker of each broker: a principal, or the address at which this broker dials it."""

    def __init__(
        self,
        file: PeersFile,
        executor: Executor,
        links: Callable[[], Iterable[PeerLink]],
        is_dialled: Callable[[str], bool],
    ) -> None:
        """Make them; `is_dialled` knows the addresses that this broker dials now."""
        self._file = file
        self._executor = executor
        self._links = links
        self._is_dialled = is_dialled

    def check(self, peer: str, terms: LinkTerms) -> None:
        """Refuse one who speaks for a broker for which another has spoken before, or for many."""
        name, known = terms.principal.name, self._file.speakers.get(peer)
        if known is None:
            self._check_count(peer, name)
        elif known != name and not self._has_new_address(known, terms):
            raise RefusedError(
                Code.FORBIDDEN,
                f"{name} may not speak for the broker {peer[:8]}, because {known} did before; if "
                "that has changed, remove the peer first",
            )

    def _has_new_address(self, known: str, terms: LinkTerms) -> bool:
        """Return whether an operator has replaced the address of a broker by another."""
        return terms.is_dialled and "://" in known and not self._is_dialled(known)

    def _check_count(self, peer: str, name: str) -> None:
        spoken_for = {one for one, speaker in self._file.speakers.items() if speaker == name}
        for link in self._links():
            if link.terms is not None and link.terms.principal.name == name:
                spoken_for.add(link.peer)
        if len(spoken_for - {peer}) >= MAX_BROKERS_PER_SPEAKER:
            raise RefusedError(
                Code.TOO_MANY,
                f"{name} speaks for {MAX_BROKERS_PER_SPEAKER:,} brokers, the limit: give others a "
                "token of another principal",
            )

    async def note(self, link: PeerLink) -> None:
        """Note durably who speaks for a broker, now that its router has greeted ours."""
        speakers, terms = self._file.speakers, link.terms
        if terms is not None and speakers.get(link.peer) != terms.principal.name:
            speakers[link.peer] = terms.principal.name
            await self._executor.run(self._file.save)

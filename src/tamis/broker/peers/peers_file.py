"""The peers that a broker keeps: those added while it ran, and who may speak for which broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tamis.errors import StorageError
from tamis.filters import Filter
from tamis.filters.structure import digest, from_structure, to_structure
from tamis.ports import Files
from tamis.storage.files import refusal, replace_file

FILE_VERSION: Final = 1


class KnownPeer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A broker to link to."""

    url: str
    token: str | None = None
    """What the other broker asks for."""
    role: str | None = None
    """The role that the other broker has here, if there is a policy."""


class _PeersFileContent(msgspec.Struct, omit_defaults=True):
    version: int = FILE_VERSION
    peers: list[KnownPeer] = []
    speakers: dict[str, str] = {}
    advertisements: dict[str, list[Any]] = {}


class PeersFile:
    """Keeps peers in a file of the data folder, which only the broker's user may read."""

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        content = self._read()
        self.peers: Final = {peer.url: peer for peer in content.peers}
        self.speakers: Final = content.speakers
        """The principal that may speak for a broker, by the broker's id: the first that did."""
        self._advertisements: Final = {
            peer: {digest(one): one for one in map(from_structure, structures)}
            for peer, structures in content.advertisements.items()
        }

    def _read(self) -> _PeersFileContent:
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=_PeersFileContent)
        except FileNotFoundError:
            return _PeersFileContent()
        except OSError as error:
            raise refusal(self._path, "reading", error) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise StorageError(
                self._path,
                f"it is not a list of peers: {error}",
                advice="restore it from a backup, or remove it and add the peers again",
            ) from None
        if content.version != FILE_VERSION:
            raise StorageError(
                self._path,
                f"it has the format {content.version}, and this version of Tamis reads "
                f"{FILE_VERSION}",
                advice="use the version of Tamis that wrote it, or a later one",
            )
        return content

    def advertisements(self, peer: str) -> dict[str, Filter]:
        """Return what a peer has advertised, by digest."""
        return self._advertisements.get(peer, {})

    def change_advertisements(
        self, peer: str, add: Mapping[str, Filter], remove: Iterable[str]
    ) -> None:
        """Note what a peer advertises in addition, and what no longer; `save` writes it."""
        kept = self._advertisements.setdefault(peer, {})
        kept.update(add)
        for name in remove:
            kept.pop(name, None)

    def forget(self, peer: str) -> None:
        """Forget what belongs to a peer; `save` writes it."""
        self.speakers.pop(peer, None)
        self._advertisements.pop(peer, None)

    def save(self) -> None:
        """Write the file; return when it is on disk."""
        content = _PeersFileContent(
            peers=[*self.peers.values()],
            speakers=dict(self.speakers),
            advertisements={
                peer: [to_structure(one) for one in kept.values()]
                for peer, kept in self._advertisements.items()
            },
        )
        try:
            replace_file(self._files, self._path, msgspec.json.encode(content))
        except OSError as error:
            raise refusal(self._path, "writing", error) from None

"""The compiled subscriptions in files, so that a restart compiles only what has changed.

A manifest names the file of the engine, and records what each subscription in it was compiled from.
Subscriptions that differ are compiled again. Unusable files cost only time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from tamis.access import JOINED_LIMITS
from tamis.broker.deliver.routes import Route
from tamis.broker.deliver.subscriptions import ActiveSubscription, data_digest
from tamis.broker.operations.logs import get_logger
from tamis.errors import SnapshotError
from tamis.events import Schema
from tamis.events.json_text import schema_data
from tamis.filters import Mode
from tamis.matching import Engine
from tamis.ports import Clock, Files, RandomBytes
from tamis.storage.files import make_folder, replace_file

LOG: Final = get_logger("tamis.broker")

# Compiling fewer than these takes less time than managing files.
MIN_CHANGED_SUBSCRIPTIONS: Final = 1_000
MIN_CHANGED_SHARE: Final = 0.1

Marks = dict[int, bytes]
"""For each subscription, by number, a digest of what it was compiled from."""


class SnapshotManifest(msgspec.Struct, frozen=True):
    """The content of an engine file."""

    file: str
    surroundings: str
    """A digest of everything that all subscriptions share."""
    marks: Marks


class Snapshots:
    """The files of one broker's engine."""

    def __init__(
        self,
        folder: Path,
        schema: Schema | None,
        mode: Mode,
        clock: Clock,
        *,
        files: Files,
        random: RandomBytes,
    ) -> None:
        self._files = files
        self._random = random
        self._folder = folder
        self._schema = schema
        self._mode = mode
        self._clock = clock
        self._saved: Marks = {}

    def load(self) -> tuple[Engine, Marks]:
        """Return the saved engine and what it was compiled from, or an empty engine."""
        started = self._clock.monotonic()
        try:
            manifest = self._manifest()
            if manifest.surroundings == self._surroundings():
                file = self._folder / Path(manifest.file).name
                engine = Engine.load(file, limits=JOINED_LIMITS, clock=self._clock.time)
                self._saved = manifest.marks
                seconds = round(self._clock.monotonic() - started, 3)
                LOG.info("snapshot read", subscriptions=len(engine), seconds=seconds)
                return engine, manifest.marks
        except FileNotFoundError:
            pass
        except (OSError, SnapshotError, msgspec.MsgspecError) as error:
            LOG.warning("snapshot ignored, compiling all subscriptions", reason=str(error))
        return Engine(self._schema, self._mode, limits=JOINED_LIMITS, clock=self._clock.time), {}

    def save(self, engine: Engine, subscriptions: Iterable[ActiveSubscription | Route]) -> bool:
        """Save the engine if that makes the next start faster; return whether it was saved."""
        marks = {one.number: one.mark for one in subscriptions if one.mark}
        if not self._is_worth_it(marks):
            return False
        make_folder(self._files, self._folder)
        file = self._folder / f"{self._random(8).hex()}.engine"
        engine.save(file)
        self._publish(SnapshotManifest(file.name, self._surroundings(), marks))
        self._saved = marks
        LOG.info("snapshot written", subscriptions=len(marks))
        return True

    def _is_worth_it(self, marks: Mapping[int, bytes]) -> bool:
        changed = sum(self._saved.get(number) != digest for number, digest in marks.items())
        return changed >= max(MIN_CHANGED_SUBSCRIPTIONS, MIN_CHANGED_SHARE * len(marks))

    def _manifest(self) -> SnapshotManifest:
        path = self._path
        data = path.read_bytes()
        body, crc = data[:-4], data[-4:]
        if zlib.crc32(body).to_bytes(4, "little") != crc:
            raise SnapshotError(path, "its end", "the checksum is wrong")
        return msgspec.msgpack.decode(body, type=SnapshotManifest)

    def _publish(self, manifest: SnapshotManifest) -> None:
        """Replace the previous file by a new one, atomically."""
        body = msgspec.msgpack.encode(manifest)
        replace_file(self._files, self._path, body + zlib.crc32(body).to_bytes(4, "little"))
        for name in self._files.names(self._folder):
            if name not in (manifest.file, self._path.name):
                with suppress(OSError):
                    self._files.remove(self._folder / name)

    @property
    def _path(self) -> Path:
        return self._folder / "manifest"

    def _surroundings(self) -> str:
        schema = None if self._schema is None else schema_data(self._schema)

        return data_digest([version("tamis"), schema, self._mode.value]).hex()

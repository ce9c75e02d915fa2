"""Small records, each written in one step, in a folder of this machine or in a store."""

from __future__ import annotations

import json
import os
from os import PathLike
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from uuid import uuid4

import msgspec

from tamis.errors import StreamError
from tamis.spark.runtime.addresses import is_remote, local_path
from tamis.spark.runtime.store_access import driver_access
from tamis.spark.runtime.stores import ObjectStore

AnyRecord = TypeVar("AnyRecord")


class RecordFolder(Protocol):
    """A folder, or an address in a store, with records by their names below it."""

    @property
    def location(self) -> str:
        """Return the path or the address."""

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below a folder, relative to it, in order."""

    def read(self, name: str) -> bytes | None:
        """Return a file, None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file in one step, so that a reader finds the old or the new one."""

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""


class LocalFolder:
    """A folder of this machine, in which what was written outlives a loss of power."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    @property
    def location(self) -> str:
        """Return the path."""
        return str(self.path)

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below a folder, relative to it, in order."""
        place = self.path / folder
        found = (path for path in place.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(place)) for path in found)

    def read(self, name: str) -> bytes | None:
        """Return a file, None if there is none."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file beside, and rename it."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{uuid4().hex}")
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _sync_folder(path.parent)

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self.path / name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, which takes an fsync of the folder."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def record_folder(path: str | PathLike[str]) -> RecordFolder:
    """Return the folder at a path, or at the address of a store."""
    if is_remote(path):
        return ObjectStore(str(path), driver_access(), StreamError)
    return LocalFolder(local_path(path))


def write_record(folder: RecordFolder, name: str, data: Any) -> None:
    """Write a record as people can read it."""
    folder.write(name, json.dumps(msgspec.to_builtins(data), indent=1).encode())


def read_record(folder: RecordFolder, name: str, type_: type[AnyRecord]) -> AnyRecord | None:
    """Return a record, None if there is none or its writer died before it had any data."""
    data = folder.read(name)
    if not data:
        return None
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.MsgspecError as error:
        place = f"{folder.location}/{name}"
        raise StreamError(place, f"the record in it is damaged: {error}") from None

"""Small durable files, written as a whole or not at all."""

from __future__ import annotations

import json
import os
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from tamis.errors import StreamError

AnyRecord = TypeVar("AnyRecord")


def local_folder(path: str | PathLike[str]) -> Path:
    """Return a folder of this machine, or raise if the path is not one."""
    place = str(path).removeprefix("file://")
    if "://" in place:
        raise StreamError(path, "it is not a path of this machine; mount it, and name the mount")
    return Path(place).absolute()


def write_record(path: Path, data: Any) -> None:
    """Write a record in one step, so that a reader finds the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid4().hex}")
    with beside.open("wb") as file:
        file.write(json.dumps(msgspec.to_builtins(data), indent=1).encode())
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, which takes an fsync of the folder."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def read_record(path: Path, type_: type[AnyRecord]) -> AnyRecord | None:
    """Return a record, None if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type_)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise StreamError(path, f"the record in it is damaged: {error}") from None

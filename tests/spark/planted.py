"""Bugs to plant in a stream, which the comparison with a clean run must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tamis.spark import Pin
from tamis.spark.connectors.folder import FolderSink
from tamis.spark.streaming.checkpoint import Checkpoint


def plant_unpinned(patch: pytest.MonkeyPatch) -> None:
    """Make a repeated batch use the newest version, whatever was recorded."""
    record_once = Checkpoint.record

    def record(checkpoint: Checkpoint, pin: Pin) -> None:
        if pin.batch not in [known.batch for known in checkpoint.pins()]:
            record_once(checkpoint, pin)

    patch.setattr(Checkpoint, "pin", lambda *_: None)
    patch.setattr(Checkpoint, "record", record)


def plant_append(patch: pytest.MonkeyPatch) -> None:
    """Make a repeated batch write its rows beside the existing ones."""

    def place(folder: FolderSink, batch: int) -> Path:
        # Spark takes all of these for the same number.
        taken = len(list(folder.path.glob(f"batch=*{batch:08}")))
        return folder.path / f"batch={'0' * taken}{batch:08}"

    def commit(folder: FolderSink, draft: Path, batch: int) -> None:
        draft.rename(place(folder, batch))

    patch.setattr(FolderSink, "has", lambda *_: False)
    patch.setattr(FolderSink, "place", place)
    patch.setattr(FolderSink, "commit", commit)


PLANTS = {"unpinned": plant_unpinned, "append": plant_append}

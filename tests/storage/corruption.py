"""A data folder with one of its files damaged or removed, and what becomes of opening it.

Whatever is lost must be named: by refusing to open, by damage of the log whose sequences include
every missing event, or by damaged rows and lost changes of the state. Without any of these, all
events must be there, and the state must be one that may be left: every lasting change is in it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from storage.damage import Outcomes, Said, all_of, flipped, mutated
from storage.disk import Disk
from storage.power_loss import SEGMENT_BYTES, PowerLoss
from storage.samples import UNSYNCED, everything
from tamis.errors import StorageError
from tamis.storage import Record, Storage

SIZES = (1, 4, 47, 600, 4096)


class Folder(NamedTuple):
    """What a process has left behind, and what must be found in it."""

    files: Mapping[Path, bytes]
    events: Mapping[int, Record]
    versions: list[Said]
    """The states that may be left, the last of which is the present one."""
    rows: Said
    """All rows that were ever there."""


def filled(root: Path, seed: int, *, closed: bool) -> Folder:
    """Return a folder after a workload, as a killed process leaves it or after it was closed."""
    work = PowerLoss(root / str(seed), seed, faults=False)
    rows: Said = {}
    for _ in range(150):
        work.step()
        for name, found in work.model.versions[-1].items():
            known = rows.setdefault(name, [])
            known += [row for row in found if row not in known]
    events = {one.sequence: one for one in everything(work.store.log, 100)}
    versions = work.model.versions[work.model.lasting :]
    disk: Disk = work.disk
    if closed:
        work.store.close()
    # What a process has written outlives it, synced or not.
    files = {
        path.relative_to(disk.folder): path.read_bytes()
        for path in sorted(disk.folder.rglob("*"))
        if path.is_file()
    }
    if not closed:
        work.store.close()
    disk.unplug()
    return Folder(files, events, versions[-1:] if closed else versions, rows)


def corrupt(folder: Folder, rng: Random, target: Path) -> Path:
    """Write a folder with one of its files damaged or gone; return which."""
    shutil.rmtree(target, ignore_errors=True)
    hit = rng.choice([*folder.files])
    for path, data in folder.files.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(data)
    data = folder.files[hit]
    match rng.choice(("remove", "flip", "cut", "any", "any")):
        case "remove":
            (target / hit).unlink()
        case _ if not data:
            pass
        case "flip":
            (target / hit).write_bytes(flipped(data, rng.randrange(8 * len(data))))
        case "cut":
            (target / hit).write_bytes(data[: rng.randrange(len(data))])
        case _:
            (target / hit).write_bytes(mutated(data, rng, SIZES))
    return hit


def outcome(folder: Folder, target: Path) -> str:
    """Return what comes of opening a folder: the same, refused, reported, or what is wrong."""
    try:
        store = Storage.open(target, segment_bytes=SEGMENT_BYTES, files=UNSYNCED)
    except StorageError as error:
        return "refused" if str(target) in str(error) else f"refused without a file: {error}"
    with store:
        try:
            return opened_outcome(folder, store)
        except StorageError:
            return "refused"


def opened_outcome(folder: Folder, store: Storage) -> str:
    store.log.verify()
    found = {one.sequence: one for one in everything(store.log, 100)}
    lost = {one for damage in store.log.damage.places for one in damage.lost}
    missing = folder.events.keys() - found.keys()
    if any(folder.events.get(sequence) != one for sequence, one in found.items()):
        return "events that were never there"
    if not missing <= lost:
        return f"events {sorted(missing - lost)} are missing without a word"
    if lost & found.keys():
        return f"events {sorted(lost & found.keys())} are called lost, and are there"
    if store.log.damage.lost_events != len(lost):
        return f"{store.log.damage.lost_events} events are counted as lost, not {len(lost)}"
    said = all_of(store.state)
    if any(row not in folder.rows[name] for name, rows in said.items() for row in rows):
        return "rows that were never there"
    is_reported = bool(store.state.damaged or store.state.lost_changes)
    if said not in folder.versions and not is_reported:
        return "a state that lacks something without a word"
    is_clean = not (lost or is_reported or store.log.damage.places)
    return "same" if is_clean else "reported"


def corrupt_often(root: Path, seeds: range, inputs: int) -> dict[str, Outcomes]:
    """Damage the folders of some seeds, each in this many ways; return outcomes by kind of file."""
    outcomes: dict[str, Outcomes] = {}
    for seed in seeds:
        folder = filled(root, seed, closed=bool(seed % 3 == 0))
        for number in range(inputs):
            hit = corrupt(folder, Random(f"{seed} {number}"), root / "hit")
            result = outcome(folder, root / "hit")
            kind = "segment" if hit.suffix == ".log" else hit.name
            assert result in {"same", "refused", "reported"}, f"{seed}, {number}, {hit}: {result}"
            outcomes.setdefault(kind, Counter())[result] += 1
    return outcomes

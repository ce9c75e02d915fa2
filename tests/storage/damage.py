"""Files damaged in all sorts of ways, and what becomes of opening them."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from storage.samples import UNSYNCED, appended, everything, new_records, subscription
from tamis.errors import StorageError
from tamis.storage import (
    DeadLetter,
    DeferredMatches,
    EventLog,
    PublisherTail,
    Record,
    Retry,
    StateStore,
    StoredRoute,
    StoredToken,
)

Outcomes = Counter[str]
"""How often opening gave: the same, refused, reported, silent, crashed."""


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def mutated(data: bytes, rng: Random, sizes: tuple[int, ...]) -> bytes:
    at, size = rng.randrange(len(data)), rng.choice(sizes)
    over = len(data[at : at + size])
    match rng.randrange(7):
        case 0:
            return data[:at]
        case 1:
            return flipped(data, 8 * at + rng.randrange(8))
        case 2:
            return data[:at] + rng.randbytes(over) + data[at + size :]
        case 3:
            return data[:at] + bytes(over) + data[at + size :]
        case 4:
            return data[:at] + data[at + size :]
        case 5:
            other = rng.randrange(len(data))
            return data[:at] + data[other : other + size] + data[at:]
        case _:
            return data + rng.choice((bytes(size), rng.randbytes(size), data[-size:]))


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)


# --- logs ------------------------------------------------------------------------------------


def fuzz_logs(seed: int, inputs: int, folder: Path) -> Outcomes:
    """Damage one log in many ways."""
    rng = Random(seed)
    whole = folder / "whole"
    log = EventLog(whole, segment_bytes=rng.choice((300, 1200, 1 << 20)), files=UNSYNCED)
    sizes = [rng.randrange(1, 4) for _ in range(rng.randrange(1, 12))]
    groups = appended(log, [new_records(rng, size, 40) for size in sizes])
    log.close()
    wanted = [record for group in groups for record in group]
    files = {path.name: path.read_bytes() for path in whole.iterdir()}
    outcomes: Outcomes = Counter()
    for _ in range(inputs):
        matched = rng.choice((0, len(wanted), rng.randrange(len(wanted) + 1)))
        hit = rng.choice(list(files))
        write(folder / "hit", files | {hit: mutated(files[hit], rng, (1, 4, 47, 200))})
        outcomes[log_outcome(folder / "hit", wanted, matched)] += 1
    return outcomes


def log_outcome(folder: Path, wanted: list[Record], matched: int) -> str:
    try:
        log = EventLog(folder, synced_up_to=matched, files=UNSYNCED)
        found = everything(log)
        reported = bool(log.verify() or log.cut_bytes)
        log.close()
    except StorageError:
        return "refused"
    except Exception:
        return "crashed"
    if found == wanted:
        return "same"
    lost = [record for record in wanted if record not in found]
    # A log that ends early with a whole group looks like one of a moment before.
    is_early = found == wanted[: len(found)] and lost[0].sequence > matched
    known = set(found) <= set(wanted)
    return "reported" if known and (reported or is_early) else "silent"


# --- states ----------------------------------------------------------------------------------

FILES = ("state.db", "state.db-wal", "state.count")
Said = dict[str, list[Any]]


class Left(NamedTuple):
    """What a process has left behind, and what it said before its last changes and after them."""

    files: dict[str, bytes]
    before: Said
    after: Said


def filled(
    folder: Path, *, deferred: Sequence[str] = ("ann", "bob", "carl"), routes: int = 4
) -> Left:
    """Fill a state, the last changes of which are still in the write-ahead log.

    The matches of some principals are deferred; then some of these become pending. There are so
    many routes, without the first.
    """
    folder.mkdir(parents=True)
    state = StateStore(folder / "state.db")
    state.add_subscriptions([subscription(f"s{n}", filter=f"price < {n}") for n in range(12)])
    pairs = [(number, sequence) for number in range(1, 13) for sequence in range(1, 40)]
    state.commit_matches(40, pairs, {f"publisher {n}": PublisherTail(n) for n in range(1, 20)})
    letters = [
        DeadLetter(n, n, 1.0, 5, "refused", 1.0, "p", n, 0, b"payload" * 50) for n in range(1, 9)
    ]
    state.settle(dead=letters, retries=[Retry(n, 20, 2, 50.0) for n in range(1, 9)])
    for n in range(8):
        state.add_token(StoredToken(bytes([n]) * 32, f"user {n}", 1.0))
        state.add_audit(1.0, "admin", "add token", f"for user {n}")
    later = [
        row
        for n, name in enumerate(deferred, 1)
        for row in DeferredMatches.parts(name, 40, range(n, 13, 3))
    ]
    state.commit_matches(40, [], {}, deferred=later)
    numbers = state.reserve_numbers(routes)
    state.change_routes([StoredRoute(n, 1, f"digest {n}", b"[1]" * 9) for n in numbers], [])
    before = all_of(state)
    state.close()
    # From here on in the log; the last change is one that lasts.
    state = StateStore(folder / "state.db")
    state.remove_subscription(3)
    state.revoke_token(b"\1" * 32, 5.0)
    state.change_routes([], numbers[:1])
    for name in deferred[:2]:
        state.write_deferred(name, 40, 1)
    state.commit_matches(45, [(1, 44), (2, 45)], {"publisher 1": PublisherTail(45)})
    state.add_audit(2.0, "admin", "remove subscription", "3")
    files = {name: (folder / name).read_bytes() for name in FILES}
    after = all_of(state)
    state.close()
    return Left(files, before, after)


def all_of(state: StateStore) -> Said:
    subscriptions = state.subscriptions()
    numbers = [one.number for one in subscriptions]
    return {
        "subscriptions": subscriptions,
        "pending": [(n, row) for n in numbers for row in state.pending(n, 0, math.inf, 1000)],
        "deferred": state.deferred(),
        "dead letters": [row for n in numbers for row in state.dead_letters(n, 0, 1000)],
        "publishers": sorted(state.publishers().items()),
        "tokens": state.tokens(),
        "audit": state.audit(0, 1000),
        "matched": [state.matched_up_to],
        "routes": state.routes(),
    }


def state_outcome(folder: Path, left: Left) -> str:
    """Return what comes of opening a damaged state: the same, refused, reported or silent."""
    try:
        state = StateStore(folder / "state.db")
    except StorageError as error:
        return "refused" if str(folder / "state") in str(error) else "crashed"
    except Exception:
        return "crashed"
    try:
        found = all_of(state)
        reported = bool(state.damaged or state.lost_changes)
    except StorageError:
        return "refused"
    except Exception:
        return "crashed"
    finally:
        state.close()
    if found == left.after:
        return "same"
    written = {name: [*left.before[name], *left.after[name]] for name in found}
    known = all(row in written[name] for name, rows in found.items() for row in rows)
    return "reported" if reported and known else "silent"


def fuzz_states(seed: int, inputs: int, folder: Path) -> Outcomes:
    """Damage one state in many ways, as a process left it or after it was closed."""
    rng = Random(seed)
    left = filled(folder / "whole")
    if seed % 2:
        write(folder / "closed", left.files)
        StateStore(folder / "closed" / "state.db").close()
        files = {path.name: path.read_bytes() for path in (folder / "closed").iterdir()}
        left = left._replace(files=files)
    outcomes: Outcomes = Counter()
    for _ in range(inputs):
        hit = rng.choice(list(left.files))
        data = mutated(left.files[hit], rng, (1, 4, 100, 4096))
        write(folder / "hit", left.files | {hit: data})
        outcomes[state_outcome(folder / "hit", left)] += 1
    return outcomes

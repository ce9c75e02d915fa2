"""A store at work on a disk whose power may go at any moment, and what must be left of it.

While the workload runs, images of the disk are written at random moments, also in the middle of an
operation. When the operation has ended, each is opened as a store and compared with a model:

- every acknowledged event is there, as it was published, and those of a refused or unfinished
  append are there as a whole or not at all;
- every lasting change is there; the state as a whole is one that the workload has had since the
  last lasting change;
- the last number of every publisher is right;
- nothing is reported as damaged or lost, since nothing is.
"""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from storage.damage import Said, all_of
from storage.disk import Disk, PowerCutError, RandomFaults, no_fault
from storage.samples import UNSYNCED, everything, subscription
from tamis.errors import StorageError
from tamis.storage import (
    NEVER,
    DeadLetter,
    DeferredMatches,
    EventOrigin,
    NewRecord,
    PublisherTail,
    Record,
    Retry,
    Storage,
    StoredRoute,
    StoredToken,
)

SEGMENT_BYTES = 700
OPENING_CHANCE = 0.3
PUBLISHERS = ("p", "q", "a publisher with a longer name")
ORIGINS = ("0a" * 16, "0b" * 16)

Facts = dict[str, set[Any]]
"""For each lasting fact the values that it may have, and None for one that may not be there."""


class Moment(NamedTuple):
    """An image, and how far the model was when it was written."""

    folder: Path
    label: str
    acknowledged: int
    tried: list[list[tuple[Any, ...]]]
    versions: tuple[int, int]
    facts: Facts


class Model:
    """What was acknowledged, and what was merely tried."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        """All that were acknowledged, removed or not."""
        self.oldest = 1
        self.tried: list[list[tuple[Any, ...]]] = []
        """Appends since the last acknowledged one."""
        self.versions: list[Said] = []
        self.lasting = 0
        """The version as of the last lasting change."""
        self.facts: Facts = {}


def tails(events: Sequence[tuple[Any, ...]]) -> dict[str, PublisherTail]:
    """Return what is known of publishers after some events."""
    known: dict[str, PublisherTail] = {}
    for name, number, *_, origin in events:
        if origin is not None:
            known[origin.publisher] = PublisherTail(origin.sequence, time=1.0)
            continue
        tail = known.get(name, PublisherTail())
        known[name] = tail.append(number, array("I", [0]), 1.0)
    return known


def facts_of(store: Storage) -> dict[str, Any]:
    """Return the lasting facts in a store."""
    facts: dict[str, Any] = {one.name: one.expires_at for one in store.state.subscriptions()}
    if store.state.routes():
        facts["routes"] = frozenset(store.state.routes())
    if store.state.seen_at:
        facts["seen at"] = store.state.seen_at
    for token in store.state.tokens():
        facts[token.hash.decode()] = "valid" if token.revoked_at == NEVER else "revoked"
    return facts


class PowerLoss:
    """One workload on one disk, and its images."""

    forgets_files = False
    forgets_folders = False

    def __init__(self, folder: Path, seed: int, *, faults: bool) -> None:
        self.root = folder
        self.rng = Random(seed)
        self.seed = seed
        self.has_faults = faults
        self.folders = (folder / f"{number}" for number in count())
        self.moments: list[Moment] = []
        self.opened = 0
        self.label = "opening"
        self.names = count(1)
        self.origin_sequence = 0
        self.chance = 0.0
        self.start(next(self.folders), Model())

    # --- a disk ------------------------------------------------------------------------------

    def start(self, folder: Path, model: Model) -> None:
        self.model = model
        self.disk = Disk(folder, self.rng.randrange(1 << 32))
        self.disk.forgets_files = self.forgets_files
        self.disk.forgets_folders = self.forgets_folders
        # The power may go while the store is opened, too.
        self.label, self.chance = "opening", OPENING_CHANCE
        self.disk.on_operation = lambda _operation, _name: self.look(self.chance)
        self.open()
        model.versions.append(all_of(self.store.state))
        self.check()

    def open(self) -> None:
        self.store = Storage.open(
            self.disk.folder,
            segment_bytes=SEGMENT_BYTES,
            files=self.disk,
            random=self.rng.randbytes,
        )
        if self.rng.random() < 0.5:
            # Beside the work, as in a broker.
            self.store.state.when_checkpoint_due(lambda: None)

    def end(self) -> None:
        self.disk.on_operation = lambda _operation, _name: None
        self.disk.fault = no_fault
        self.disk.is_full = False
        self.store.close()
        self.disk.unplug()

    def look(self, chance: float) -> None:
        """Perhaps write an image."""
        if self.rng.random() >= chance:
            return
        model, target = self.model, next(self.folders)
        self.disk.image(self.rng, target)
        versions = (model.lasting, len(model.versions))
        facts = {key: set(values) for key, values in model.facts.items()}
        self.moments.append(
            Moment(target, self.label, len(model.events), [*model.tried], versions, facts)
        )

    # --- work --------------------------------------------------------------------------------

    def run(self, rounds: int, steps: int, chance: float) -> int:
        """Work, lose power, and go on with what is left; return the number of images opened."""
        for _ in range(rounds):
            self.chance = chance
            for _ in range(steps):
                self.step()
            self.label, self.chance = "the end", 0.0
            self.look(1.0)
            last = self.moments[-1]
            self.check()
            self.end()
            self.go_on_with(last)
        self.end()
        return self.opened

    def step(self) -> None:
        work: list[Callable[[], None]] = [
            *[self.append] * 6,
            *[self.match] * 4,
            *[self.write_deferred] * 2,
            *[self.settle] * 4,
            *[self.add_token, self.revoke_token] * 2,
            self.add_subscription,
            self.remove_subscription,
            self.renew_subscription,
            self.note_seen,
            self.change_routes,
            self.requeue,
            self.checkpoint,
            self.retain,
            self.close_and_open,
            self.die_in_append,
        ]
        chosen = self.rng.choice(work)
        self.label = chosen.__name__
        if self.has_faults:
            faults = RandomFaults(self.rng, write=0.02, sync=0.05)
            self.disk.fault = self.rng.choice((no_fault, faults))
            self.disk.is_full = self.rng.random() < 0.05
        try:
            chosen()
        except StorageError:
            assert self.has_faults
        finally:
            self.disk.fault, self.disk.is_full = no_fault, False
        self.model.versions.append(all_of(self.store.state))
        if self.model.lasting < 0:
            self.model.lasting = len(self.model.versions) - 1
        self.look(self.chance)
        self.check()

    @contextmanager
    def lasting(self, key: str, value: object) -> Iterator[None]:
        """Note a fact: it may be so while it is written, and must be so then."""
        values = self.model.facts.setdefault(key, {None})
        values.add(value)
        yield
        self.model.facts[key] = {value}
        # The version after it is the first that may be left.
        self.model.lasting = -1

    def append(self) -> None:
        known = self.numbers()
        group = []
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            publisher = self.rng.choice(PUBLISHERS)
            payload = self.rng.randbytes(self.rng.choice((5, 50, 200)))
            if self.rng.random() < 0.3:
                self.origin_sequence += self.rng.randrange(1, 3)
                origin = EventOrigin(
                    self.rng.choice(ORIGINS), self.origin_sequence, 1.0, ORIGINS[0]
                )
                group.append(NewRecord(publisher, 1, 0, payload, origin))
                continue
            known[publisher] = known.get(publisher, 0) + self.rng.randrange(1, 3)
            group.append(NewRecord(publisher, known[publisher], 0, payload))
        self.model.tried.append([tuple(record) for record in group])
        first = len(self.model.events) + 1
        assert self.store.log.append(group) == range(first, first + len(group))
        self.model.events += self.model.tried[-1]
        self.model.tried.clear()

    def numbers(self) -> dict[str, int]:
        return {
            publisher: number
            for publisher, number, *_, origin in self.model.events
            if origin is None
        }

    def match(self) -> None:
        state = self.store.state
        first, stop = (
            state.matched_up_to + 1,
            self.rng.randint(state.matched_up_to, len(self.model.events)),
        )
        numbers = [one.number for one in state.subscriptions()]
        pairs = [
            (number, sequence)
            for number in numbers
            for sequence in range(first, stop + 1)
            if self.rng.random() < 0.5
        ]
        later = {sequence for _, sequence in pairs if self.rng.random() < 0.2}
        deferred = [
            row
            for sequence in later
            for row in DeferredMatches.parts(
                "bob", sequence, [n for n, s in pairs if s == sequence]
            )
        ]
        now = [pair for pair in pairs if pair[1] not in later]
        state.commit_matches(stop, now, tails(self.model.events[:stop]), deferred=deferred)

    def write_deferred(self) -> None:
        self.store.state.write_deferred("bob", 1 << 60, self.rng.randrange(1, 5))

    def settle(self) -> None:
        state = self.store.state
        pairs = [
            (one.number, row.sequence)
            for one in state.subscriptions()
            for row in state.pending(one.number, 0, 1e18, 20)
        ]
        chosen = self.rng.sample(pairs, min(len(pairs), self.rng.randrange(6)))
        dead = [DeadLetter(*pair, 1.0, 5, "refused", 1.0, "p", 1, 0, b"x") for pair in chosen[:1]]
        retries = [Retry(*pair, 1, 50.0) for pair in chosen[1:2]]
        state.settle(acknowledged=chosen[2:], retries=retries, dead=dead)

    def requeue(self) -> None:
        state = self.store.state
        for one in state.subscriptions()[:1]:
            letters = [letter.sequence for letter in state.dead_letters(one.number, 0, 2)]
            state.requeue(one.number, letters, oldest=self.store.log.first_sequence)
            self.model.lasting = -1

    def add_token(self) -> None:
        hash_ = f"token {next(self.names)}"
        with self.lasting(hash_, "valid"):
            self.store.state.add_token(StoredToken(hash_.encode(), "bob", 1.0))

    def revoke_token(self) -> None:
        valid = [key for key, values in self.model.facts.items() if values == {"valid"}]
        if valid:
            key = self.rng.choice(valid)
            with self.lasting(key, "revoked"):
                assert self.store.state.revoke_token(key.encode(), 5.0)

    def add_subscription(self) -> None:
        if len(self.store.state.subscriptions()) < 5:
            name = f"subscription {next(self.names)}"
            with self.lasting(name, 2.0):
                row = subscription(name, expires_at=2.0)
                self.store.state.add_subscription(row)

    def remove_subscription(self) -> None:
        for one in self.store.state.subscriptions()[:1]:
            routes = [route for route in self.store.state.routes() if route.link != one.number]
            with self.lasting(one.name, None), self.lasting("routes", frozenset(routes) or None):
                self.store.state.remove_subscription(one.number)

    def renew_subscription(self) -> None:
        for one in self.store.state.subscriptions()[-1:]:
            with self.lasting(one.name, one.expires_at + 1):
                self.store.state.renew_subscription(one.number, one.expires_at + 1)

    def note_seen(self) -> None:
        seen_at = float(next(self.names))
        with self.lasting("seen at", seen_at):
            self.store.state.note_seen(seen_at)

    def change_routes(self) -> None:
        state = self.store.state
        if not state.subscriptions():
            return
        known = state.routes()
        link, gone = state.subscriptions()[-1].number, known[: self.rng.randrange(3)]
        numbers = state.reserve_numbers(self.rng.randrange(3))
        new = [StoredRoute(number, link, f"{number}", b"[1]") for number in numbers]
        with self.lasting("routes", frozenset([*known[len(gone) :], *new]) or None):
            state.change_routes(new, [one.number for one in gone])

    def checkpoint(self) -> None:
        self.store.state.checkpoint()

    def retain(self) -> None:
        try:
            self.store.retain(max_bytes=self.rng.choice((0, 3 * SEGMENT_BYTES)))
        finally:
            self.model.oldest = self.store.log.first_sequence

    def close_and_open(self) -> None:
        if self.has_faults:
            # Opening is not what is to fail: nobody could go on.
            self.disk.fault, self.disk.is_full = no_fault, False
        self.store.close()
        self.open()

    def die_in_append(self) -> None:
        """Kill the process, perhaps between a write and its sync, and open what it leaves."""
        self.disk.fault, self.disk.is_full = no_fault, False
        self.disk.plan = ["work"] * self.rng.randrange(3) + ["cut"]
        with suppress(PowerCutError, StorageError):
            self.append()
        self.disk.plan = []
        self.kill()
        self.open()
        found = [tuple(one[2:]) for one in everything(self.store.log, 100)]
        extra = found[len(self.model.events) - self.store.log.first_sequence + 1 :]
        assert not extra or extra in self.model.tried
        # What the next process finds and uses must stay.
        self.model.events += extra
        self.model.tried.clear()

    def kill(self) -> None:
        # A dead process writes nothing more, whatever closing would write.
        self.disk.is_dead = True
        self.store.close()
        self.disk.close_all()
        self.disk.is_dead = False

    # --- images ------------------------------------------------------------------------------

    def check(self) -> None:
        """Open the images written since the last time."""
        for moment in self.moments:
            problem = self.problem(moment)
            assert not problem, f"seed {self.seed}, an image during {moment.label!r}: {problem}"
            self.opened += 1
            if moment.label != "the end":
                shutil.rmtree(moment.folder)
        self.moments.clear()

    def problem(self, moment: Moment) -> str:
        """Return what is wrong with an image."""
        with Storage.open(moment.folder, segment_bytes=SEGMENT_BYTES, files=UNSYNCED) as store:
            oldest, found = store.log.first_sequence, everything(store.log, 100)
            if not store.recovery.is_clean or store.log.verify():
                return f"{store.recovery}, {store.log.damage.places}"
            return (
                self.wrong_events(moment, oldest, found)
                or self.wrong_publishers(store, oldest, found)
                or self.wrong_facts(moment, store)
                or self.wrong_version(moment, store)
            )

    def wrong_events(self, moment: Moment, oldest: int, found: list[Record]) -> str:
        if oldest > self.model.oldest:
            return f"events begin with {oldest}, not {self.model.oldest}"
        if [one.sequence for one in found] != list(range(oldest, oldest + len(found))):
            return "the sequences have gaps"
        known = self.model.events[oldest - 1 : moment.acknowledged]
        plain = [tuple(one[2:]) for one in found]
        if plain[: len(known)] != known:
            return f"{moment.acknowledged} events were acknowledged, {oldest - 1 + len(found)} left"
        rest = plain[len(known) :]
        if rest and rest not in moment.tried:
            return f"{len(rest)} events were never appended, or not as a whole"
        return ""

    def wrong_publishers(self, store: Storage, oldest: int, found: list[Record]) -> str:
        events = self.model.events[: oldest - 1] + [tuple(one[2:]) for one in found]
        wanted = {name: tail[:2] for name, tail in tails(events).items()}
        known = {name: tail[:2] for name, tail in store.publishers.items()}
        return "" if known == wanted else f"publishers: {known}, not {wanted}"

    def wrong_facts(self, moment: Moment, store: Storage) -> str:
        now = facts_of(store)
        for key in sorted(now.keys() | moment.facts.keys()):
            allowed = moment.facts.get(key, {None})
            if now.get(key) not in allowed:
                return f"{key} is {now.get(key)}, not one of {allowed}"
        return ""

    def wrong_version(self, moment: Moment, store: Storage) -> str:
        if self.has_faults:
            # A change that was refused may be there all the same.
            return ""
        first, stop = moment.versions
        if first < 0:
            first = stop
        versions = self.model.versions[first : stop + 1]
        return "" if all_of(store.state) in versions else "the state is one that never was"

    def go_on_with(self, moment: Moment) -> None:
        """Go on with an image: what is left in it is what there is."""
        model, before = Model(), self.model.events
        copy = next(self.folders)
        shutil.copytree(moment.folder, copy)
        with Storage.open(copy, segment_bytes=SEGMENT_BYTES, files=UNSYNCED) as store:
            model.oldest = store.log.first_sequence
            found = everything(store.log, 100)
            model.events = before[: model.oldest - 1] + [tuple(one[2:]) for one in found]
            model.facts = {key: {value} for key, value in facts_of(store).items()}
            model.versions.append(all_of(store.state))
        shutil.rmtree(copy)
        self.start(moment.folder, model)

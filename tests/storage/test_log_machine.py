"""The log against a list: appended to, read, cut off by power, failed by its disk, forgotten."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from storage.disk import Disk, PowerCutError, files_no_longer_than
from storage.samples import everything, new_records, quick_folder
from tamis.errors import StorageError, StorageFullError
from tamis.storage import EventLog, NewRecord, Record

SEGMENT_BYTES = 700
SEEDS = st.integers(0, 1 << 32)


class LogMachine(RuleBasedStateMachine):
    """Whatever happens, what was acknowledged is there, and nothing else but a whole append."""

    forgets_files = False
    is_beside = False
    """Whether appends are written beside the caller, where that is possible."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tamis-log-", dir=quick_folder()))
        self.folders = (self.root / f"{number}" for number in count())
        self.now = 1000.0
        self.acknowledged: list[Record] = []
        """With the records that retention has removed."""
        self.refused: list[list[NewRecord]] = []
        """Appends that failed since one worked: a part of the last may be left on the disk."""
        self.matched = 0

    @initialize()
    def begin(self) -> None:
        self.plug_in(next(self.folders))

    def plug_in(self, folder: Path) -> None:
        self.disk = Disk(folder)
        self.disk.forgets_files = self.forgets_files
        self.open()

    def open(self) -> None:
        self.log = EventLog(
            self.disk.folder,
            synced_up_to=self.matched,
            segment_bytes=SEGMENT_BYTES,
            clock=lambda: self.now,
            files=self.disk,
        )
        self.log.write_beside()

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.root)

    # --- appending ---------------------------------------------------------------------------

    def append_some(self, group: list[NewRecord]) -> None:
        first = len(self.acknowledged) + 1
        self.refused.append(group)
        appending = self.log.begin(group) if group and self.is_beside else None
        if appending is None:
            assert self.log.append(group) == range(first, first + len(group))
        else:
            # Until it ends, it is not there.
            assert self.log.next_sequence == first
            assert self.log.read(first, 1) == []
            appending.writer.is_stored(0)
            assert self.log.end(appending) == range(first, first + len(group))
        self.refused.clear()
        found = self.log.read(first, len(group))
        assert [tuple(record[2:]) for record in found] == [tuple(record) for record in group]
        self.acknowledged += found

    @rule(is_beside=st.booleans())
    def change_writer(self, is_beside: bool) -> None:
        self.is_beside = is_beside

    @rule(seed=SEEDS, size=st.integers(0, 9))
    def append(self, seed: int, size: int) -> None:
        syncs = self.disk.syncs
        self.append_some(new_records(Random(seed), size))
        # One for the group, and two more for a new segment and its place in the folder.
        assert self.disk.syncs - syncs <= 3

    @rule(seed=SEEDS, size=st.integers(1, 9), works=st.integers(0, 2))
    def append_with_a_sync_that_fails(self, seed: int, size: int, works: int) -> None:
        self.disk.plan = ["work"] * works + ["fail"]
        with suppress(StorageError):
            self.append_some(new_records(Random(seed), size))
        self.disk.plan = []

    @rule(seed=SEEDS, size=st.integers(1, 9), room=st.integers(0, 600))
    def append_with_little_room(self, seed: int, size: int, room: int) -> None:
        contents = (path.read_bytes() for path in self.disk.folder.iterdir())
        # Files have room that nothing was written to.
        active = max((len(content.rstrip(b"\0")) for content in contents), default=0)
        with files_no_longer_than(active + room), suppress(StorageFullError):
            self.append_some(new_records(Random(seed), size))

    # --- stopping ----------------------------------------------------------------------------

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.open()

    @rule(seed=SEEDS, size=st.integers(1, 9))
    def close_after_an_append_that_nobody_ends(self, seed: int, size: int) -> None:
        appending = self.log.begin(new_records(Random(seed), size))
        self.log.close()
        if appending is not None:
            # It was not refused, so closing waits for it.
            with pytest.raises(StorageError, match="somebody else"):
                self.log.end(appending)
        self.open()
        found = self.log.read(len(self.acknowledged) + 1, 1_000)
        assert len(found) == (0 if appending is None else size)
        self.acknowledged += found

    @rule(seed=SEEDS, size=st.integers(0, 9), works=st.integers(0, 3))
    def cut_the_power(self, seed: int, size: int, works: int) -> None:
        rng = Random(seed)
        self.disk.plan = ["work"] * works + ["cut"]
        with suppress(PowerCutError, StorageError):
            self.append_some(new_records(rng, size))
        left = next(self.folders)
        self.disk.image(rng, left)
        self.log.close()
        self.plug_in(left)
        found = everything(self.log)
        extra = [record for record in found if record.sequence > len(self.acknowledged)]
        # What was not acknowledged may be there, but then the whole of it.
        groups = [[tuple(record) for record in group] for group in self.refused]
        assert not extra or [tuple(record[2:]) for record in extra] in groups
        self.acknowledged += extra
        self.refused.clear()

    # --- the rest ----------------------------------------------------------------------------

    @rule(seconds=st.integers(-50, 100))
    def let_time_pass(self, seconds: int) -> None:
        self.now += seconds

    @rule(part=st.floats(0, 1))
    def match(self, part: float) -> None:
        self.matched += int(part * (len(self.acknowledged) - self.matched))

    @rule(
        max_age=st.none() | st.integers(0, 200),
        max_bytes=st.none() | st.integers(0, 5 * SEGMENT_BYTES),
    )
    def retain(self, max_age: float | None, max_bytes: int | None) -> None:
        first = self.log.first_sequence
        removed = self.log.retain(max_age=max_age, max_bytes=max_bytes, keep_from=self.matched + 1)
        assert removed == range(first, self.log.first_sequence)
        assert self.log.first_sequence <= self.matched + 1
        gone = [self.acknowledged[sequence - 1] for sequence in removed]
        if max_bytes is None:
            assert max_age is not None or not gone
            assert all(record.time <= self.now - (max_age or 0) for record in gone)
        elif self.log.bytes > max_bytes and max_age is None:
            # All that is left is appended to, or is to be kept; a file that could not be begun may
            # lie there as well, to be replaced by the next.
            assert len(self.log._segments) == 1 or self.log.read(self.matched + 1, 1)

    @rule(part=st.floats(0, 1), later=st.integers(-1, 1))
    def look_for_a_time(self, part: float, later: int) -> None:
        living = self.living()
        assume(living)
        time = living[int(part * (len(living) - 1))].time + later
        after = (record.sequence for record in living if record.time >= time)
        assert self.log.sequence_at(time) == next(after, self.log.next_sequence)

    @rule(part=st.floats(0, 1.2), limit=st.integers(0, 9), max_bytes=st.integers(0, 200))
    def read_some(self, part: float, limit: int, max_bytes: int) -> None:
        first = int(part * (len(self.acknowledged) + 1))
        wanted = [record for record in self.living() if record.sequence >= first][:limit]
        found = self.log.read(first, limit, max_bytes)
        assert found == wanted[: len(found)]
        if len(found) < len(wanted):
            sizes = [len(record.payload) for record in wanted[: len(found) + 1]]
            assert found
            assert sum(sizes[:-1]) <= max(max_bytes, sizes[0])
            assert sum(sizes) > max_bytes
        one = self.log.get(first)
        assert one == (wanted[0] if wanted and wanted[0].sequence == first else one)
        assert (one is None) == (first not in range(self.first(), len(self.acknowledged) + 1))

    def first(self) -> int:
        return self.log.first_sequence

    def living(self) -> list[Record]:
        return self.acknowledged[self.log.first_sequence - 1 :]

    @invariant()
    def all_that_was_acknowledged_is_there(self) -> None:
        assert self.log.next_sequence == len(self.acknowledged) + 1
        assert everything(self.log) == self.living()
        times = [record.time for record in self.living()]
        assert times == sorted(times)
        assert self.log.verify() == ()


class WithoutSync(LogMachine):
    """A log that acknowledges before anything is on the disk."""

    forgets_files = True


def run(machine: type[LogMachine], examples: int, phases: Sequence[Phase] = tuple(Phase)) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            database=None,
            phases=phases,
        ),
    )


def test_a_log_keeps_what_it_acknowledged() -> None:
    run(LogMachine, 40)


@pytest.mark.slow
def test_a_log_keeps_what_it_acknowledged_for_long() -> None:
    run(LogMachine, 5_000)


def test_a_log_that_acknowledges_before_it_syncs_is_found_out() -> None:
    with pytest.raises(AssertionError):
        run(WithoutSync, 100, [Phase.generate])

"""Peers as processes: each reads patterns and events from files, and matches when asked to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

import numpy as np

from benchmarks.engines import Counts
from benchmarks.harness import step

FOLDER: Final = Path(__file__).parent
_RULER: Final = FOLDER / "ruler" / "target"


class Peer(NamedTuple):
    """A program that `setup` builds."""

    name: str
    built: Path
    command: Sequence[str]
    has_ranges: bool
    """Whether tens of thousands of ranges are something it is made for."""
    max_patterns: int
    """More would take more memory than the machine has."""

    @property
    def is_there(self) -> bool:
        """Return whether it has been built."""
        return self.built.exists()


PEERS: Final = (
    Peer(
        "event-ruler",
        _RULER / "classes",
        ("java", "-Xmx12g", "-cp", f"{_RULER / 'classes'}:{_RULER / 'dependency'}/*", "RulerPeer"),
        has_ranges=True,
        max_patterns=1_000_000,
    ),
    Peer(
        "quamina's Rust port",
        FOLDER / "quamina/target/release/quamina-peer",
        (str(FOLDER / "quamina/target/release/quamina-peer"),),
        has_ranges=False,
        # A million took 17 GB.
        max_patterns=100_000,
    ),
)


class PeerProcess(NamedTuple):
    """A running peer, by its standard input and output."""

    asked: IO[str]
    answers: IO[str]

    def counts(self, events: int) -> Counts:
        """Match the first events, and return how many patterns each satisfies."""
        self.asked.write(f"{events}\n")
        self.asked.flush()
        return np.array(self.answer().split(), np.int64)

    def answer(self) -> str:
        """Return the next line that it prints."""
        line = self.answers.readline()
        if not line:
            raise ChildProcessError("the peer has ended; its standard error says why")
        return line


@contextmanager
def running(peer: Peer, patterns: Path, events: Path) -> Iterator[PeerProcess]:
    """Start a peer and wait until it has read all patterns."""
    command = [*peer.command, str(patterns), str(events)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603
        started = PeerProcess(cast("IO[str]", process.stdin), cast("IO[str]", process.stdout))
        try:
            with step(f"{peer.name} took in its patterns"):
                started.answer()
            yield started
        finally:
            process.terminate()

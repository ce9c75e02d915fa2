"""How events meet subscriptions: all in every worker, dealt out by a key, or in a grid.

=======  ==========================================================================================
single   every worker opens all shards, which are shared on a machine; nothing is shuffled
keyed    events go to the worker that has the shards of their key's bucket; shuffled once
grid     shards are grouped, and every event meets every group in another task; results are joined
=======  ==========================================================================================
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tamis.errors import LibraryError
from tamis.spark.library.library import Shard, Version

LOG: Final = logging.getLogger(__name__)

# Measured: what a worker needs beside the file that it maps, most of it for ids.
PRIVATE_BYTES: Final = 150
# Of the machine's memory; the rest is for events, results and Spark.
SHARE_OF_MEMORY: Final = 0.5


class Strategy(StrEnum):
    """How events meet subscriptions."""

    SINGLE = "single"
    KEYED = "keyed"
    GRID = "grid"


class Plan(NamedTuple):
    """A strategy, the shards that belong together under it, and why it was chosen."""

    strategy: Strategy
    shares: tuple[tuple[int, ...], ...]
    reason: str


class Machine(NamedTuple):
    """What a worker's machine can bear."""

    memory: int
    workers: int

    @classmethod
    def like_this(cls, memory: int | None = None) -> Machine:
        """Return a machine like the driver's, or one with so much memory for subscriptions."""
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(memory or int(whole * SHARE_OF_MEMORY), os.cpu_count() or 1)


def choose_plan(
    version: Version, machine: Machine, *, has_key: bool, wanted: str | None = None
) -> Plan:
    """Return the cheapest plan that fits into memory, or the one that is wanted."""
    plan = _wanted(version, machine, wanted, has_key=has_key) if wanted else None
    plan = plan or _fitting(version, machine, has_key=has_key)
    LOG.info("the plan is %s: %s", plan.strategy, plan.reason)
    return plan


def _fitting(version: Version, machine: Machine, *, has_key: bool) -> Plan:
    shards = version.manifest.shards
    need = _need(shards, machine.workers)
    told = f"{version.subscriptions:,} subscriptions need {_megabytes(need)} on a machine"
    if need <= machine.memory:
        return _single(version, f"{told}, and {_megabytes(machine.memory)} are there for them")
    told = f"{told}, more than the {_megabytes(machine.memory)} that are there for them"
    if has_key:
        keyed = _keyed(version, f"{told}, and events carry the key {version.manifest.key!r}")
        # Workers on one machine may all have another bucket.
        if all(_fits(shards, share, machine) for share in keyed.shares):
            return keyed
    return _grid(version, machine, told)


def _wanted(version: Version, machine: Machine, name: str, *, has_key: bool) -> Plan:
    reason = "it was asked for"
    try:
        strategy = Strategy(name)
    except ValueError:
        known = ", ".join(repr(str(one)) for one in Strategy)
        raise LibraryError(version.path, f"{name!r} is not a plan; the plans are {known}") from None
    if strategy is Strategy.SINGLE:
        return _single(version, reason)
    if strategy is Strategy.GRID:
        return _grid(version, machine, reason)
    if not has_key:
        raise LibraryError(
            version.path,
            "its plan cannot be 'keyed': it takes a library that was compiled with a key, and "
            "events that have the key in a column of texts",
        )
    return _keyed(version, reason)


def _single(version: Version, reason: str) -> Plan:
    return Plan(Strategy.SINGLE, (tuple(range(len(version.manifest.shards))),), reason)


def _keyed(version: Version, reason: str) -> Plan:
    shards = list(enumerate(version.manifest.shards))
    shares = tuple(
        tuple(at for at, shard in shards if shard.bucket in (None, bucket))
        for bucket in range(version.manifest.buckets)
    )
    return Plan(Strategy.KEYED, shares, reason)


def _grid(version: Version, machine: Machine, reason: str) -> Plan:
    """Group shards in order, as many as a worker can hold while all others hold as many."""
    shards = version.manifest.shards
    shares: list[tuple[int, ...]] = []
    for at in range(len(shards)):
        if shares and _fits(shards, (*shares[-1], at), machine):
            shares[-1] = (*shares[-1], at)
        else:
            shares.append((at,))
    return Plan(Strategy.GRID, tuple(shares), f"{reason}; groups: {len(shares):,}")


def _fits(shards: Sequence[Shard], share: Sequence[int], machine: Machine) -> bool:
    return _need([shards[at] for at in share], 1) <= machine.memory // machine.workers


def _need(shards: Sequence[Shard], workers: int) -> int:
    """Return the bytes for some shards: their files once, and what is each worker's own."""
    mapped = sum(shard.snapshot.size + shard.ids.size for shard in shards)
    return mapped + workers * PRIVATE_BYTES * sum(shard.subscriptions for shard in shards)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"

"""How events meet subscriptions: all shards in every worker, shuffled by a key, or in a grid.

=======  ==========================================================================================
single   every worker opens all shards; workers on one machine share the memory; no shuffle
keyed    events go to the worker that holds the shards of their key's bucket; one shuffle
grid     shards form groups, every event meets every group in a separate task; results are joined
=======  ==========================================================================================
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tamis.errors import LibraryError
from tamis.spark.library.library import Version
from tamis.spark.library.manifests import Shard

LOG: Final = logging.getLogger(__name__)

# Measured: what a worker needs per subscription beside the mapped file, mostly for ids.
PRIVATE_BYTES_PER_SUBSCRIPTION: Final = 150
# The rest of the machine's memory is for events, results and Spark.
SHARE_OF_MEMORY: Final = 0.5


class Strategy(StrEnum):
    """How events meet subscriptions."""

    SINGLE = "single"
    KEYED = "keyed"
    GRID = "grid"


class Plan(NamedTuple):
    """A strategy, the groups of shards that it opens together, and the reason for it."""

    strategy: Strategy
    shard_groups: tuple[tuple[int, ...], ...]
    reason: str


class Machine(NamedTuple):
    """The resources of a worker's machine."""

    memory: int
    workers: int

    @classmethod
    def like_this(cls, memory: int | None = None) -> Machine:
        """Return a machine like the driver's, or with the given bytes for subscriptions."""
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(memory or int(whole * SHARE_OF_MEMORY), os.cpu_count() or 1)


def choose_plan(
    version: Version, machine: Machine, *, has_key: bool, wanted: str | None = None
) -> Plan:
    """Return the wanted plan, or the cheapest one that fits into memory."""
    plan = _wanted(version, machine, wanted, has_key=has_key) if wanted else None
    plan = plan or _fitting(version, machine, has_key=has_key)
    LOG.info("the plan is %s: %s", plan.strategy, plan.reason)
    return plan


def _fitting(version: Version, machine: Machine, *, has_key: bool) -> Plan:
    shards = version.manifest.shards
    need = _bytes_needed(shards, machine.workers)
    fact = f"{version.subscriptions:,} subscriptions need {_megabytes(need)} on a machine"
    if need <= machine.memory:
        return _single(version, f"{fact}, which has {_megabytes(machine.memory)} for them")
    fact = f"{fact}, which has only {_megabytes(machine.memory)} for them"
    if has_key:
        keyed = _keyed(version, f"{fact}, and events carry the key {version.manifest.key!r}")
        # Workers on one machine may each hold a different bucket.
        if all(_fits(shards, group, machine) for group in keyed.shard_groups):
            return keyed
    return _grid(version, machine, fact)


def _wanted(version: Version, machine: Machine, name: str, *, has_key: bool) -> Plan:
    reason = "the caller asked for it"
    try:
        strategy = Strategy(name)
    except ValueError:
        known = ", ".join(repr(str(one)) for one in Strategy)
        raise LibraryError(
            version.location, f"{name!r} is not a plan; the plans are {known}"
        ) from None
    if strategy is Strategy.SINGLE:
        return _single(version, reason)
    if strategy is Strategy.GRID:
        return _grid(version, machine, reason)
    if not has_key:
        raise LibraryError(
            version.location,
            "its plan cannot be 'keyed': that takes a library compiled with a key, and events "
            "with the key in a string column",
        )
    return _keyed(version, reason)


def _single(version: Version, reason: str) -> Plan:
    return Plan(Strategy.SINGLE, (tuple(range(len(version.manifest.shards))),), reason)


def _keyed(version: Version, reason: str) -> Plan:
    shards = list(enumerate(version.manifest.shards))
    groups = tuple(
        tuple(at for at, shard in shards if shard.bucket in (None, bucket))
        for bucket in range(version.manifest.buckets)
    )
    return Plan(Strategy.KEYED, groups, reason)


def _grid(version: Version, machine: Machine, reason: str) -> Plan:
    """Group shards in order, as many as a worker can hold while all workers hold as many."""
    shards = version.manifest.shards
    groups: list[tuple[int, ...]] = []
    for at in range(len(shards)):
        if groups and _fits(shards, (*groups[-1], at), machine):
            groups[-1] = (*groups[-1], at)
        else:
            groups.append((at,))
    return Plan(Strategy.GRID, tuple(groups), f"{reason}; groups: {len(groups):,}")


def _fits(shards: Sequence[Shard], group: Sequence[int], machine: Machine) -> bool:
    return _bytes_needed([shards[at] for at in group], 1) <= machine.memory // machine.workers


def _bytes_needed(shards: Sequence[Shard], workers: int) -> int:
    """Return the bytes for some shards: their files once, and each worker's own share."""
    mapped = sum(shard.snapshot.size + shard.ids.size for shard in shards)
    subscriptions = sum(shard.subscriptions for shard in shards)
    return mapped + workers * PRIVATE_BYTES_PER_SUBSCRIPTION * subscriptions


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"

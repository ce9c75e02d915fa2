"""What is asked of a version of a library, whatever the events come from."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from os import PathLike
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tamis.errors import SchemaError
from tamis.spark.library.library import Library, Version, pinned
from tamis.spark.matching.dealing import told_output
from tamis.spark.matching.outputs import Numbering, Output
from tamis.spark.matching.planning import Machine, Plan, Strategy, choose_plan
from tamis.spark.matching.running import Job, Layout
from tamis.spark.matching.tallying import Tally


class Question(NamedTuple):
    """A version, the form of the answer, and the time that expiry goes by."""

    version: Version
    output: Output
    unmatched: bool
    now: float
    tally: Tally | None
    plan: str | None
    memory: int | None

    def planned(self, *, has_key: bool) -> Plan:
        """Return how events are to meet subscriptions."""
        machine = Machine.like_this(self.memory)
        return choose_plan(self.version, machine, has_key=has_key, wanted=self.plan)

    @property
    def numbering(self) -> Numbering:
        """Return how subscriptions are counted through all shards."""
        sizes = [shard.subscriptions for shard in self.version.manifest.shards]
        firsts = tuple(sum(sizes[:at]) for at in range(len(sizes)))
        return Numbering(firsts, sum(sizes), self.version.manifest.id_type)

    def job(self, layout: Layout, wanted: Iterable[str], plan: Plan) -> Job:
        """Return what workers must know to answer."""
        manifest = self.version.manifest
        grid = plan.strategy is Strategy.GRID
        return Job(
            folder=str(self.version.path),
            shards=manifest.shards,
            numbering=self.numbering,
            schema=manifest.schema,
            mode=manifest.mode,
            wanted=frozenset(wanted),
            output=told_output(self.output) if grid else self.output,
            # What is counted or joined must be there for it; it is dropped afterwards.
            unmatched=self.unmatched or self.tally is not None or grid,
            now=self.now,
            layout=layout,
            shares=plan.shares,
        )

    def finish(self, results: DataFrame) -> DataFrame:
        """Count what workers told, and drop what nobody asked for."""
        if self.tally is not None:
            results = self.tally.observe(results, self.output)
        if self.output is Output.PAIRS:
            results = results.drop("nth")
        if self.unmatched:
            return results
        pairs = self.output is Output.PAIRS
        found = F.col("subscription").isNotNull() if pairs else F.col("matches") > 0
        return results.filter(found | F.col("error").isNotNull())


def ask(
    library: Library | Version | str | PathLike[str],
    *,
    output: str,
    unmatched: bool | None = None,
    now: float | datetime | None = None,
    tally: Tally | None = None,
    plan: str | None = None,
    memory: int | None = None,
) -> Question:
    """Pin and check all that an answer depends on, before any event is read."""
    version = pinned(library)
    version.check()
    form = _output(output)
    keep_unmatched = form is not Output.PAIRS if unmatched is None else unmatched
    moment = now.timestamp() if isinstance(now, datetime) else now
    moment = time.time() if moment is None else moment
    return Question(version, form, keep_unmatched, moment, tally, plan, memory)


def _output(name: str) -> Output:
    try:
        return Output(name)
    except ValueError:
        known = ", ".join(repr(str(output)) for output in Output)
        raise SchemaError(f"{name!r} is not an output; the outputs are {known}") from None

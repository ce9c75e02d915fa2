"""A request to match events against a version of a library, wherever the events come from."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from os import PathLike
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import SchemaError
from tamis.spark.library.library import Library, Version, newest_version
from tamis.spark.matching.counts import Tally
from tamis.spark.matching.outputs import Output, SubscriptionNumbers, result_fields
from tamis.spark.matching.plan import Machine, Plan, Strategy, choose_plan
from tamis.spark.matching.shuffle import GROUP, group_output, join_groups
from tamis.spark.matching.worker import MatchJob, RowLayout


@dataclass(frozen=True)
class MatchInput(ABC):
    """Events on their way to workers: the rows of a DataFrame, or the splits of files."""

    kept: list[T.StructField]
    """The first columns, which the results repeat."""
    width: int
    """The number of columns."""
    wanted: frozenset[str]
    attributes: tuple[tuple[str, int], ...]
    """The name and the place of each column that is part of the event."""
    text: int | None
    """The place of the column that holds the whole event as JSON, if any."""
    xml: bool = field(default=False, kw_only=True)
    """Whether that column holds XML instead."""

    @property
    def has_key(self) -> bool:
        """Return whether the rows can be shuffled by the library's key."""
        return False

    @property
    @abstractmethod
    def event_id(self) -> Sequence[str]:
        """Return the columns that identify an event when a grid's results are joined."""

    @abstractmethod
    def added_fields(self, strategy: Strategy) -> list[T.StructField]:
        """Return the columns that a strategy adds behind the others."""

    @abstractmethod
    def run(self, job: MatchJob, plan: Plan, schema: T.StructType) -> DataFrame:
        """Return the results of a job, as workers produce them."""


class MatchRequest(NamedTuple):
    """A version, the form of the results, and the time by which subscriptions expire."""

    version: Version
    output: Output
    unmatched: bool
    now: float
    tally: Tally | None
    plan: str | None
    memory: int | None

    def match(self, rows: MatchInput) -> DataFrame:
        """Plan, run and finish: return the results of all rows."""
        if rows.text is None or rows.xml:
            require_no_elements(self.version, "documents have" if rows.xml else "columns have")
        machine = Machine.like_this(self.memory)
        plan = choose_plan(self.version, machine, has_key=rows.has_key, wanted=self.plan)
        added = rows.added_fields(plan.strategy)
        job = self._job(plan, rows, added)
        results = rows.run(job, plan, _result_schema(job, [*rows.kept, *added]))
        if plan.strategy is Strategy.GRID:
            names = [field.name for field in rows.kept]
            results = join_groups(results, rows.event_id, names, self.output)
        elif plan.strategy is Strategy.KEYED:
            results = results.drop(GROUP.name)
        return self._finish(results)

    def _job(self, plan: Plan, rows: MatchInput, added: Sequence[T.StructField]) -> MatchJob:
        manifest = self.version.manifest
        grid = plan.strategy is Strategy.GRID
        live = None if self.tally is None else self.tally.live
        if live is not None:
            live.copies = len(plan.shard_groups) if grid else 1
        return MatchJob(
            place=self.version.place,
            shards=manifest.shards,
            numbers=numbers_of(self.version),
            schema=manifest.schema,
            mode=manifest.mode,
            wanted=rows.wanted,
            output=group_output(self.output) if grid else self.output,
            # Counting and joining need unmatched events; `_finish` drops them afterwards.
            unmatched=self.unmatched or self.tally is not None or grid,
            now=self.now,
            layout=_layout(rows, added),
            shard_groups=plan.shard_groups,
            live=None if live is None else live.accumulator,
        )

    def _finish(self, results: DataFrame) -> DataFrame:
        """Count the results, then drop what the caller does not want."""
        if self.tally is not None:
            results = self.tally.observe(results, self.output)
        if self.output is Output.PAIRS:
            results = results.drop("nth")
        if self.unmatched:
            return results
        pairs = self.output is Output.PAIRS
        found = F.col("subscription").isNotNull() if pairs else F.col("matches") > 0
        return results.filter(found | F.col("error").isNotNull())


class MatchOptions(NamedTuple):
    """The options of a match that do not depend on the version."""

    output: str = Output.IDS
    unmatched: bool | None = None
    plan: str | None = None
    memory: int | None = None

    def request(
        self,
        library: Library | Version | str | PathLike[str],
        now: float | datetime | None = None,
        tally: Tally | None = None,
    ) -> MatchRequest:
        """Pin a version and the time, and check both before any event is read."""
        version = newest_version(library)
        version.check()
        output = _output(self.output)
        unmatched = output is not Output.PAIRS if self.unmatched is None else self.unmatched
        moment = now.timestamp() if isinstance(now, datetime) else now
        moment = time.time() if moment is None else moment
        return MatchRequest(version, output, unmatched, moment, tally, self.plan, self.memory)


def _output(name: str) -> Output:
    try:
        return Output(name)
    except ValueError:
        known = ", ".join(repr(str(output)) for output in Output)
        raise SchemaError(f"{name!r} is not an output; the outputs are {known}") from None


def require_no_elements(version: Version, what: str) -> None:
    """Refuse tests of elements where it is not known which values belong together."""
    if any(shard.tests_elements for shard in version.manifest.shards):
        raise SchemaError(
            f"the library tests elements, as in items[sku = 'a'], and {what} none: give the events "
            "as JSON, match(library, json=…)"
        )


def numbers_of(version: Version) -> SubscriptionNumbers:
    """Return how the subscriptions of a version are numbered."""
    sizes = [shard.numbers for shard in version.manifest.shards]
    firsts = tuple(sum(sizes[:at]) for at in range(len(sizes)))
    return SubscriptionNumbers(firsts, sum(sizes), version.manifest.id_type)


def _layout(rows: MatchInput, added: Sequence[T.StructField]) -> RowLayout:
    kept = [(field.name, place) for place, field in enumerate(rows.kept)]
    behind = [(field.name, place) for place, field in enumerate(added, rows.width)]
    group = dict(behind).get(GROUP.name)
    return RowLayout((*kept, *behind), rows.attributes, rows.text, group, rows.xml)


def _result_schema(job: MatchJob, kept: Sequence[T.StructField]) -> T.StructType:
    fields = [T.StructField(field.name, field.dataType) for field in kept]
    return T.StructType([*fields, *result_fields(job.output, job.numbers)])

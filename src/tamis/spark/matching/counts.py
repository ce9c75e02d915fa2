"""The outcome of each event, matched, unmatched or rejected: counted, and used to write results."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from tamis.spark.matching.live_counts import LiveCounts
from tamis.spark.matching.outputs import Output
from tamis.spark.runtime.ui import show_in_ui
from tamis.units import count


class Counts(NamedTuple):
    """The number of events by outcome: events = matched + unmatched + rejected."""

    events: int
    matched: int
    unmatched: int
    rejected: int
    matches: int

    def __str__(self) -> str:
        return (
            f"{count(self.events, 'event')}: {self.matched:,} matched, "
            f"{self.unmatched:,} unmatched, {self.rejected:,} rejected; "
            f"{count(self.matches, 'match')}"
        )


class Tally:
    """Counts the events of one `match` during the first action on its results.

    With `live`, it is known how many there were so far while the action runs.
    """

    def __init__(self, live: LiveCounts | None = None) -> None:
        self._observation = Observation()
        self._is_shown = False
        self.live: Final = live

    def observe(self, results: DataFrame, output: Output) -> DataFrame:
        """Return the results, with a counter attached."""
        counted = _first_rows() if output is Output.PAIRS else _every_row()
        named = (column.alias(name) for name, column in counted.items())
        return results.observe(self._observation, *named)

    def counts(self) -> Counts:
        """Wait for the end of the action and return the counts, which Spark's pages show too."""
        observed = self._observation.get
        counts = Counts(**{name: observed[name] or 0 for name in Counts._fields})
        if not self._is_shown:
            self._is_shown = True
            show_in_ui(str(counts))
        return counts


def _every_row() -> dict[str, Column]:
    matches = F.col("matches")
    return {
        "events": F.count(F.lit(1)),
        "matched": F.count_if(matches > 0),
        "unmatched": F.count_if(matches == 0),
        "rejected": F.count_if(F.col("error").isNotNull()),
        "matches": F.sum(matches.cast("long")),
    }


def _first_rows() -> dict[str, Column]:
    nth, error = F.col("nth"), F.col("error")
    return {
        "events": F.count_if(nth <= 1),
        "matched": F.count_if(nth == 1),
        "unmatched": F.count_if((nth == 0) & error.isNull()),
        "rejected": F.count_if(error.isNotNull()),
        "matches": F.count_if(nth > 0),
    }


# --- results by outcome ------------------------------------------------------------------------


def outcome(results: DataFrame) -> Column:
    """Return a column with `matched`, `unmatched` or `rejected` for each row."""
    by_count = "matches" in results.columns
    unmatched = F.col("matches") == 0 if by_count else F.col("subscription").isNull()
    return (
        F.when(F.col("error").isNotNull(), "rejected")
        .when(unmatched, "unmatched")
        .otherwise("matched")
    )


def split(results: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the results without errors, and the rejected events with theirs.

    Spark computes each when it is used; `write` computes both at once.
    """
    fine = F.col("error").isNull()
    return results.filter(fine).drop("error"), results.filter(~fine)


def write(results: DataFrame, path: str, *, format_: str = "parquet", mode: str = "error") -> None:
    """Write results to a table with a partition per outcome.

    `path/outcome=rejected` holds the rejected events and the reasons.
    """
    results = results.withColumn("outcome", outcome(results))
    results.write.partitionBy("outcome").format(format_).mode(mode).save(path)

"""What became of the events: counted while the results flow, and told apart when written."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from tamis.spark.matching.outputs import Output


class Counts(NamedTuple):
    """How many events there were: events = matched + unmatched + rejected."""

    events: int
    matched: int
    unmatched: int
    rejected: int
    matches: int

    def __str__(self) -> str:
        return (
            f"{self.events:,} events: {self.matched:,} matched, {self.unmatched:,} unmatched, "
            f"{self.rejected:,} rejected; {self.matches:,} matches"
        )


class Tally:
    """Counts events as a by-product of the first action on the results, for one `match`."""

    def __init__(self) -> None:
        self._observation = Observation()

    def observe(self, results: DataFrame, output: Output) -> DataFrame:
        """Return the results, counted as they pass."""
        counted = _first_rows() if output is Output.PAIRS else _every_row()
        named = (column.alias(name) for name, column in counted.items())
        return results.observe(self._observation, *named)

    def counts(self) -> Counts:
        """Return the counts; waits for the end of the action."""
        told = self._observation.get
        return Counts(**{name: told[name] or 0 for name in Counts._fields})


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


# --- results, by what became of the event -------------------------------------------------------


def outcome(results: DataFrame) -> Column:
    """Return a column that says `matched`, `unmatched` or `rejected` of each row."""
    by_count = "matches" in results.columns
    unmatched = F.col("matches") == 0 if by_count else F.col("subscription").isNull()
    return (
        F.when(F.col("error").isNotNull(), "rejected")
        .when(unmatched, "unmatched")
        .otherwise("matched")
    )


def split(results: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the results without an error, and the rejected events with theirs.

    Each is computed when it is used; to have both of one computation, `write` them.
    """
    fine = F.col("error").isNull()
    return results.filter(fine).drop("error"), results.filter(~fine)


def write(results: DataFrame, path: str, *, format_: str = "parquet", mode: str = "error") -> None:
    """Write results at once to a table with a partition for each outcome.

    `path/outcome=rejected` is the table of what could not be taken, and why.
    """
    told = results.withColumn("outcome", outcome(results))
    told.write.partitionBy("outcome").format(format_).mode(mode).save(path)

"""A function of SQL that takes a table of events; Spark 4.0 or newer has what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from tamis.errors import SchemaError
from tamis.spark.runtime.versions import arrow_type

Pairs = Callable[[Sequence[Any], pa.Schema], Iterator[tuple[Any, ...]]]
"""Matches rows with some columns; gives each with a subscription, or with an error."""


@dataclass
class PairsResult(AnalyzeResult):
    """What Spark passes on to every task: the columns of the events, as Arrow has them."""

    columns: pa.Schema = None


def pairs_handler(pairs: Pairs, id_type: T.DataType, rows_per_batch: int) -> type:
    """Return the class that Spark makes an instance of for each task.

    Spark has functions of tables in Arrow, but not yet with columns that depend on the argument.
    """

    class PairsFunction:
        def __init__(self, analyzed: PairsResult) -> None:
            self._columns = analyzed.columns
            self._rows: list[Any] = []

        @staticmethod
        def analyze(events: AnalyzeArgument) -> PairsResult:
            if not events.isTable or not isinstance(events.dataType, T.StructType):
                raise SchemaError("the argument should be a table of events, as in TABLE(events)")
            added = [T.StructField("subscription", id_type), T.StructField("error", T.StringType())]
            for name in events.dataType.names:
                if name in [field.name for field in added]:
                    raise SchemaError(
                        f"the events have a column {name!r}, which pairs have too; rename it"
                    )
            columns = [(field.name, arrow_type(field.dataType)) for field in events.dataType]
            schema = T.StructType([*events.dataType.fields, *added])
            return PairsResult(schema, columns=pa.schema(columns))

        def eval(self, event: Any) -> Iterator[tuple[Any, ...]]:
            self._rows.append(event)
            if len(self._rows) >= rows_per_batch:
                yield from self.terminate()

        def terminate(self) -> Iterator[tuple[Any, ...]]:
            rows, self._rows = self._rows, []
            if rows:
                yield from pairs(rows, self._columns)

    return PairsFunction

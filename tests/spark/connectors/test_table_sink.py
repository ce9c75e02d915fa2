"""What a sink for tables refuses; `lake/` streams into tables."""

from __future__ import annotations

import pytest

from tamis.errors import SchemaError
from tamis.spark import TableSink


def test_a_format_without_transactions_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"'delta' or 'iceberg', and not in 'parquet'; for"):
        TableSink("matches", "parquet")


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_checkpoint_knows_its_table(format_: str) -> None:
    assert TableSink("lake.db.matches", format_).name == f"the {format_} table lake.db.matches"

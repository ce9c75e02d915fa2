"""Tables that answer queries: Parquet, CSV and SQLite files, and DuckDB queries."""

from tamis.sources.opening import TableSummary, open_table
from tamis.sources.table import SourceTable

__all__ = ["SourceTable", "TableSummary", "open_table"]

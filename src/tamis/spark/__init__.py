"""Tamis on Spark: subscriptions compiled to a library, events matched against it in bulk.

This package needs the extra `tamis[spark]`; nothing else in Tamis imports it. Names load at first
use: Spark starts a Python process for every data source, which needs only a few of them.
"""

from typing import TYPE_CHECKING

from tamis.lazy import lazy_exports, require_extra

require_extra("spark")

# What type checkers and editors see, and what Python does; a test compares the two.
if TYPE_CHECKING:
    from tamis.spark.connectors.batches import Batch, Pin, total
    from tamis.spark.connectors.broker_sink import BrokerSink
    from tamis.spark.connectors.broker_stream import read_broker
    from tamis.spark.connectors.kafka_sink import KafkaSink
    from tamis.spark.connectors.results import read_batches, read_results
    from tamis.spark.connectors.table_sink import TableSink
    from tamis.spark.files.forecast import Forecast, forecast_files
    from tamis.spark.files.generate import Generated, event_rows, generate, subscription_rows
    from tamis.spark.files.match_files import match_files
    from tamis.spark.library.changes import ChangeReport, change_subscriptions
    from tamis.spark.library.compile import CompileReport, compile_subscriptions
    from tamis.spark.library.library import Library, Version
    from tamis.spark.library.retention import Forgotten, forget_versions
    from tamis.spark.matching.counts import Counts, Tally, outcome, split, write
    from tamis.spark.matching.match import match
    from tamis.spark.matching.outputs import Output
    from tamis.spark.matching.sql_function import register
    from tamis.spark.report.experiment import density_experiment
    from tamis.spark.report.report import MatchRun, write_report
    from tamis.spark.runtime.session import local_session
    from tamis.spark.streaming.follow import follow_changes
    from tamis.spark.streaming.stream import StreamOptions, stream, stream_files
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tamis.spark.connectors.batches": "Batch Pin total",
            "tamis.spark.connectors.broker_sink": "BrokerSink",
            "tamis.spark.connectors.broker_stream": "read_broker",
            "tamis.spark.connectors.results": "read_batches read_results",
            "tamis.spark.connectors.kafka_sink": "KafkaSink",
            "tamis.spark.connectors.table_sink": "TableSink",
            "tamis.spark.files.forecast": "Forecast forecast_files",
            "tamis.spark.files.generate": "Generated event_rows generate subscription_rows",
            "tamis.spark.files.match_files": "match_files",
            "tamis.spark.library.changes": "ChangeReport change_subscriptions",
            "tamis.spark.library.compile": "CompileReport compile_subscriptions",
            "tamis.spark.library.library": "Library Version",
            "tamis.spark.library.retention": "Forgotten forget_versions",
            "tamis.spark.matching.counts": "Counts Tally outcome split write",
            "tamis.spark.matching.match": "match",
            "tamis.spark.matching.outputs": "Output",
            "tamis.spark.matching.sql_function": "register",
            "tamis.spark.report.experiment": "density_experiment",
            "tamis.spark.report.report": "MatchRun write_report",
            "tamis.spark.runtime.session": "local_session",
            "tamis.spark.streaming.follow": "follow_changes",
            "tamis.spark.streaming.stream": "StreamOptions stream stream_files",
        },
    )

__all__ = [
    "Batch",
    "BrokerSink",
    "ChangeReport",
    "CompileReport",
    "Counts",
    "Forecast",
    "Forgotten",
    "Generated",
    "KafkaSink",
    "Library",
    "MatchRun",
    "Output",
    "Pin",
    "StreamOptions",
    "TableSink",
    "Tally",
    "Version",
    "change_subscriptions",
    "compile_subscriptions",
    "density_experiment",
    "event_rows",
    "follow_changes",
    "forecast_files",
    "forget_versions",
    "generate",
    "local_session",
    "match",
    "match_files",
    "outcome",
    "read_batches",
    "read_broker",
    "read_results",
    "register",
    "split",
    "stream",
    "stream_files",
    "subscription_rows",
    "total",
    "write",
    "write_report",
]

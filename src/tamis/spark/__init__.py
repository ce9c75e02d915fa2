"""Tamis on Spark: subscriptions compiled to a library, events matched against it in bulk.

It needs the extra `tamis[spark]`; nothing else in Tamis imports it.
"""

from tamis.lazy import require_extra

require_extra("spark")

from tamis.spark.connectors.broker import read_broker
from tamis.spark.connectors.broker_sink import BrokerSink
from tamis.spark.connectors.results import Batch, read_batches, read_results, total
from tamis.spark.files.files import match_files
from tamis.spark.files.generating import Generated, event_rows, generate, subscription_rows
from tamis.spark.library.compiling import CompileReport, compile_subscriptions
from tamis.spark.library.library import Library, Version
from tamis.spark.matching.matching import match
from tamis.spark.matching.outputs import Output
from tamis.spark.matching.tallying import Counts, Tally, outcome, split, write
from tamis.spark.report.experiment import density_experiment
from tamis.spark.report.report import MatchRun, write_report
from tamis.spark.runtime.session import local_session
from tamis.spark.streaming.checkpoints import Pin
from tamis.spark.streaming.streaming import stream, stream_files

__all__ = [
    "Batch",
    "BrokerSink",
    "CompileReport",
    "Counts",
    "Generated",
    "Library",
    "MatchRun",
    "Output",
    "Pin",
    "Tally",
    "Version",
    "compile_subscriptions",
    "density_experiment",
    "event_rows",
    "generate",
    "local_session",
    "match",
    "match_files",
    "outcome",
    "read_batches",
    "read_broker",
    "read_results",
    "split",
    "stream",
    "stream_files",
    "subscription_rows",
    "total",
    "write",
    "write_report",
]

"""Tamis on Spark: subscriptions compiled to a library, events matched against it in bulk.

It needs the extra `tamis[spark]`; nothing else in Tamis imports it.
"""

from tamis.spark.broker import read_broker
from tamis.spark.broker_sink import BrokerSink
from tamis.spark.checkpoints import Pin
from tamis.spark.compiling import CompileReport, compile_subscriptions
from tamis.spark.experiment import density_experiment
from tamis.spark.files import match_files
from tamis.spark.generating import Generated, event_rows, generate, subscription_rows
from tamis.spark.library import Library, Version
from tamis.spark.matching import match
from tamis.spark.outputs import Output
from tamis.spark.report import MatchRun, write_report
from tamis.spark.results import Batch, read_batches, read_results, total
from tamis.spark.session import local_session
from tamis.spark.streaming import stream, stream_files
from tamis.spark.tallying import Counts, Tally, outcome, split, write

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

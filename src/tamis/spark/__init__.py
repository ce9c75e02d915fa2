"""Tamis on Spark: subscriptions compiled to a library, events matched against it in bulk.

It needs the extra `tamis[spark]`; nothing else in Tamis imports it.
"""

from tamis.spark.checkpoints import Pin
from tamis.spark.compiling import CompileReport, compile_subscriptions
from tamis.spark.files import match_files
from tamis.spark.kafka import read_kafka
from tamis.spark.library import Library, Version
from tamis.spark.matching import match
from tamis.spark.outputs import Output
from tamis.spark.results import Batch, read_batches, read_results, total
from tamis.spark.session import local_session
from tamis.spark.streaming import stream, stream_files
from tamis.spark.tallying import Counts, Tally, outcome, split, write

__all__ = [
    "Batch",
    "CompileReport",
    "Counts",
    "Library",
    "Output",
    "Pin",
    "Tally",
    "Version",
    "compile_subscriptions",
    "local_session",
    "match",
    "match_files",
    "outcome",
    "read_batches",
    "read_kafka",
    "read_results",
    "split",
    "stream",
    "stream_files",
    "total",
    "write",
]

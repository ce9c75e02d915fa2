"""The names of the sources of a stream, by which a checkpoint recognises them."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame

from tamis.errors import SchemaError, SparkError

# Options that select what is read; all others say how, and may change.
_SELECTING: Final = (
    "path",
    "subscribe",
    "subscribepattern",
    "assign",
    "filter",
    "language",
    "mode",
)


def source_names(events: DataFrame) -> str:
    """Return the names of a streaming DataFrame's sources.

    A checkpoint only records how far a stream has read, and would continue from there in another
    folder or topic.
    """
    if not events.isStreaming:
        raise SchemaError("the events are not a stream; use `match`, or read them with readStream")
    # Only the JVM knows the sources, and a client of Spark Connect has none.
    frame: Any = getattr(events, "_jdf", None)
    if frame is None:
        raise SparkError(
            "streams need a classic session of Spark: Spark Connect would run the batches in "
            "another process, away from the library and the checkpoint"
        )
    leaves = frame.queryExecution().analyzed().collectLeaves()
    found = (leaves.apply(number) for number in range(leaves.size()))
    return ", ".join(sorted(_name(leaf) for leaf in found if leaf.isStreaming()))


def _name(relation: Any) -> str:
    kind = relation.getClass().getSimpleName()
    if not kind.startswith("StreamingRelation"):
        return str(kind)
    name = str(relation.sourceName())
    if kind != "StreamingRelationV2":
        return name
    options = {key.lower(): value for key, value in relation.extraOptions().items()}
    selected = ", ".join(f"{key} {options[key]}" for key in _SELECTING if key in options)
    return f"{name}[{selected}]"

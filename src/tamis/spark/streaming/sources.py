"""Where the events of a stream come from, as a name by which to know the source again."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame

from tamis.errors import SchemaError, SparkError

# Options that say what is read; all others say how, and may change.
_TELLING: Final = ("path", "subscribe", "subscribepattern", "assign", "filter", "language", "mode")


def source_of(events: DataFrame) -> str:
    """Return the names of a streaming DataFrame's sources.

    A checkpoint only counts what was read, and would go on counting in another folder or topic.
    """
    if not events.isStreaming:
        raise SchemaError("the events are not a stream; match them, or read them by readStream")
    # Only the JVM knows, and a client of Spark Connect has none.
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
    told = ", ".join(f"{key} {options[key]}" for key in _TELLING if key in options)
    return f"{name}[{told}]"

"""The inputs of `benchmarks.compare`, drawn once and read by both checkouts.

Filters are written as text and events as Parquet, so nothing depends on how a checkout represents
them in memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import parsing, relations
from tamis.events.json_text import schema_data
from tamis.workloads import Workload

SEED = 1
PARTIAL_DENSITY = 0.3
MATCHES_PER_EVENT = 10


class Size(NamedTuple):
    """How much of each input is drawn."""

    texts: int
    """Filters to parse, and pairs to compare."""
    subscriptions: int
    """Conjunctions."""
    trees: int
    """Boolean expressions, which take longer to build."""
    events: int
    paper: int
    """Subscriptions of the paper, half of which match an event."""
    single: int
    """Ranges and Boolean expressions that single events are matched against."""
    growth: tuple[int, int]

    def divided(self, by: int) -> Size:
        """Return a smaller size, to try the tool."""
        few, many = (n // by for n in self.growth)
        return Size._make([*(max(10, n // by) for n in self[:-1]), (few, many)])


FULL = Size(
    texts=500,
    subscriptions=20_000,
    trees=10_000,
    events=4096,
    paper=3000,
    single=100_000,
    growth=(10_000, 100_000),
)


def write_inputs(folder: Path, size: Size) -> None:
    """Draw everything that the cases read."""
    rng = Random(SEED)
    for language, draw in {
        "tamis": parsing.tamis_filter,
        "jms": parsing.jms_selector,
        "siena": parsing.siena_triples,
    }.items():
        _write_texts(folder, f"parsing-{language}", [draw(rng) for _ in range(size.texts)])
    for kind, draw_filter in {
        "conjunctions": relations.conjunction,
        "boolean": relations.mixture,
    }.items():
        pairs = [str(draw_filter(rng)) for _ in range(2 * size.texts)]
        _write_texts(folder, f"relations-{kind}", pairs)
    paper = Workload.load("paper")
    _write_workload(folder, "paper", paper, size.paper, size.events)
    partial = paper.events(0, size.events, SEED, PARTIAL_DENSITY)
    pq.write_table(_table(partial), folder / "paper-partial.parquet")
    for name in ("abe", "be-a", "be-b", "be-c"):
        count = size.trees if name == "abe" else size.subscriptions
        _write_workload(folder, name, Workload.load(name), count, size.events)
    for name in ("abe", "be-c"):
        _write_workload(folder, f"single-{name}", Workload.load(name), size.single, size.events)
    for count in size.growth:
        _write_workload(folder, f"growth-{count}", _growing(count), count, size.events)


def _growing(count: int) -> Workload:
    """Return conjunctions of three equalities of which an event matches about ten."""
    side = max(2, round((count / MATCHES_PER_EVENT) ** (1 / 3)))
    return Workload(f"""
        rules.filter = "f0 = {{f0}} and f1 = {{f1}} and f2 = {{f2}}"
        attributes."f0..f2" = {{ type = "int", range = [0, {side - 1}] }}
        attributes."f3..f7" = {{ type = "int", range = [0, 9] }}
    """)


def _write_workload(
    folder: Path, name: str, workload: Workload, subscriptions: int, events: int
) -> None:
    filters = workload.subscriptions(0, subscriptions, SEED).column("filter").to_pylist()
    _write_texts(folder, name, filters)
    pq.write_table(_table(workload.events(0, events, SEED)), folder / f"{name}.parquet")
    described = json.dumps(schema_data(workload.schema))
    (folder / f"{name}.schema.json").write_text(described, "utf-8")


def _write_texts(folder: Path, name: str, texts: Sequence[str]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(texts), "utf-8")


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])

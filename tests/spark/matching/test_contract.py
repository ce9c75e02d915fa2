"""Spark, in batch and as a stream, gives exactly the oracle's answers: on the conformance cases
and on random pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from seeds import seeds
from spark.contract import Answer, Sub, as_columns, by_spark, by_the_oracle, compiled
from spark.contract_stream import by_stream
from strategies import random_event, random_filter, random_world
from tamis.errors import JSONError
from tamis.events import Event, Schema, decode_json, encode_json, schema_of
from tamis.filters import Mode

# Suites with more cases also go through a stream, which matches by the same code.
MANY = 10
TOPICS = [
    (path.stem, json.loads(path.read_text(encoding="utf-8")))
    for path in sorted((Path(__file__).parents[3] / "conformance").glob("*.json"))
]


def as_json(spark: SparkSession, texts: Mapping[str, str]) -> DataFrame:
    return spark.createDataFrame(list(texts.items()), "name string, payload string")


# --- conformance -------------------------------------------------------------------------------


class Suite:
    """Topics that share a schema and a mode, as one table of subscriptions and one of events."""

    def __init__(self, schema: dict[str, Any] | None, mode: str) -> None:
        self.schema = None if schema is None else schema_of(schema)
        self.mode = mode
        self.subs: dict[str, Sub] = {}
        self.cases: dict[str, dict[str, Any]] = {}
        self.events: dict[str, dict[str, Any]] = {}

    def add(self, stem: str, topic: dict[str, Any], case: dict[str, Any]) -> None:
        id_ = f"{stem}:{case['id']}"
        language = case.get("language", topic.get("language", "tamis"))
        mode = case.get("mode", topic.get("mode", "sql"))
        self.subs[id_] = Sub(id_, case["filter"], language, mode)
        self.cases[id_] = {**case, "topic": stem}
        self.events |= {f"{stem}/{name}": event for name, event in topic["events"].items()}


def suites() -> list[Suite]:
    found: dict[str, Suite] = {}
    for stem, topic in TOPICS:
        for case in topic["filters"]:
            mode = case.get("mode", topic.get("mode", "sql"))
            # Only `total` is a matter of the whole library.
            mode = mode if mode == "total" else "sql"
            schema = topic.get("schema")
            known = json.dumps([schema, mode])
            found.setdefault(known, Suite(schema, mode)).add(stem, topic, case)
    return list(found.values())


@pytest.mark.parametrize("suite", suites(), ids=lambda suite: f"{suite.mode}-{len(suite.subs)}")
def test_every_conformance_case_gives_the_expected_matches(
    suite: Suite, spark: SparkSession, tmp_path: Path
) -> None:
    report = compiled(
        spark, list(suite.subs.values()), tmp_path, schema=suite.schema, mode=suite.mode, shards=2
    )
    rejected = {
        row["id"]: row["reason"] for row in spark.read.parquet(report.rejected_path).collect()
    }
    wrong = {id_ for id_, case in suite.cases.items() if "error" in case}
    assert rejected.keys() == wrong
    for id_ in wrong:
        assert suite.cases[id_]["error"] in rejected[id_]

    texts = {name: json.dumps(event) for name, event in suite.events.items()}
    found = by_spark(as_json(spark, texts), report, json="payload")
    if len(suite.subs) > MANY:
        assert by_stream(as_json(spark, texts), report, json="payload") == found
    for id_, case in suite.cases.items():
        if "error" not in case:
            prefix = f"{case['topic']}/"
            here = {
                n.removeprefix(prefix)
                for n, sub in found.pairs
                if sub == id_ and n.startswith(prefix)
            }
            assert here == set(case["matches"]), id_
            assert set(case.get("refuses", ())) <= {n.removeprefix(prefix) for n in found.refused}


# --- random pairs ------------------------------------------------------------------------------


def compare_columns(spark: SparkSession, path: Path, rng: Random, filters: int, events: int) -> int:
    """Match typed events, as columns; return the number of pairs."""
    world = random_world(rng, typed=True)
    assert world.schema is not None
    mode = rng.choice((Mode.SQL, Mode.SQL, Mode.TOTAL))
    modes = [mode] if mode is Mode.TOTAL else [Mode.SQL, Mode.STRICT, Mode.DEFAULT]
    subs = [
        Sub(f"s{n}", str(random_filter(rng, world)), mode=rng.choice(modes)) for n in range(filters)
    ]
    given = {
        f"e{n}": event
        for n in range(events)
        if fits_columns(event := random_event(rng, world, total=rng.random() < 0.9))
    }
    report = compiled(spark, subs, path, schema=world.schema, mode=mode, shards=rng.choice((1, 3)))
    assert report.rejected == 0
    expected = by_the_oracle(given, subs, world.schema, mode)
    rows = as_columns(spark, given, world.schema)
    assert by_spark(rows, report) == expected
    assert by_stream(rows, report) == expected
    return len(subs) * len(given)


def fits_columns(event: Event) -> bool:
    """Return whether Spark has all values: it has no integers without a sign."""
    masks = [getattr(value, "mask", 0) for values in event.values() for value in values]
    return all(mask < 2**63 for mask in masks)


def compare_json(spark: SparkSession, path: Path, rng: Random, filters: int, events: int) -> int:
    """Match events of an open world, as JSON; return the number of pairs."""
    world = random_world(rng, typed=False)
    subs = [Sub(f"s{n}", str(random_filter(rng, world))) for n in range(filters)]
    texts, given = {}, {}
    for n in range(events):
        try:
            texts[f"e{n}"] = encode_json(random_event(rng, world))
            given[f"e{n}"] = decode_json(texts[f"e{n}"])
        except JSONError:
            # NaN has no form in JSON, and 64 bits without a sign have none that comes back.
            texts.setdefault(f"e{n}", "{")
    report = compiled(spark, subs, path, shards=rng.choice((1, 3)))
    broken = texts.keys() - given.keys()
    expected = Answer(by_the_oracle(given, subs, None, Mode.SQL).pairs, set(broken))
    rows = as_json(spark, texts)
    assert by_spark(rows, report, json="payload") == expected
    assert by_stream(rows, report, json="payload") == expected
    return len(subs) * len(texts)


@pytest.mark.parametrize("seed", seeds(2))
def test_columns_give_the_oracles_pairs(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    compare_columns(spark, tmp_path, Random(seed), filters=60, events=150)


def test_json_gives_the_oracles_pairs(spark: SparkSession, tmp_path: Path) -> None:
    compare_json(spark, tmp_path, Random(7), filters=60, events=150)


@pytest.mark.slow
def test_a_million_pairs(spark: SparkSession, tmp_path: Path) -> None:
    rng = Random(2026)
    pairs = rounds = 0
    while pairs < 1_000_000:
        compare = compare_json if rounds % 3 == 0 else compare_columns
        pairs += compare(spark, tmp_path / str(rounds), rng, filters=200, events=400)
        rounds += 1
    print(
        f"\nbatch and stream against oracle: {pairs:,} pairs in {rounds} libraries, 0 differences"
    )


def test_a_schema_is_kept_in_the_library(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema({"price": "float"})
    report = compiled(spark, [Sub("a", "price < 5")], tmp_path, schema=schema)
    assert report.version.schema == schema

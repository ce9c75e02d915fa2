"""Kafka, by Spark's own connector against a real server: what the how-to page says is so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark.jars import fetch_jars
from spark.kafka.program import LATER, SUBS, events
from spark.kafka.server import POM, running_kafka
from tamis.languages import parse

TESTS = Path(__file__).parents[2]
TIMEOUT = 600

Row = dict[str, Any]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    folder = tmp_path_factory.mktemp("kafka")
    jars = ",".join(map(str, fetch_jars(POM, "connector", folder)))
    with running_kafka(fetch_jars(POM, "server", folder), folder) as servers:
        command = [sys.executable, "-m", "spark.kafka.program", servers, str(folder), jars]
        ran = subprocess.run(  # noqa: S603
            command, cwd=TESTS, capture_output=True, text=True, check=False, timeout=TIMEOUT
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    data: dict[str, list[Row]] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return data


def expected(text: str, *, later: bool) -> list[str] | None:
    """Return what an event matches; None if it is rejected."""
    try:
        event = json.loads(text)
    except ValueError:
        return None
    subs = [*SUBS, LATER] if later else SUBS
    return [sub.id for sub in subs if parse(sub.filter).matches(event)]


def positions(rows: list[Row]) -> set[tuple[str, int, int]]:
    return {(row["topic"], row["partition"], row["offset"]) for row in rows}


@pytest.mark.slow
def test_every_message_is_matched_once_by_the_version_of_its_batch(
    found: dict[str, list[Row]],
) -> None:
    for name, texts in (("first", events(0, 50)), ("second", events(0, 100))):
        rows = found[name]
        assert sorted(row["value"] for row in rows) == sorted(texts)
        assert len(positions(rows)) == len(texts)
        for row in rows:
            assert row["subscriptions"] == expected(row["value"], later=row["version"] == 2)
            assert (row["error"] is None) == (row["outcome"] != "rejected")
    assert {row["version"] for row in found["second"]} == {1, 2}
    assert [row for row in found["second"] if row["batch"] == 0] == [
        row for row in found["first"] if row["batch"] == 0
    ]


@pytest.mark.slow
def test_plain_structured_streaming_goes_from_topic_to_topic(found: dict[str, list[Row]]) -> None:
    rows = found["plain"]
    assert len(rows) == len(positions(rows)) == 100
    texts = {
        tuple(row[n] for n in ("topic", "partition", "offset")): row["value"]
        for row in found["second"]
    }
    for row in rows:
        text = texts[row["topic"], row["partition"], row["offset"]]
        assert row.get("subscriptions") == expected(text, later=True)
        assert ("error" in row) == (expected(text, later=True) is None)


@pytest.mark.slow
def test_a_batch_that_a_function_sends_again_has_the_same_rows(
    found: dict[str, list[Row]],
) -> None:
    rows = [json.dumps(row, sort_keys=True) for row in found["function"]]
    assert len(set(rows)) == 100
    assert sorted(rows) == sorted(2 * list(set(rows)))

"""A feed of changes as a stream: after every batch, the library is what the feed says so far."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark.library.test_changes import base, by_the_oracle, drawn_filter, matched, one_after_another
from spark.streams import TIMEOUT, add_file
from tamis.errors import FilterError, LibraryError, SchemaError, StreamError
from tamis.spark import ChangeReport, Library, follow_changes
from tamis.spark.library import changes
from tamis.spark.library.changes import apply_changes
from tamis.spark.streaming import follow

FEED = "id string, filter string, change string, n long"


class Feed:
    """Files of changes, a library and a checkpoint, in one place."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._spark, self.files = spark, path / "feed"
        self.checkpoint = path / "checkpoint"
        self.files.mkdir()
        self.known = {f"s{n}": f"price < {n}" for n in range(6)}
        self.library = base(path / "library", self.known)
        self.reports: list[ChangeReport] = []
        self._written = 0

    def rows(self, columns: str = FEED) -> DataFrame:
        reader = self._spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.files))

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Move a file of changes into the folder, with their numbers, in some order."""
        numbered = [{**row, "n": self._written + at} for at, row in enumerate(rows)]
        self._written += len(rows)
        Random(self._written).shuffle(numbered)
        add_file(self.files, f"{self._written:06}.json", numbered)

    def follow(self, **options: Any) -> None:
        given = {"order": "n", "checkpoint": self.checkpoint, "once": True, **options}
        query = follow_changes(self.rows(), self.library, on_version=self.reports.append, **given)
        assert query.awaitTermination(TIMEOUT)


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path)


def drawn(rng: Random) -> list[dict[str, Any]]:
    return [
        {
            "id": rng.choice(("s0", "s1", "s2", "n0", "n1")),
            "filter": drawn_filter(rng),
            "change": rng.choice(("insert", "update", "delete")),
        }
        for _ in range(rng.randrange(1, 12))
    ]


def test_each_batch_publishes_what_the_feed_says_so_far(feed: Feed) -> None:
    rng = Random(3)
    for number in range(3):
        batch = drawn(rng)
        feed.add(batch)
        # Started again, it goes on where it was.
        feed.follow()
        feed.known = one_after_another(feed.known, batch)
        assert feed.library.versions() == [*range(1, number + 3)]
        assert feed.reports[-1].changes == len(batch)
        assert matched(feed.reports[-1].version) == by_the_oracle(feed.known)


def test_a_batch_that_runs_again_changes_nothing_more(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = [
        {"id": "s0", "filter": "price < 9", "change": "update"},
        {"id": "s1", "change": "delete"},
        {"id": "n0", "filter": "price > 3", "change": "insert"},
    ]
    feed.add(batch)
    with monkeypatch.context() as patch:
        # The driver is gone after the version is published, and before that is recorded.
        patch.setattr(follow, "write_record", lambda *_: 1 / 0)
        with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
            feed.follow()
    # Somebody else changes it before the batch runs again.
    later = [{"id": "s0", "filter": "price < 4", "change": "update"}]
    apply_changes(feed.library, later)
    feed.follow()
    wanted = one_after_another(one_after_another(feed.known, batch), later)
    assert matched(feed.library.latest()) == by_the_oracle(wanted)
    assert feed.library.versions() == [1, 2, 3]


def follow_commit(feed: Feed, rows: list[dict[str, str]]) -> None:
    """Follow a change feed as Delta writes it, with one commit."""
    add_file(feed.files, "a.json", [{**row, "_commit_version": 1} for row in rows])
    columns = "id string, filter string, _change_type string, _commit_version long"
    options: dict[str, Any] = {"change": "_change_type", "order": "_commit_version"}
    query = follow_changes(
        feed.rows(columns), feed.library, checkpoint=feed.checkpoint, once=True, **options
    )
    assert query.awaitTermination(TIMEOUT)


def test_the_change_feed_of_delta_is_understood(feed: Feed) -> None:
    rows = [
        {"id": "s0", "filter": "price < 0", "_change_type": "update_preimage"},
        {"id": "s0", "filter": "price < 7", "_change_type": "update_postimage"},
        {"id": "s1", "filter": "price < 1", "_change_type": "delete"},
        {"id": "n0", "filter": "price > 2", "_change_type": "insert"},
    ]
    follow_commit(feed, rows)
    wanted = {**feed.known, "s0": "price < 7", "n0": "price > 2"}
    del wanted["s1"]
    assert matched(feed.library.latest()) == by_the_oracle(wanted)


def test_what_delta_deletes_and_inserts_in_a_commit_stays(feed: Feed) -> None:
    """An overwritten table deletes and inserts all rows in one commit, in any order of rows."""
    rows = [
        {"id": "s0", "filter": "price < 7", "_change_type": "insert"},
        {"id": "s0", "filter": "price < 0", "_change_type": "delete"},
        {"id": "s1", "filter": "price < 1", "_change_type": "delete"},
    ]
    follow_commit(feed, rows)
    wanted = {**feed.known, "s0": "price < 7"}
    del wanted["s1"]
    assert matched(feed.library.latest()) == by_the_oracle(wanted)


def test_rows_without_an_id_are_rejected_and_do_not_stop_a_feed(feed: Feed) -> None:
    nobody = {"id": None, "filter": "price < 1", "change": "insert"}
    feed.add([nobody, nobody, {"id": "n0", "filter": "price > 2", "change": "insert"}])
    feed.follow(order=())
    assert matched(feed.library.latest()) == by_the_oracle({**feed.known, "n0": "price > 2"})
    assert feed.reports[-1].rejected == 2


def test_two_changes_of_an_id_need_an_order(feed: Feed) -> None:
    feed.add([{"id": "a", "filter": f"price < {n}", "change": "insert"} for n in (1, 2)])
    with pytest.raises(StreamingQueryException, match="'a' changes twice in a batch, and no col"):
        feed.follow(order=())
    assert feed.library.versions() == [1]
    # As the sentence says, it goes on once there is one.
    feed.follow()
    assert matched(feed.library.latest()) == by_the_oracle({**feed.known, "a": "price < 2"})


def test_too_many_changes_in_a_batch_need_a_new_checkpoint(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads the same batch again, whatever the options are."""
    monkeypatch.setattr(changes, "MAX_CHANGES", 1)
    feed.add([{"id": id_, "filter": "price < 1", "change": "insert"} for id_ in "ab"])
    with pytest.raises(StreamingQueryException, match="follow the feed with a new checkpoint and"):
        feed.follow()


def test_what_a_feed_cannot_be(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="the feed has no column 'chnge'; did you mean"):
        feed.follow(change="chnge")
    with pytest.raises(ValueError, match="not both"):
        feed.follow(every=5)
    no_stream = spark.createDataFrame([], FEED)
    with pytest.raises(SchemaError, match="the events are not a stream"):
        follow_changes(no_stream, feed.library, checkpoint=feed.checkpoint)
    with pytest.raises(LibraryError, match="compile subscriptions first"):
        follow_changes(feed.rows(), Library(tmp_path / "none"), checkpoint=feed.checkpoint)
    numbers = feed.rows("id long, filter string, change string")
    with pytest.raises(FilterError, match=r"has the type bigint, and the ids of .* type string; c"):
        follow_changes(numbers, feed.library, checkpoint=feed.checkpoint)
    feed.add([{"id": "a", "filter": "price < 1", "change": "insert"}])
    feed.follow()
    with pytest.raises(StreamError, match="whose column of changes is change, and not filter"):
        feed.follow(change="filter")

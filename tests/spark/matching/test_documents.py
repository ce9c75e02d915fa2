"""XML and tests of elements on Spark: what each row matches is what the oracle says, exactly."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from broker.document_cases import Asked, random_asked, random_published
from seeds import seeds
from tamis.errors import SchemaError
from tamis.spark import (
    Library,
    Tally,
    change_subscriptions,
    compile_subscriptions,
    match,
    match_files,
    read_results,
    stream_files,
)
from tamis.xml import Document
from xml_workload import random_document

Asking = dict[str, Asked]


def compiled(spark: SparkSession, folder: Path, asked: Asking, **options: Any) -> Library:
    rows = [(id_, one.text, one.language) for id_, one in asked.items()]
    table = spark.createDataFrame(rows, "id string, filter string, language string")
    library = Library(folder / "library")
    report = compile_subscriptions(table, library, **options)
    assert report.version.manifest.rejected == 0, report.version.rejected_rows().to_pylist()
    return library


def expected(asked: Asking, published: str | dict[str, Any]) -> list[str]:
    return sorted(id_ for id_, one in asked.items() if one.is_satisfied(published))


def found_in(results: DataFrame, column: str) -> dict[str, list[str]]:
    return {row[column]: sorted(row["subscriptions"]) for row in results.collect()}


@pytest.mark.parametrize("seed", seeds(20))
def test_documents_match_what_the_oracle_says(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    asked = {f"q{n}": random_asked(random) for n in range(30)}
    asked = {id_: one for id_, one in asked.items() if one.language != "tamis"}
    asked |= {"plain": Asked("`/a/b` is present", "tamis"), "json": Asked("b = 1", "tamis")}
    texts = list(dict.fromkeys(random_document(random) for _ in range(40)))
    library = compiled(spark, tmp_path, asked, shards=1 + seed % 3)
    events = spark.createDataFrame([(text,) for text in texts], "text string")
    found = found_in(events.transform(match(library, xml="text")), "text")
    del asked["plain"], asked["json"]
    for text in texts:
        plain = ["plain"] if Document.parse(text).__attributes__({"/a/b"}) else []
        assert found[text] == sorted(expected(asked, text) + plain), text


@pytest.mark.parametrize("seed", seeds(20))
def test_elements_in_json_match_what_the_oracle_says(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    asked = {f"q{n}": random_asked(random) for n in range(60)}
    asked = {id_: one for id_, one in asked.items() if one.language == "tamis"}
    published = [random_published(random) for _ in range(80)]
    texts = {json.dumps(one): one for one in published if isinstance(one, dict)}
    library = compiled(spark, tmp_path, asked)
    events = spark.createDataFrame([(text,) for text in texts], "text string")
    found = found_in(events.transform(match(library, json="text")), "text")
    assert found == {text: expected(asked, one) for text, one in texts.items()}


CHAIRS = Asked("order/line[sku = 'chair' $and$ $not$ n < 5]", "xql")
FIRST = Asked("order/line[1]/sku = 'chair'", "xpath")
PLAIN = Asked("`//sku` = 'sofa'", "tamis")


def an_order(*lines: tuple[str, int]) -> str:
    inside = "".join(f"<line><sku>{sku}</sku><n>{n}</n></line>" for sku, n in lines)
    return f"<order>{inside}</order>"


ORDERS = {
    "a": an_order(("chair", 9), ("table", 1)),
    "b": an_order(("table", 9), ("chair", 1)),
    "c": an_order(("sofa", 1)),
    "d": "<order>",
    "e": '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
}
FOUND = {"a": ["chairs", "first"], "b": [], "c": ["plain"]}


def test_what_is_no_document_is_rejected_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    library = compiled(spark, tmp_path, {"chairs": CHAIRS, "first": FIRST, "plain": PLAIN})
    rows = [*ORDERS.items(), ("f", None)]
    events = spark.createDataFrame(rows, "name string, text string")
    tally = Tally()
    results = events.transform(match(library, xml="text", keep=["name"], tally=tally)).collect()
    assert {one["name"]: one["subscriptions"] for one in results if one["error"] is None} == FOUND
    errors = {one["name"]: one["error"] for one in results if one["error"] is not None}
    assert [*errors] == ["d", "e", "f"]
    assert "not well-formed" in errors["d"]
    assert "a document type declaration" in errors["e"]
    assert errors["f"] == "there is no document: the text is null"
    counts = tally.counts()
    assert (counts.events, counts.rejected) == (6, 3)


def test_a_row_on_which_a_query_is_too_much_work_is_rejected(
    spark: SparkSession, tmp_path: Path
) -> None:
    asked = {"hard": Asked("//b[. = //c]", "xql"), "easy": Asked("a/b", "xql")}
    library = compiled(spark, tmp_path, asked)
    texts = ["<a>" + "<b>1<c>x</c></b>" * 6_000 + "</a>", "<a><b>x<c>x</c></b></a>", "<a><b/></a>"]
    events = spark.createDataFrame([*enumerate(texts)], "n int, text string")
    rows = events.transform(match(library, xml="text", keep=["n"])).collect()
    found = {row["n"]: row["error"] or row["subscriptions"] for row in rows}
    assert found == {0: "the query 'hard' is too much work on it", 1: ["easy"], 2: ["easy"]}


def test_files_of_xml_are_matched_at_once_and_in_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    library = compiled(spark, tmp_path, {"chairs": CHAIRS, "first": FIRST, "plain": PLAIN})
    folder = tmp_path / "orders"
    folder.mkdir()
    for name, text in ORDERS.items():
        (folder / f"{name}.xml").write_text(text)
    for results in (
        match_files(spark, library, folder),
        streamed(spark, library, folder, tmp_path),
    ):
        rows = results.collect()
        found = {Path(one["file"]).stem: one["subscriptions"] for one in rows if not one["error"]}
        assert found == FOUND
        assert sorted(Path(one["file"]).stem for one in rows if one["error"]) == ["d", "e"]


def streamed(spark: SparkSession, library: Library, folder: Path, place: Path) -> DataFrame:
    query = stream_files(
        spark, library, folder, to=place / "out", checkpoint=place / "checkpoint", once=True
    )
    query.awaitTermination()
    return read_results(spark, place / "out")


def test_subscriptions_that_are_checked_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    library = compiled(spark, tmp_path, {"chairs": CHAIRS, "first": FIRST, "plain": PLAIN})
    events = spark.createDataFrame([*ORDERS.items()][:3], "name string, text string")

    def now() -> dict[str, list[str]]:
        return found_in(events.transform(match(library, xml="text")), "name")

    def change(*rows: tuple[str, str, str | None, str | None]) -> None:
        schema = "change string, id string, filter string, language string"
        change_subscriptions(spark.createDataFrame(list(rows), schema), library)

    assert now() == FOUND
    change(("delete", "chairs", None, None))
    assert now() == {"a": ["first"], "b": [], "c": ["plain"]}
    change(
        ("insert", "sofas", "order/line[0]/sku = 'sofa'", "xql"),
        ("insert", "orders", "`/order` is present", "tamis"),
        ("update", "first", "order/line[2]/sku = 'chair'", "xpath"),
    )
    assert now() == {"a": ["orders"], "b": ["first", "orders"], "c": ["orders", "plain", "sofas"]}
    # The shard of changes is absorbed by the next, whatever order its rows were in.
    change(("delete", "sofas", None, None), ("insert", "chairs", CHAIRS.text, "xql"))
    assert now() == {"a": ["chairs", "orders"], "b": ["first", "orders"], "c": ["orders", "plain"]}


def test_where_elements_are_not_known_their_tests_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    library = compiled(spark, tmp_path, {"e": Asked("items[b = 1]", "tamis")})
    events = spark.createDataFrame([("<a/>",)], "text string")
    with pytest.raises(SchemaError, match="documents have none"):
        events.transform(match(library, xml="text"))
    columns = spark.sql("select array(named_struct('b', 1)) as items")
    with pytest.raises(SchemaError, match="columns have none: give the events as JSON"):
        columns.transform(match(library))
    with pytest.raises(SchemaError, match="in one column"):
        events.transform(match(library, xml="text", json="text"))

"""`tamis match --language xql`, on XML documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import tamis

CHAIRS = "<order><line><sku>chair</sku><quantity>{}</quantity></line></order>"
QUERY = "//line[sku = 'chair' $and$ quantity > 5]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "b.xml": CHAIRS.format(12),
        "a.xml": CHAIRS.format(2),
        "c.xml": "<order>\n<line></order>",
        "notes.txt": "no document",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_document_of_a_folder_is_printed_with_the_queries_it_satisfies(folder: Path) -> None:
    done = tamis("match", "--language", "xql", QUERY, folder)
    assert done.code == 0
    assert done.json == [
        {"document": str(folder / "a.xml"), "filters": []},
        {"document": str(folder / "b.xml"), "filters": ["1"]},
    ]
    assert done.err == (
        f"rejected: {folder / 'c.xml'}: line 2, column 15: this is not well-formed XML: </order> "
        "closes <line>, which was opened in line 2; write </line> there\n"
        "3 documents: 1 matched, 1 unmatched, 1 rejected\n"
    )


def test_one_document_comes_from_a_file_or_a_pipe(folder: Path) -> None:
    done = tamis("match", "-l", "xpath", "//quantity > 5", folder / "b.xml", "--format", "table")
    assert "b.xml" in done.out
    piped = tamis("match", "-l", "xpath", "//quantity > 5", stdin=CHAIRS.format(1))
    assert piped.code == 1
    assert piped.json == [{"document": "-", "filters": []}]


def test_queries_come_from_a_file_with_their_ids(folder: Path) -> None:
    queries = folder / "queries.txt"
    queries.write_text(
        f"# two\nmany: {QUERY}\n\nchair: //sku = 'chair'\n"
        '{"id": "x", "filter": "//line[1]", "language": "xpath"}\n'
    )
    done = tamis("match", "-l", "xql", "--filters", queries, folder, "--only-matched")
    assert [each["filters"] for each in done.json] == [["chair", "x"], ["many", "chair", "x"]]
    assert tamis("match", "-l", "xql", "-f", queries, folder, "--limit", "1").json == done.json[:1]


def test_a_query_that_is_too_much_work_is_undecided_and_said_so(folder: Path) -> None:
    (folder / "a.xml").write_text(f"<a>{'<b/>' * 2_000}</a>")
    queries = folder / "queries.txt"
    queries.write_text("slow: //*[//* = //*]\nquick: //b\n")
    done = tamis("match", "-l", "xql", "--filters", queries, folder / "a.xml")
    assert done.json[0]["filters"] == ["quick"]
    assert f"undecided: {folder / 'a.xml'}: slow: work of one evaluation" in done.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-l", "xql", "//a", "--raw"], "--raw is not for xql and xpath: a document is no line"),
        (["-l", "xql", "//a", "--cloudevents"], "--cloudevents is not for xql and xpath"),
        (["-l", "xpath", "//a", "--mode", "strict"], "--mode is not for xql and xpath: a query"),
        (["-l", "xpath", "//a", "--schema", "x.json"], "--schema is not for xql and xpath"),
        (["price < 5", "a.xml"], "a.xml is XML, and filters are for lines of JSON; for XML"),
        (["price < 5", "examples/orders"], "orders is a folder of XML, and filters are for lines"),
        (["-l", "xql"], "a query is missing: write one, or name a file"),
        (["-l", "xql", "//a", "tests"], "the folder tests has no file whose name ends with .xml"),
        (["-l", "xql", "//a[", "a.xml"], "missing at the end (line 1, column 5)"),
    ],
)
def test_wrong_combinations_get_a_sentence(arguments: list[str], sentence: str) -> None:
    done = tamis("match", *arguments)
    assert done.code == 2
    assert sentence in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("//a[", "queries.txt:2:5: a name, a path or a value is missing"),
        ('{"filter": "a = 1", "language": "tamis"}', "queries in xql or xpath, without a mode"),
        ("one: //b", "queries.txt:2: the id 'one' is already used"),
    ],
)
def test_mistakes_in_a_file_of_queries_show_their_place(
    folder: Path, line: str, sentence: str
) -> None:
    queries = folder / "queries.txt"
    queries.write_text(f"one: //a\n{line}\n")
    done = tamis("match", "-l", "xql", "--filters", queries, folder)
    assert done.code == 2
    assert sentence in done.err


def test_elements_of_json_are_tested_too(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(
        '{"items": [{"sku": "a", "qty": 5}, {"sku": "b", "qty": 1}]}\n'
        '{"items": [{"sku": "a", "qty": 1}, {"sku": "b", "qty": 7}]}\n'
    )
    done = tamis("match", 'items[sku = "a" and qty > 3]', events)
    assert [each["filters"] for each in done.json] == [["1"], []]

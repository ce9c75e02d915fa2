"""Documents as events: what their attributes are called, and which values they have."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from tamis.xml import Document
from tamis.xml.extracted import MAX_CHARACTERS
from tamis.xml.key_texts import number_key
from tamis.xml.node_patterns import document_attribute

ORDER = Document.parse(
    """<order number="17" xmlns:i="urn:item"><!-- 99 -->
      <line id="1"><sku>chair</sku><quantity> 007 </quantity></line>
      <line id="2"><sku>big
         table</sku><quantity>10</quantity><i:note i:by="me">hi<b>!</b></i:note></line>
      <sent>2026-01-31</sent><at>2026-01-31T12:00:00+01:00</at>
    </order>"""
)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("/", (True,)),
        ("/order/@number", ("17", 17)),
        ("/order/line/sku", ("chair", "big table")),
        ("//sku", ("chair", "big table")),
        ("//quantity", ("007", 7, "10", 10)),
        ("/order/*/@id", ("1", 1, "2", 2)),
        ("//@id", ("1", 1, "2", 2)),
        ("//@*", ("17", 17, "1", 1, "2", 2, "me")),
        ("/order/line/{urn:item}note", ("hi!",)),
        ("//{urn:item}*", ("hi!",)),
        ("//{urn:item}note/@{urn:item}by", ("me",)),
        ("/order/line/note", None),
        ("/order/sent", ("2026-01-31", date(2026, 1, 31))),
        (
            "//at",
            ("2026-01-31T12:00:00+01:00", datetime(2026, 1, 31, 11, tzinfo=UTC)),
        ),
        (
            "/order/line[number(quantity),sku]",
            (f"{number_key(7)}\x1fchair", f"{number_key(10)}\x1fbig table"),
        ),
        ("/order/line[@id,fold(sku)]", ("1\x1fchair", "2\x1fbig table")),
        ("/order/line[number(sku),@id]", None),
        ("/order/line/sku/text", None),
        ("price", None),
        ("/order[", None),
        ("order/line", None),
    ],
)
def test_attributes_are_found_by_their_names(name: str, values: tuple[object, ...] | None) -> None:
    found = ORDER.__attributes__({name})
    assert found == ({} if values is None else {name: values})


def test_many_attributes_are_found_together() -> None:
    names = {"/order/line/sku", "//sku", "/order//sku", "//line/@id", "/order/@number"}
    together = ORDER.__attributes__(names)
    alone = {name: ORDER.__attributes__({name})[name] for name in names}
    assert together == alone


def test_all_attributes_are_under_their_full_paths() -> None:
    found = ORDER.__attributes__(None)
    assert found["/order/line/quantity"] == ("007", 7, "10", 10)
    assert found["/order/line/@id"] == ("1", 1, "2", 2)
    assert found["/order"] == (True,)
    assert found["/order/line/{urn:item}note/b"] == ("!",)
    assert "//sku" not in found


@pytest.mark.parametrize(
    "name",
    ["/", "/a", "//a/@b", "/{urn:x/y}a//*", "//{u}*/@*", "//a[b,number(c/@d),fold(.)]"],
)
def test_names_are_read_as_they_are_written(name: str) -> None:
    assert str(document_attribute(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a",
        "/a/",
        "///a",
        "/@a/b",
        "/a[",
        "/a[]",
        "/a[b",
        "/a[//b,c]x",
        "/a[text(b),c]",
        "/a b[",
        "//a//*//b",
        "/*/*/*/*",
    ],
)
def test_other_names_are_none_of_documents(name: str) -> None:
    assert document_attribute(name) is None


def test_of_a_long_text_only_the_beginning_is_an_attribute() -> None:
    document = Document.parse(f"<a>{'x' * 5_000}</a>")
    assert document.__attributes__({"/a"}) == {"/a": ("x" * MAX_CHARACTERS,)}


def test_numbers_sort_as_their_keys_do() -> None:
    numbers = [-1e300, -(10**30), -2, -1.5, -0.0, 1e-300, 1, 2**53, 10**39, 1e300]
    keys = [number_key(number) for number in numbers]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert number_key(0) == number_key(-0.0)


def test_ever_new_names_of_elements_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.xml.extraction.MAX_TRANSITIONS", 10)
    for number in range(30):
        document = Document.parse(f"<a{number}><b>{number}</b></a{number}>")
        assert document.__attributes__({"//b"}) == {"//b": (str(number), number)}

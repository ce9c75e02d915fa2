"""What notebooks show is well-formed HTML that has all that matters, and is escaped."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import pytest

from tamis import Engine, attr, compare, message, parse

VOID = "<script>alert('&')</script>"


@dataclass
class Shout:
    text: str


class Reader(HTMLParser):
    """Collects texts and tags, and refuses tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(shown: Any) -> Reader:
    reader = Reader()
    reader.feed(shown._repr_html_())
    reader.close()
    assert reader.open == []
    assert "script" not in reader.tags
    return reader


def engine() -> Engine:
    made = Engine()
    made.add(VOID, attr("price") < 5)
    made.add("never", "price < 1 and price > 2")
    return made


@pytest.mark.parametrize(
    ("shown", "tag", "texts"),
    [
        (parse('a < 5 and b = "<b>&"'), "code", ['a < 5 and b = "<b>&"']),
        (message(Shout).text == VOID, "code", [f"message(Shout).text == {VOID!r}"]),
        (engine().explain(VOID, {"price": 9}), "li", ["✗ ", "price < 5"]),
        (engine().explain(VOID, {"price": 1}), "li", ["✓ ", "price < 5"]),
        (engine().lint(), "table", ["'never'", "never-true"]),
        (Engine().lint(), "p", ["no findings"]),
        (engine().match_batch([{"price": 1}, {"price": 9}]), "table", [repr(VOID), "1"]),
        (compare(attr("a") < 5, attr("a") < 9), "table", ["is covered by", "they intersect"]),
    ],
)
def test_notebooks_show_it(shown: Any, tag: str, texts: list[str]) -> None:
    reader = read(shown)
    assert tag in reader.tags
    for text in texts:
        assert any(text in found for found in ["".join(reader.texts), *reader.texts]), reader.texts


def test_much_is_cut() -> None:
    made = Engine()
    for number in range(30):
        made.add(number, "price > 0")
    shown = "".join(read(made.match_batch([{"price": 1}] * 300)).texts)
    assert "and 10 more" in shown
    assert "… 300 events in all" in shown
    assert len(read(attr("text") == "x" * 10_000).texts[0]) < 3_000


def test_every_space_of_a_filter_is_shown() -> None:
    shown = parse('a = "x  y"')._repr_html_()
    assert "white-space:pre-wrap" in shown
    assert "x  y" in shown

"""XQL gives what an equivalent XPath gives in lxml, on random documents and queries."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from lxml import etree

from seeds import seeds
from tamis.xml import Document, XMLKind, query

NAMES = "abc"
TEXTS = ("", "5", "7", "5.0", " 7 ", "x", "y", "x  y", "-1", "seven")
QUERIES = 400

Both = tuple[str, str]
"""A query in XQL, and the same in XPath."""


def random_document(random: Random, depth: int, ids: list[int]) -> str:
    ids.append(len(ids))
    name = random.choice(NAMES)
    attributes = "".join(
        f' {each}="{random.choice(TEXTS)}"' for each in "pq" if random.random() < 0.4
    )
    inside = random.choice(TEXTS)
    start = f'<{name} id="{ids[-1]}"{attributes}>{inside}'
    count = random.randint(0, 4) if depth else 0
    parts = [random_document(random, depth - 1, ids) for _ in range(count)]
    between = ["<!--5-->" if random.random() < 0.1 else "" for _ in parts]
    joined = "".join(part + more for part, more in zip(parts, between, strict=True))
    return f"{start}{joined}</{name}>"


class Queries:
    """Random queries in both languages."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def path(self, depth: int, *, is_inner: bool) -> Both:
        count = self._random.randint(1, 3)
        xql, xpath = "", ""
        for number in range(count):
            separator = self._random.choice(("/", "/", "//"))
            if number == 0 and is_inner:
                separator = self._random.choice(("", "", ".//"))
            steps = self.step(depth)
            xql, xpath = xql + separator + steps[0], xpath + separator + steps[1]
        if self._random.random() < 0.1 and depth:
            place = self.place()
            return f"({xql}){place[0]}", f"({xpath}){place[1]}"
        return xql, xpath

    def step(self, depth: int) -> Both:
        kind = self._random.randrange(12)
        if kind == 0:
            return "..", ".."
        if kind == 1:
            name = self._random.choice("pq")
            return f"@{name}", f"@{name}"
        if kind == 2:
            name = self._random.choice(NAMES)
            return f"ancestor({name})", f"ancestor::{name}[1]"
        name = self._random.choice((*NAMES, "*"))
        xql = xpath = name
        for _ in range(self._random.choice((0, 0, 1, 1, 2)) if depth else 0):
            kept = self.place() if self._random.random() < 0.4 else self.filter(depth)
            xql, xpath = xql + kept[0], xpath + kept[1]
        return xql, xpath

    def place(self) -> Both:
        first, second = self._random.randint(0, 3), self._random.randint(0, 3)
        choices = (
            (f"[{first}]", f"[{first + 1}]"),
            (f"[{-1 - first}]", f"[last() - {first}]"),
            (
                f"[{first} $to$ {second}]",
                f"[position() >= {first + 1} and position() <= {second + 1}]",
            ),
            (
                f"[{first}, {-1 - second}]",
                f"[position() = {first + 1} or position() = last() - {second}]",
            ),
            (f"[index() > {first}]", f"[position() > {first + 1}]"),
            (f"[count() >= {first}]", f"[last() >= {first}]"),
            ("[end()]", "[position() = last()]"),
        )
        return self._random.choice(choices)

    def filter(self, depth: int) -> Both:
        xql, xpath = self.condition(depth - 1)
        return f"[{xql}]", f"[{xpath}]"

    def condition(self, depth: int) -> Both:
        kind = self._random.randrange(6 if depth > 0 else 3)
        if kind == 0:
            return self.path(depth, is_inner=True)
        if kind <= 2:
            return self.comparison(depth)
        xql, xpath = self.condition(depth - 1)
        if kind == 3:
            return f"$not$ ({xql})", f"not({xpath})"
        other = self.condition(depth - 1)
        word = "and" if kind == 4 else "or"
        return f"({xql}) ${word}$ ({other[0]})", f"({xpath}) {word} ({other[1]})"

    def comparison(self, depth: int) -> Both:
        op = self._random.choice(("=", "!=", "<", "<=", ">", ">="))
        xql, xpath = self.path(max(depth, 0), is_inner=True)
        if self._random.random() < 0.2:
            number = self._random.randint(0, 3)
            return f"{xql}!count() {op} {number}", f"count({xpath}) {op} {number}"
        if self._random.random() < 0.5:
            literal = self._random.choice(("5", "7", "-1", "6.5"))
            test = f"number(.) = number(.) and number(.) {op} {literal}"
        else:
            op = "=" if op in {"=", "<", "<="} else "!="
            text = self._random.choice(TEXTS).strip().replace("  ", " ")
            literal, test = f"'{text}'", f"normalize-space(.) {op} '{text}'"
        if self._random.random() < 0.4:
            return f"$all$ {xql} {op} {literal}", f"not(({xpath})[not({test})])"
        return f"{xql} {op} {literal}", f"boolean(({xpath})[{test}])"


def found_by_tamis(document: Document, text: str) -> list[tuple[str, str]]:
    found = []
    for node in query(text).select(document):
        if node.kind is XMLKind.ATTRIBUTE:
            assert node.parent is not None
            found.append((node.parent.attributes[0].value, node.name))
        elif node.kind is XMLKind.ELEMENT:
            found.append((node.attributes[0].value, ""))
    return found


def found_by_lxml(tree: Any, text: str) -> list[tuple[str, str]]:
    return [lxml_label(each) for each in tree.xpath(text)]


def lxml_label(found: Any) -> tuple[str, str]:
    if isinstance(found, str):
        attribute: Any = found
        return attribute.getparent().get("id"), attribute.attrname
    return found.get("id"), ""


@pytest.mark.parametrize("seed", seeds(100))
def test_xql_finds_what_its_xpath_finds(seed: int) -> None:
    random = Random(seed)
    queries = Queries(random)
    not_empty = 0
    for number in range(QUERIES):
        if number % 20 == 0:
            text = random_document(random, 4, [])
            document, tree = Document.parse(text), etree.ElementTree(etree.fromstring(text))
        xql, xpath = queries.path(2, is_inner=False)
        found = found_by_tamis(document, xql)
        assert found == found_by_lxml(tree, xpath), (xql, xpath, text)
        not_empty += bool(found)
    assert not_empty > QUERIES // 10

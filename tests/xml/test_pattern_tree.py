"""Patterns followed together find the same nodes as each by itself, and cost what they find."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random
from time import process_time
from typing import Any

import pytest
from lxml import etree

from seeds import seeds
from tamis.xml import Document
from tamis.xml import extraction as extraction_module
from tamis.xml.extracted import values_of
from tamis.xml.extraction import DocumentExtraction
from tamis.xml.node_patterns import NodePattern, PatternStep

NAMES = ("a", "b", "c")
SPACES = ("", "urn:s")


def any_document(rng: Random) -> str:
    def element(depth: int) -> str:
        name = rng.choice(NAMES)
        prefix = rng.choice(("", "", "s:"))
        attribute = f' {rng.choice(("", "s:"))}{rng.choice(NAMES)}="{rng.randrange(9)}"'
        inner = "".join(element(depth + 1) for _ in range(rng.randrange(4 - depth)))
        shown = attribute if rng.random() < 0.5 else ""
        return f"<{prefix}{name}{shown}>{inner or rng.randrange(9)}</{prefix}{name}>"

    return f'<r xmlns:s="urn:s">{"".join(element(1) for _ in range(rng.randrange(1, 4)))}</r>'


def any_pattern(rng: Random) -> NodePattern:
    def step(*, is_attribute: bool) -> PatternStep:
        name = rng.choice((*NAMES, "r", None))
        namespace = rng.choice((*SPACES, None) if name is None else SPACES)
        if name is None and namespace == "":
            namespace = None
        return PatternStep(name, namespace, is_attribute, is_deep=rng.random() < 0.3)

    while True:
        found = NodePattern(tuple(any_steps(step, rng)))
        # Others are no names of attributes.
        if NodePattern.read(str(found)) == found:
            return found


def any_steps(step: Callable[..., PatternStep], rng: Random) -> list[PatternStep]:
    steps = [step(is_attribute=False) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.4:
        steps.append(step(is_attribute=True))
    return steps


def texts_at(steps: tuple[PatternStep, ...], element: Any) -> list[str]:
    """Return the texts that steps lead to from an element, each followed by itself."""
    first, rest = steps[0], steps[1:]
    if first.is_attribute:
        holders = element.iter("*") if first.is_deep else [element]
        held = (item for holder in holders for item in holder.attrib.items())
        return [value for tag, value in held if first.passes(tag)]
    below = element.iterdescendants("*") if first.is_deep else element.iterchildren("*")
    reached = [one for one in below if first.passes(one.tag)]
    if not rest:
        return ["".join(one.itertext()) for one in reached]
    return [text for one in reached for text in texts_at(rest, one)]


@pytest.mark.parametrize("seed", seeds(3_000, 60))
def test_patterns_followed_together_find_what_each_finds(seed: int) -> None:
    rng = Random(seed)
    root = etree.fromstring(any_document(rng))
    outside = etree.Element("outside")
    outside.append(root)
    patterns = {str(one): one for one in (any_pattern(rng) for _ in range(30))}
    found, _ = DocumentExtraction(patterns).attributes(root)
    for name, pattern in patterns.items():
        # The document itself has no attributes, but the element that stands for it has none either.
        texts = texts_at(pattern.steps, outside)
        wanted = {(type(one), one) for text in texts for one in values_of(text)}
        assert {(type(one), one) for one in found.get(name, ())} == wanted, name


def best_seconds(names: list[str], root: Any) -> float:
    seconds = []
    for _ in range(3):
        extraction = DocumentExtraction(names)
        begun = process_time()
        extraction.attributes(root)
        seconds.append(process_time() - begun)
    return min(seconds)


@pytest.mark.parametrize(
    "pattern",
    ["//q{}//x{}", "/r/q{}//x{}", "//q{}/@x{}", "//@x{}", "//q[a{},b{}]", "//q[@a{},@b{}]"],
)
def test_patterns_that_find_nothing_cost_hardly_anything(pattern: str) -> None:
    elements = "".join(f"<q{n}><q{n + 1} y='1'/></q{n}><q z='2'><c/></q>" for n in range(500))
    root = etree.fromstring(f"<r>{elements}</r>")
    few = best_seconds([pattern.format(n, n) for n in range(200)], root)
    many_ = best_seconds([pattern.format(n, n) for n in range(2_000)], root)
    assert many_ < 10 * few, (few, many_)


def test_what_is_kept_is_bounded_within_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction_module, "MAX_TRANSITIONS", 500)
    extraction = DocumentExtraction([f"//q{n}//x" for n in range(100)])
    nested = "".join(
        f"<q{n}><q{(7 * n + 1) % 100}><x>{n}</x></q{(7 * n + 1) % 100}></q{n}>" for n in range(100)
    )
    found, _ = extraction.attributes(etree.fromstring(f"<r>{nested}</r>"))
    assert {one for one in found["//q5//x"] if isinstance(one, str)} == {"5", "72"}
    assert len(extraction._states) < 500


def test_paths_that_are_very_vague_are_checked_after_the_engine() -> None:
    """An element would be looked at for each way to be vague about its path."""
    from tamis import Engine  # noqa: PLC0415

    engine = Engine()
    engine.add("vague", "//a//*//*/b = 'x'", language="xql")
    engine.add("plain", "//a//b = 'x'", language="xql")
    assert engine.match_xml("<a><c><d><b>x</b></d></c></a>") == ["vague", "plain"]
    assert engine.match_xml("<a><c><d><b>y</b></d></c></a>") == []
    assert engine.match_xml("<a><b>x</b></a>") == ["plain"]
    assert Document.parse("<a/>").__attributes__({"//a"}) == {"//a": ("",)}


@pytest.mark.parametrize("end", ["", "/@y"])
def test_new_names_below_many_branches_cost_hardly_anything(end: str) -> None:
    """Three times // can be placed in very many ways along one path, which all hold below it."""
    places = combinations(range(1, 13), 3)
    paths = [
        "".join("//a" if step in chosen else "/a" for step in range(1, 13)) + end
        for chosen in places
    ]
    nested = "<a>" * 30, "</a>" * 30
    few = etree.fromstring(nested[0] + "<n y='1'/>" * 3_000 + nested[1])
    many_ = etree.fromstring(
        nested[0] + "".join(f"<n{n} y='1'/>" for n in range(3_000)) + nested[1]
    )
    assert best_seconds(paths, many_) < 10 * best_seconds(paths, few) + 0.02

"""Pictures of diagrams: what they say is true, and nothing lies on top of anything else."""

from __future__ import annotations

import math
import re
import runpy
import shutil
import subprocess
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from xml.etree import ElementTree as ET

import pytest

from strategies import World, random_event, random_filter, random_world
from tamis.diagrams.drawing import draw
from tamis.diagrams.pictures import Picture
from tamis.diagrams.sketch import NO, YES
from tamis.errors import FilterError, LimitError
from tamis.events import Event, Schema, Value
from tamis.filters import Mode, attr
from tamis.filters.modes import View, view_of
from tamis.languages import parse
from tamis.matching import Engine

PC_WATCH = 'company in ("IBM", "Dell") and price <= 1000'
SVG = "{http://www.w3.org/2000/svg}"


def picture(*filters: str, schema: Schema | None = None, breakpoints: bool = False) -> Picture:
    named = {f"f{number}": parse(text) for number, text in enumerate(filters)}
    return Picture(named, Mode.SQL, schema, breakpoints=breakpoints)


def read_svg(drawn: Picture) -> ET.Element:
    return ET.fromstring(drawn.svg)  # noqa: S314 - of our own making


def questions(drawn: Picture) -> list[str]:
    return [box.question for box in drawn.sketch.boxes.values()]


@pytest.mark.parametrize(
    ("filter_", "asked"),
    [
        (PC_WATCH, ['company in ("Dell", "IBM")', "price <= 1000"]),
        ("x != 5", ["x != 5"]),
        ("not (x != 5)", ["x = 5"]),
        ("x > 9.5", ["x > 9.5"]),
        ("x >= 1 and x < 2", ["1 <= x < 2"]),
        ("x between 1 and 2", ["x between 1 and 2"]),
        ("x is absent", ["x is absent"]),
        ("x is present", ["x is absent"]),
        ("x is a number", ["x is a number"]),
        ("x = true", ["x = true"]),
        ('x starts with "ab"', ['x starts with "ab"']),
        ('x <= "ab"', ['x <= "ab"']),
        ('x = ""', ['x = ""']),
        ('x ends with "ab"', ["x is text", 'x ends with "ab"']),
        ('x contains "ab"', ["x is text", 'x contains "ab"']),
        ("x has any bit 0b1", ["x is a bit set", "x has all bits 0b1"]),
        ("`a b` = 1", ["`a b` = 1"]),
        ("x < 1 or x is absent", ["x is absent or x < 1"]),
        ("true", []),
        ("x < 1 and x > 2", []),
    ],
)
def test_boxes_ask_what_a_reader_would(filter_: str, asked: list[str]) -> None:
    assert questions(picture(filter_)) == asked


def test_with_breakpoints_every_node_is_drawn() -> None:
    schema = Schema({"company": "str", "price": "float"})
    assert questions(picture(PC_WATCH, schema=schema, breakpoints=True)) == [
        'company is absent or company < "Dell"',
        'company <= "Dell"',
        'company < "IBM"',
        'company <= "IBM"',
        "price is absent or price is NaN",
        "price <= 1000",
    ]


def test_filters_share_what_is_the_same() -> None:
    drawn = picture("a = 1 and b = 2", "a = 3 and b = 2", "b = 2", "not (b != 2)").sketch
    assert len(drawn.boxes) == 3
    assert sorted(map(list, drawn.roots.values())) == [["f0"], ["f1"], ["f2", "f3"]]
    assert drawn.bands == ["a", "b"]


def test_an_attribute_that_may_hold_several_is_asked_for_some_value() -> None:
    drawn = Picture({"both": parse('tag = "new" and tag = "red"')}, many=True)
    assert questions(drawn) == ['some tag = "new"', 'some tag = "red"']


def test_the_picture_is_one_of_well_formed_xml_with_everything_escaped() -> None:
    nasty = "<&\">'\\ ]]>\x07"
    filter_ = attr(nasty) == nasty
    drawn = Picture({nasty: filter_ & (attr("b") < 5)})
    root = read_svg(drawn)
    words = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert any('<&">' in word for word in words)
    assert "b < 5" in words
    assert r"\\" in drawn.dot
    assert '\\"' in drawn.dot


def test_long_questions_are_shortened_and_whole_in_the_title() -> None:
    values = ", ".join(f'"company number {n}"' for n in range(20))
    drawn = picture(f"company in ({values})")
    root = read_svg(drawn)
    assert all(len(text.text or "") <= 46 for text in root.iter(f"{SVG}text"))
    assert any("company number 19" in (t.text or "") for t in root.iter(f"{SVG}title"))


def test_a_picture_is_saved_by_the_ending_of_its_name(tmp_path: Path) -> None:
    drawn = picture(PC_WATCH)
    drawn.save(tmp_path / "a.svg")
    drawn.save(str(tmp_path / "a.dot"))
    assert (tmp_path / "a.svg").read_text() == drawn.svg == drawn._repr_svg_()
    assert (tmp_path / "a.dot").read_text() == drawn.dot
    with pytest.raises(ValueError, match=r"saved as \.svg or \.dot, and 'a.png' is neither"):
        drawn.save(tmp_path / "a.png")
    assert repr(drawn) == "<Picture of f0: 2 boxes>"


def test_a_picture_that_no_one_could_read_is_refused() -> None:
    wide = " or ".join(f"a{n} = {n} and b = {n}" for n in range(200))
    with pytest.raises(LimitError, match=r"boxes in the picture: \d+ exceeds the limit"):
        picture(wide)


def test_an_engine_draws_its_subscriptions_together() -> None:
    engine = Engine()
    engine.add("pc", PC_WATCH)
    engine.add(7, 'company = "IBM" and price <= 1000')
    engine.add("late", "price < 1", mode="strict")
    assert [list(names) for names in engine.draw("pc", 7).sketch.roots.values()] == [["pc"], ["7"]]
    assert engine.draw("pc").sketch.bands == ["company", "price"]
    with pytest.raises(FilterError, match="modes sql and strict cannot share a diagram"):
        engine.draw()
    with pytest.raises(FilterError, match="there is no subscription 'x'"):
        engine.draw("x")
    assert len(list(read_svg(Engine().draw()).iter())) > 2


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not here")
def test_graphviz_reads_what_is_written() -> None:
    text = picture(PC_WATCH, 'name = "a\\"b"').dot
    subprocess.run(["dot", "-Tsvg"], input=text.encode(), check=True, capture_output=True)  # noqa: S607


def test_the_pictures_in_the_documentation_are_up_to_date() -> None:
    root = Path(__file__).parents[2]
    drawn = runpy.run_path(str(root / "tools" / "draw_pictures.py"))["pictures"]()
    assert len(drawn) == 2
    for name, one in drawn.items():
        shown = (root / "docs" / "concepts" / name).read_text(encoding="utf-8")
        assert one.svg == shown, f"draw {name} anew"


# --- laws ------------------------------------------------------------------------------------


OTHER_TEXT = "some other text"


def answer(question: str, event: Event, others: Sequence[Value] = ()) -> bool:
    """Read a question as a filter again, and answer it; some may be about other texts."""
    if OTHER_TEXT in question:
        asked = question.replace(OTHER_TEXT, "text")
        return any(answer(asked, Event({"text": text})) for text in others)
    truths = []
    for part in question.split(" or "):
        if name := re.fullmatch(r"(.+) is NaN", part):
            plain = name[1].strip("`")
            truths.append(any(v != v for v in event.get(plain, ())))  # noqa: PLR0124
            continue
        both = re.fullmatch(r"(.+?) (<=?) (\S+|`.+`) (<=?) (.+)", part)
        text = f"{both[1]} {both[2]} {both[3]} and {both[3]} {both[4]} {both[5]}" if both else part
        truths.append(parse(text).truth_in(View(event, False)) is True)
    return any(truths)


def end_of(drawn: Picture, name: str, event: Event, others: Sequence[Value]) -> bool:
    """Walk from a root down to an end, by the answers to the questions."""
    (at,) = [root for root, names in drawn.sketch.roots.items() if name in names]
    while at not in (NO, YES):
        box = drawn.sketch.boxes[at]
        at = box.yes if answer(box.question, event, others) else box.no
    return at == YES


def with_one_value_each(world: World) -> World:
    if world.schema is None:
        return world
    single = {name: declared._replace(many=False) for name, declared in world.schema.items()}
    return World(world.names, Schema(single), exact=world.exact)


def with_one_value(event: Event) -> Event:
    return Event({}).with_values({name: values[:1] for name, values in event.items()})


@pytest.mark.parametrize("breakpoints", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_following_the_questions_ends_where_the_filter_does(seed: int, breakpoints: bool) -> None:
    rng = Random(seed)
    world = with_one_value_each(random_world(rng, typed=seed % 3 > 0, exact=True))
    mode = rng.choice((Mode.SQL, Mode.STRICT, Mode.DEFAULT))
    filters = {f"f{n}": random_filter(rng, world, 2) for n in range(3)}
    drawn = Picture(filters, mode, world.schema, breakpoints=breakpoints)
    mentioned = {name for filter_ in filters.values() for name in filter_.attributes()}
    for _ in range(60):
        event = with_one_value(random_event(rng, world))
        seen = view_of(event, mode, world.schema).event
        others = [values[0] for name, values in seen.items() if name not in mentioned]
        others = [value for value in others if isinstance(value, str)]
        for name, filter_ in filters.items():
            assert end_of(drawn, name, event, others) is filter_.matches(event, mode, world.schema)


@pytest.mark.parametrize("seed", range(15))
def test_no_box_lies_on_another_and_every_edge_goes_down(seed: int) -> None:
    rng = Random(seed)
    world = random_world(rng, typed=seed % 2 == 0)
    filters = {f"f{n}": random_filter(rng, world, 2) for n in range(4)}
    drawing = draw(Picture(filters, schema=world.schema).sketch)
    spots = [*drawing.boxes.values(), *drawing.pills.values()]
    spots += [drawing.match] if drawing.match else []
    for one, other in combinations(spots, 2):
        if math.isclose(one.y, other.y):
            assert abs(one.x - other.x) >= (one.width + other.width) / 2
    for curve in drawing.curves:
        heights = [y for _, y in curve.points]
        assert heights == sorted(heights)
        assert all(0 <= x <= drawing.width for x, _ in curve.points)
    for spot in spots:
        assert spot.x - spot.width / 2 >= 0
        assert spot.x + spot.width / 2 <= drawing.width

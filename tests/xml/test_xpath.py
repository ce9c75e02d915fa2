"""XPath 1.0: the conformance cases, and what no case can say."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from tamis.errors import FilterSyntaxError, FilterTypeError, LimitError
from tamis.xml import Document, XMLQuery, XMLQueryLimits, query
from tamis.xml.xpath import FUNCTION_NAMES
from xml_cases import cases, check

CASES = cases("xpath")


def xpath(text: str, **limits: int) -> XMLQuery:
    return query(text, language="xpath", limits=XMLQueryLimits(**limits))


@pytest.mark.parametrize(("topic", "case"), CASES)
def test_a_case_of_xpath(topic: Mapping[str, Any], case: Mapping[str, Any]) -> None:
    check(topic, case)


def test_there_are_at_least_100_cases() -> None:
    assert len(CASES) >= 100


def test_all_core_functions_are_in_cases() -> None:
    text = " ".join(case.values[1]["query"] for case in CASES)
    assert [name for name in FUNCTION_NAMES if f"{name}(" not in text] == []
    assert len(FUNCTION_NAMES) == 27


def test_only_nodes_can_be_selected() -> None:
    with pytest.raises(FilterTypeError, match="this query finds values, or is true or false"):
        xpath("count(//a)").select(Document.parse("<a/>"))


def test_a_number_that_is_not_one_does_not_match() -> None:
    document = Document.parse("<a>x</a>")
    assert not xpath("number(a)").matches(document)
    assert not xpath("count(b)").matches(document)
    assert xpath("count(a)").matches(document)


def test_users_have_no_functions_of_their_own() -> None:
    with pytest.raises(FilterTypeError, match="are a matter of XQL: XPath"):
        query("f(a)", language="xpath", functions={"f": max})


def test_a_mistake_is_shown_at_its_place() -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        xpath("//book[\n  prize > 5]/count(a)")
    assert str(refused.value) == (
        "count() cannot be a step of a path (line 2, column 14)\n    prize > 5]/count(a)\n"
        "               ^"
    )


@pytest.mark.parametrize("language", ["xql", "xpath"])
def test_control_characters_are_refused(language: str) -> None:
    with pytest.raises(FilterSyntaxError, match=r"the character U\+000B cannot be in XML"):
        query("a = 'x\x0by'", language=language)


def test_the_text_and_the_depth_of_a_query_are_limited() -> None:
    with pytest.raises(LimitError, match="characters in the query: 20,000 exceeds"):
        xpath("a" * 20_000)
    for text in ("(" * 5_000 + "a", "a[" * 5_000, "not(" * 3_000, "a" + "/b[(c" * 2_000):
        with pytest.raises(LimitError, match="levels of the query: more than 32"):
            xpath(text)
    with pytest.raises(LimitError, match="comparisons in a row: 9 exceeds the limit of 8"):
        xpath("1" + " = 1" * 9)


LONG = (
    "1" + " + 1" * 3_000,
    "-" * 10_000 + "1",
    "a" + " | a" * 3_000,
    "a" + " and a" * 2_000,
    "a" + "/a" * 7_000,
    "a" + "[1]" * 4_000,
    "(" * 31 + "1" + (" = 1" * 8 + ")") * 31,
    "a[" * 31 + "a" + " = 1 = 1 = 1 = 1 = 1 = 1 = 1 = 1]" * 31,
)


@pytest.mark.parametrize("number", range(len(LONG)))
def test_long_queries_do_not_recurse_deeper(number: int) -> None:
    xpath(LONG[number]).matches(Document.parse("<a><a/></a>"))


SIBLINGS = Document.parse("<a>" + "<b><c/></b>" * 40 + "</a>")
EXPONENTIAL = (
    "a/b" + "/../b" * 300,
    "//b" + "[../b" * 30 + "]" * 30,
    "//b" + "[count(../b" * 15 + ") > 1]" * 15,
    "//*" + "[.//*" * 15 + "]" * 15,
    "//*" + "/preceding::*/following::*" * 100,
    "//*" + "[preceding::*[following::*" * 10 + "]]" * 10,
    "//b" + "/ancestor::*/descendant::*" * 100,
    "//b" + "[ancestor::*[descendant::b" * 10 + "]]" * 10,
    "//*" + "[position() = last() or //*" * 15 + "]" * 15,
    "count(" + " | ".join(["//b/parent::*/child::*"] * 300) + ")",
    "//*[//* = //*][//* != //*][//* < //*]",
)


@pytest.mark.parametrize("number", range(len(EXPONENTIAL)))
def test_what_is_exponential_in_naive_evaluators_is_not(number: int) -> None:
    start = time.process_time()
    xpath(EXPONENTIAL[number]).matches(SIBLINGS)
    assert time.process_time() - start < 5


WIDE = Document.parse("<a>" + "<b/>" * 30_000 + "</a>")
TALL = Document.parse(
    "<a>" * 60 + ("<b " + " ".join(f'x{n}="1"' for n in range(200)) + "/>") * 300 + "</a>" * 60
)
DECLARED = Document.parse(
    "<a " + " ".join(f'xmlns:x{n}="u{n}"' for n in range(250)) + ">" + "<b/>" * 40_000 + "</a>"
)
LONG_TEXT = Document.parse("<a>" + "x y " * 200_000 + "</a>")
COSTLY = (
    (WIDE, "//b[preceding-sibling::b[position() = last()]]"),
    (WIDE, "//b[following::b[position() = last()]]"),
    (WIDE, "//b[" + " and ".join(["1"] * 2_500) + "]"),
    (WIDE, "//b[" + " or ".join(["/x"] * 2_500) + "]"),
    (WIDE, "//b[not(" + "/".join(["c"] * 4_000) + ")]" + "[not(c)]" * 100),
    (WIDE, "//b/c" + "[1]" * 4_000),
    (WIDE, "//b[" + "+".join(["1"] * 6_000) + "]"),
    (WIDE, "//b[concat(" + ",".join(["1"] * 6_000) + ")]"),
    (TALL, "//b[" + " and ".join(["count(preceding::*) > -1"] * 500) + "]"),
    (DECLARED, "count(//namespace::*)"),
    (DECLARED, "//b[namespace::*[last()]]"),
    (LONG_TEXT, "concat(" + ",".join(["/a"] * 3_000) + ")"),
    (LONG_TEXT, "string-length(" + "concat(.,.," * 20 + "'x'" + ")" * 21),
    (LONG_TEXT, " | ".join(["/a[contains(., 'xx')]"] * 500)),
    (LONG_TEXT, "count(" + " | ".join(["/a[translate(., 'x', 'y') = 'x']"] * 400) + ")"),
)


def refusal(text: str, document: Document, work: int) -> str:
    try:
        xpath(text, work=work).matches(document)
    except LimitError as error:
        return str(error)
    return "answered"


@pytest.mark.parametrize("number", range(len(COSTLY)))
@pytest.mark.parametrize("work", [100_000, pytest.param(2_000_000, marks=pytest.mark.slow)])
def test_work_is_limited(number: int, work: int) -> None:
    document, text = COSTLY[number]
    start = time.process_time()
    sentence = refusal(text, document, work)
    assert sentence.startswith(("answered", f"work of one evaluation: more than {work:,} exceeds"))
    assert time.process_time() - start < 10 * max(work / 2_000_000, 0.2)


def test_places_near_the_start_are_cheap_in_wide_documents() -> None:
    found = xpath("//b[not(following-sibling::b[1])]/preceding-sibling::b[2]").select(WIDE)
    assert [node.number for node in found] == [29_999]


def test_an_absolute_path_in_a_filter_is_evaluated_once() -> None:
    text = "".join(f"<d n='{n}'/><u r='{n * 2}'/>" for n in range(1_000))
    document = Document.parse(f"<a>{text}</a>")
    assert len(xpath("//u[count(//d) = 1000]", work=60_000).select(document)) == 1_000

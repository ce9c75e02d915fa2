"""XQL: the conformance cases, and what no case can say."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tamis.errors import FilterSyntaxError, FilterTypeError, LimitError, TamisError
from tamis.matching import Engine
from tamis.xml import Document, XMLQueryLimits, query
from xml_cases import cases, check

CASES = cases("xql")


@pytest.mark.parametrize(("topic", "case"), CASES)
def test_a_case_of_xql(topic: Mapping[str, Any], case: Mapping[str, Any]) -> None:
    check(topic, case)


def test_there_are_at_least_150_cases() -> None:
    assert len(CASES) >= 150


USER = """<User><Sex>female</Sex><Role>manager</Role>
<Address><Zip>1050</Zip><City>Wien</City></Address>
<Address><Zip>5473</Zip><City>Milano</City></Address></User>"""
LISTING_2 = (
    "./User/Role",
    "./User?[./Address/Zip $gt$ 1040 ]/Role",
    "./User?[./Address/Zip $gt$ 1040 $and$\n      Sex='female' ]/Role",
    "./User?[( $all$ ./Address/Zip $gt$ 1040) $and$\n      Sex='female' ][$any$ ./Role='manager' ]",
)


def test_listing_2_of_the_paper_works_as_printed() -> None:
    document = Document.parse(USER)
    poorer = Document.parse(USER.replace("5473", "1040"))
    assert [query(text).matches(document) for text in LISTING_2] == [True] * 4
    assert [query(text).matches(poorer) for text in LISTING_2] == [True] * 3 + [False]
    assert query(LISTING_2[1]).select(document)[0].xml == "<Role>manager</Role>"


def test_users_have_their_own_operators_and_functions() -> None:
    document = Document.parse(USER)
    starts = query(
        "//City[. $starts$ 'Wi']", operators={"starts": lambda a, b: str(a).startswith(str(b))}
    )
    assert [node.value for node in starts.select(document)] == ["Wien"]
    longest = query(
        "longest(//City, 'x') = 'Milano'",
        functions={"longest": lambda texts, _: max(texts, key=len)},
    )
    assert longest.matches(document)
    assert query(
        "$all$ //City $has$ 'i'", operators={"has": lambda a, b: str(b) in str(a)}
    ).matches(document)
    assert query(
        "User[even(Address!count())]", functions={"even": lambda n: n[0] % 2 == 0}
    ).matches(document)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"operators": {"eq": max}}, 'XQL has "eq" itself: give your operator another name'),
        ({"functions": {"text": max}}, 'XQL has "text" itself: give your function another name'),
        ({"operators": {"a b": max}}, "'a b' cannot be the name of an operator"),
        ({"functions": {"f": 5}}, 'the function "f" is not a function: 5'),
        (
            {"language": "xqll"},
            (
                "'xqll' is not a language of queries; they are 'xql' and 'xpath'; did you mean "
                '"xql"?'
            ),
        ),
        ({"namespaces": {"a b": "u"}}, "'a b' cannot be the prefix of a namespace"),
        ({"namespaces": {"a": ""}}, 'the prefix "a" must stand for a namespace'),
    ],
)
def test_a_wrong_argument_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FilterTypeError) as refused:
        query("a", **given)
    assert str(refused.value) == sentence


def test_a_mistake_is_shown_at_its_place() -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        query("//book[\n  price $gtt$ 5]")
    assert str(refused.value) == (
        '"$gtt$" is not an operator of XQL, nor one of yours; did you mean "$gt$"? '
        "(line 2, column 9)\n    price $gtt$ 5]\n          ^"
    )


@pytest.mark.parametrize("language", ["xql", "xpath"])
def test_a_query_may_declare_its_prefixes(language: str) -> None:
    document = Document.parse('<a xmlns:x="urn:n"><x:b>5</x:b><b>6</b></a>')
    text = "declare namespace n = 'urn:n';\ndeclare namespace m=\"urn:m\"; //n:b"
    assert [node.value for node in query(text, language=language).select(document)] == ["5"]
    # Its own come before those that are given.
    given = {"n": "urn:other", "o": "urn:n"}
    found = query(text + " | //o:b", language=language, namespaces=given).select(document)
    assert len(found) == 1
    engine = Engine()
    engine.add("declared", text + " = 5", language=language)
    assert engine.match_xml(document) == ["declared"]
    # These are names like others.
    assert query("declare/namespace", language=language).matches(
        Document.parse("<declare><namespace/></declare>")
    )


@pytest.mark.parametrize("namespace", ["a}b", "{", "a/b", "//", "a[b,c]", "@", "a`b", "u" * 3_000])
def test_a_declared_namespace_confuses_no_other_subscription(namespace: str) -> None:
    engine = Engine()
    engine.add("plain", "//b = 5", language="xql")
    prolog = f'declare namespace n = "{namespace}"; '
    for number, text in enumerate(("//n:b = 5", "a/n:b[n:c = 7 $and$ @n:d = 8]", "//n:* = 5")):
        engine.add(number, prolog + text, language="xql")
    assert engine.match_xml("<a><b>5</b></a>") == ["plain"]
    assert engine.match_xml_batch(["<a><b>5</b></a>"])[0] == ["plain"]


@pytest.mark.parametrize("language", ["xql", "xpath"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("//n:b", 'stands for no namespace; begin with: declare namespace n = "…";'),
        ("declare namespace n = 'u' //n:b", '";" is missing after the declaration'),
        ("declare namespace n 'u'; //n:b", '"=" is missing after the prefix'),
        ("declare namespace n = u; //n:b", "a namespace in quotes is needed here"),
        ("declare namespace n = ''; //n:b", "a namespace in quotes is needed here"),
        ("declare namespace n = 'u", "this ' is never closed"),
        ("declare namespace = 'u'; b", 'a prefix is needed here, not "="'),
        ("declare namespace xml = 'u'; b", 'the prefix "xml" is declared already'),
        (
            "declare namespace n = 'u'; declare namespace n = 'v'; b",
            'the prefix "n" is declared already',
        ),
        ("declare namespace n = 'u';", "the query is empty"),
        ("a == 5", 'missing before "="; write "=" once'),
        ("a && b", 'does not continue the query; write "and"'),
        ("a || b", 'missing before "|"; write "or"'),
    ],
)
def test_a_common_mistake_gets_a_hint(language: str, text: str, sentence: str) -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        query(text, language=language)
    assert sentence in str(refused.value)


def test_only_nodes_can_be_selected() -> None:
    with pytest.raises(FilterTypeError, match="this query finds values, or is true or false"):
        query("//a = 5").select(Document.parse("<a/>"))


def test_the_text_and_the_depth_of_a_query_are_limited() -> None:
    with pytest.raises(LimitError, match="characters in the query: 20,000 exceeds"):
        query("a" * 20_000)
    for text in ("(" * 5_000 + "a", "a[" * 5_000, "ancestor(" * 1_000 + "a", "a" + "/(b" * 3_000):
        with pytest.raises(LimitError, match="levels of the query: more than 32"):
            query(text)
    assert query("$not$ " * 2_001 + "a").matches(Document.parse("<b/>"))
    deep = query("a[" * 31 + "a" + "]" * 31)
    assert not deep.matches(Document.parse("<a><a/></a>"))
    with pytest.raises(ValueError, match="the limit on depth can be 32 at the most"):
        query("a", limits=XMLQueryLimits(depth=33))


SIBLINGS = Document.parse("<a>" + "<b><c/></b>" * 40 + "</a>")
EXPONENTIAL = (
    "a/b" + "/../b" * 300,
    "a/b" + "/../*" * 300 + "[c]",
    "//b" + "[../b" * 30 + "]" * 30,
    "//b" + "//.." * 30 + "//b" * 30,
    "//*" + "[.//*" * 15 + "]" * 15,
    "(//b" + " | //b" * 500 + ")",
    "//c" + "/ancestor(*[.//c" * 8 + "])" * 8,
)


@pytest.mark.parametrize("number", range(len(EXPONENTIAL)))
def test_what_is_exponential_in_naive_evaluators_is_not(number: int) -> None:
    start = time.process_time()
    query(EXPONENTIAL[number]).matches(SIBLINGS)
    assert time.process_time() - start < 5


def test_work_is_limited() -> None:
    slow = query("//*[//*[//* = //*]]", limits=XMLQueryLimits(work=50_000))
    with pytest.raises(LimitError, match="work of one evaluation: more than 50,000 exceeds") as no:
        slow.matches(SIBLINGS)
    assert str(no.value).endswith("make the query simpler, or the document smaller")


def test_long_texts_are_work() -> None:
    text = Document.parse("<a>" * 60 + "x y " * 200_000 + "</a>" * 60)
    start = time.process_time()
    with pytest.raises(LimitError, match="work of one evaluation"):
        query("//* = //*").matches(text)
    assert time.process_time() - start < 5


def test_white_space_is_that_of_xml() -> None:
    spaces = Document.parse("<r><x> a\t\n b </x><x>\u00a0a\u2003 b\u00a0</x></r>")
    assert query("//x!text()").evaluate(spaces) == ["a b", "\u00a0a\u2003 b\u00a0"]


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (lambda: query("a").matches("<a/>"), "evaluated on a document, not on 'str'"),  # type: ignore[arg-type]
        (lambda: query("a").select(None), "evaluated on a document, not on 'NoneType'"),  # type: ignore[arg-type]
        (lambda: query(5), "a query is a text, not 'int'"),  # type: ignore[arg-type]
        (lambda: query("a", language="xquery"), "'xquery' is not a language of queries"),
        (lambda: query("a[last()]"), 'it is one of XPath: write language="xpath"'),
        (lambda: Document.parse(None), "XML is a text or bytes, not 'NoneType'"),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_get_a_sentence(work: Callable[[], object], sentence: str) -> None:
    with pytest.raises(TamisError, match=re.escape(sentence)):
        work()


@pytest.mark.parametrize("text", ["o/zzz!count()", "o/a!index()", "o/a!nodeType()"])
def test_a_number_alone_is_neither_true_nor_false(text: str) -> None:
    document, found = Document.parse("<o><a/></o>"), query(text)
    found.evaluate(document)
    with pytest.raises(FilterTypeError, match=r"is a number, neither true nor false: compare it"):
        found.matches(document)
    with pytest.raises(FilterTypeError, match=r"is a number, neither true nor false: compare it"):
        found.translation()


def test_ignoring_case_is_work_by_the_length_of_texts() -> None:
    document = Document.parse("<r><x>" + "Ä" * 100_000 + "</x>" + "<y/>" * 1_000 + "</r>")
    few = XMLQueryLimits(work=200_000)
    assert not query("r/x = r/y", limits=few).matches(document)
    with pytest.raises(LimitError, match="work of one evaluation"):
        query("r/x $ieq$ r/y", limits=few).matches(document)


def test_many_ranges_of_places_are_work() -> None:
    document = Document.parse("<r>" + "<a/>" * 10_000 + "</r>")
    ranges = ",".join(["0$to$-1"] * 2_000)
    with pytest.raises(LimitError, match="work of one evaluation"):
        query(f"r/a[{ranges}]", limits=XMLQueryLimits(work=100_000)).matches(document)


@pytest.mark.parametrize("name", ["नाम", "ชื่อ", "cafe\u0301", "a\u0300", "a·b", "_x-1.2", "Ωmega"])
@pytest.mark.parametrize("language", ["xql", "xpath"])
def test_names_are_as_in_xml(name: str, language: str) -> None:
    document = Document.parse(f"<r><{name}>1</{name}></r>")
    assert query(f"//{name}", language=language).matches(document)
    engine = Engine()
    engine.add("all", f"//{name} = 1", language=language)
    assert engine.match_xml(document.text) == ["all"]

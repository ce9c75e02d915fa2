"""What a query finds, its translation lets through: on random documents, and in single cases."""

from __future__ import annotations

from random import Random

import pytest

from seeds import seeds
from tamis.diagrams.relations import covers
from tamis.errors import FilterSyntaxError, FilterTypeError
from tamis.events import Event
from tamis.filters import Filter
from tamis.filters.translations import SettledResidual
from tamis.matching import Engine
from tamis.xml import Document, XMLQuery, query
from xml_workload import NAMESPACES, RandomQueries, RandomXPaths, near, random_document

QUERIES = 100
DOCUMENTS = 20


def random_queries(random: Random, count: int) -> list[XMLQuery]:
    """Return queries, one in four in XPath."""
    found: list[XMLQuery] = []
    while len(found) < count:
        if random.random() < 0.25:
            text = RandomXPaths(random).query()
            found.append(query(text, language="xpath", namespaces=NAMESPACES))
            continue
        text = RandomQueries(random).query()
        try:
            found.append(query(text, namespaces=NAMESPACES, operators={"near": near}))
        except (FilterSyntaxError, FilterTypeError):
            continue
    return found


def let_through(each: XMLQuery, document: Document, *, correlated: bool = True) -> bool:
    return passes_filter(each.translation(correlated=correlated).filter, document)


def passes_filter(filter_: Filter, document: Document) -> bool:
    return filter_.matches(Event.of_checked(document.__attributes__(filter_.attributes())))


# 500 times 2,000 are a million pairs.
@pytest.mark.parametrize("seed", seeds(500))
def test_what_a_query_finds_its_translation_lets_through(seed: int) -> None:
    random = Random(seed)
    documents = [Document.parse(random_document(random)) for _ in range(DOCUMENTS)]
    found, settled, more = 0, 0, {True: 0, False: 0}
    for each in random_queries(random, QUERIES):
        matches = [each.matches(document) for document in documents]
        found += sum(matches)
        passed: dict[bool, list[bool]] = {True: [], False: []}
        for correlated in (True, False):
            filter_, residual, _ = each.translation(correlated=correlated)
            is_exact = residual is None
            for document, is_match in zip(documents, matches, strict=True):
                passes = passes_filter(filter_, document)
                assert passes or not is_match, (each.text, document.text)
                assert passes is is_match or not is_exact, (each.text, document.text)
                if isinstance(residual, SettledResidual) and residual.is_settled(document):
                    settled += 1
                    assert passes is is_match, (each.text, document.text)
                more[correlated] += passes and not is_match
                passed[correlated].append(passes)
        for document, with_keys, without in zip(documents, *passed.values(), strict=True):
            assert without or not with_keys, (each.text, document.text)
    assert found > QUERIES * DOCUMENTS // 20
    assert more[True] < more[False]
    assert settled > 0


@pytest.mark.parametrize("seed", seeds(40))
def test_engine_and_residuals_give_what_the_queries_give(seed: int) -> None:
    random = Random(seed)
    queries = random_queries(random, 60)
    documents = [Document.parse(random_document(random)) for _ in range(30)]
    engine = Engine()
    for number, each in enumerate(queries):
        engine.add(number, each)
    engine.add("plain", "price < 5")
    expected = [
        [number for number, each in enumerate(queries) if each.matches(document)]
        for document in documents
    ]
    batch = engine.match_xml_batch(document.text for document in documents)
    for number, document in enumerate(documents):
        assert sorted(map(int, engine.match_xml(document))) == expected[number]
        assert sorted(map(int, batch[number])) == expected[number]
    assert engine.match({"price": 3}) == ["plain"]


@pytest.mark.parametrize(
    ("text", "filter_", "is_exact"),
    [
        ("./User/Role", "`/User/Role` is present", True),
        (
            "./User?[./Address/Zip $gt$ 1040 $and$ Sex='female' ]/Role",
            '`/User/Address/Zip` > 1040 and `/User/Sex` = "female" and `/User/Role` is present',
            True,
        ),
        (
            "./User?[($all$ ./Address/Zip $gt$ 1040) $and$ Sex='female' ][$any$ ./Role='manager' ]",
            (
                "(not (`/User/Address/Zip` is a number) or not (`/User/Address/Zip` <= 1040)) and "
                '`/User/Address[other(Zip)]` is absent and `/User/Sex` = "female" and '
                '`/User/Role` = "manager"'
            ),
            True,
        ),
        ("//book[$not$ price > 30]", "`//book` is present", False),
        ("$not$ //book", "`/` is present and `//book` is absent", True),
        ("a/b[0] = 'x'", '`/a/b` = "x"', False),
        ("a/b/../c", "`/a/b` is present and `/a/c` is present", False),
        ("a//@id = 7", "`/a//@id` = 7", True),
        ("(a/b | a/c)/d = 7", "`/a/b/d` = 7 or `/a/c/d` = 7", True),
        ("a/b!count() > 1", "`/a/b` is present", False),
        ("a/b = ./c", "`/a/b` is present and `/c` is present", False),
    ],
)
def test_queries_become_filters(text: str, filter_: str, is_exact: bool) -> None:
    translation = query(text).translation()
    assert str(translation.filter) == filter_
    assert (translation.residual is None) is is_exact


VIENNA = "//Address[City = 'Wien' $and$ Zip {op} {zip}]"
ADDRESSES = Document.parse(
    "<User><Address><Zip>1050</Zip><City>Wien</City></Address>"
    "<Address><Zip>5473</Zip><City>Milano</City></Address></User>"
)


@pytest.mark.parametrize(
    ("op", "zip_", "expected"),
    [
        *(("=", "1050", True), ("=", "5473", False), ("<", "1050", False), ("<=", "1050", True)),
        *((">", "1049.5", True), (">", "1051", False), ("=", "'1050'", True)),
        *(("$ieq$", "'5473'", False), (">", "'104'", True), (">", "'2'", False)),
    ],
)
def test_it_is_known_which_zip_is_that_of_vienna(op: str, zip_: str, expected: bool) -> None:
    each = query(VIENNA.format(op=op, zip=zip_))
    assert let_through(each, ADDRESSES) is expected
    assert each.matches(ADDRESSES) is expected
    # Without keys there is a city of that name, and such a zip.
    assert let_through(each, ADDRESSES, correlated=False) is (op != "<")


def test_an_element_with_too_many_keys_is_let_through_and_checked() -> None:
    values = "".join(f"<z>{number}</z><c>{number}</c>" for number in range(20))
    document = Document.parse(f"<u><a>{values}</a></u>")
    engine = Engine()
    engine.add("both", "//a[z = 3 $and$ c = 17]", language="xql")
    engine.add("neither", "//a[z = 3 $and$ c = 17 $and$ c = 20]", language="xql")
    assert engine.match_xml(document) == ["both"]
    (key,) = (n for n in engine.filter("both")[0].attributes() if "[" in n)
    assert document.__attributes__({key}) == {key: ("\x1e",)}


def test_keys_settle_a_query_unless_there_are_too_many() -> None:
    each = query("//a[z = 3 $and$ c >= 17]")
    residual = each.translation().residual
    assert isinstance(residual, SettledResidual)
    few = Document.parse("<u><a><z>3</z><c>17</c></a></u>")
    values = "".join(f"<z>{number}</z><c>{number}</c>" for number in range(20))
    many = Document.parse(f"<u><a>{values}</a></u>")
    assert not residual.is_settled(few), "nobody has looked yet"
    assert let_through(each, few)
    assert residual.is_settled(few)
    assert let_through(each, many)
    assert not residual.is_settled(many)


@pytest.mark.parametrize(
    ("zips", "expected"),
    [
        *((("1050", "1060"), True), (("1050", "1030"), False), (("1050", "?"), False)),
        *(((), True), (("", "1050"), False), (("1e4", " 1050 "), True), (("9" * 450,), False)),
    ],
)
@pytest.mark.parametrize("text", ["User[$all$ Zip > 1040]", "$all$ User/Zip > 1040"])
def test_all_of_several_numbers_is_exact(text: str, zips: tuple[str, ...], expected: bool) -> None:
    each = query(text)
    document = Document.parse(f"<User>{''.join(f'<Zip>{each}</Zip>' for each in zips)}</User>")
    assert each.translation().residual is None
    assert each.matches(document) is let_through(each, document) is expected


def test_long_paths_and_many_alternatives_are_left_to_check() -> None:
    deep = query("/".join(["a"] * 3_000)).translation()
    assert str(deep.filter) == "`/` is present"
    assert deep.residual is not None
    wide = query("a/" + "/".join(["(b|c)"] * 20)).translation()
    assert wide.residual is not None
    assert sum(1 for _ in wide.filter.atoms()) < 600


def test_covering_is_decided_on_translations_and_unsure_where_something_is_left() -> None:
    wide, narrow = query("a[b > 5]"), query("a[b > 7 $and$ c]")
    assert covers(wide, narrow)
    assert not covers(narrow, wide)
    unsure = covers(query("//a[b[0] = 5]"), query("//a[b = 5]"))
    assert not unsure.yes
    assert "left" in str(unsure.reason) or "leaves" in str(unsure.reason)


@pytest.mark.parametrize(
    ("language", "text", "document"),
    [
        ("xql", "a < -9223372036854775808", "<a>-9223372036854775809</a>"),
        ("xql", "$not$ ($all$ //b >= 5)", "<a><b>x</b></a>"),
        ("xpath", "/a = 9007199254740992", "<a>9007199254740993</a>"),
        ("xpath", "/a > 5", f"<a>{'9' * 400}</a>"),
        ("xpath", "/a/b[@p = 5 and c > 5]", f"<a><b p='5'><c>{'9' * 400}</c></b></a>"),
        ("xpath", "/a != 5", "<a>x</a>"),
    ],
)
def test_numbers_at_the_limits_are_let_through(language: str, text: str, document: str) -> None:
    each, parsed = query(text, language=language), Document.parse(document)
    assert each.matches(parsed)
    assert let_through(each, parsed)


def test_all_of_several_huge_numbers_are_not_told_worse_with_keys() -> None:
    each = query("a[$all$ b/c = 9223372036854775807]")
    document = Document.parse("<a><b><c>x</c></b><b><c>7</c></b></a>")
    assert not each.matches(document)
    assert not let_through(each, document, correlated=False)
    assert not let_through(each, document)


def test_the_end_of_an_open_range_is_not_in_keys() -> None:
    rows = "<r><c>x</c><z>5</z></r><r><c>y</c><z>9</z></r><r><c>y</c><z>1</z></r>"
    document = Document.parse(f"<a>{rows}</a>")
    for op, expected in ((">", False), ("<", False), (">=", True), ("<=", True)):
        each = query(f"//r[c = 'x' $and$ z {op} 5]")
        assert let_through(each, document) is each.matches(document) is expected

"""XML text to documents: what is read, and what is refused, each with its sentence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tamis.errors import LimitError, TamisError, XMLError
from tamis.xml import Document, XMLKind, XMLLimits

SOME = """<?xml version="1.0" encoding="latin-1"?>
<!-- before --><?style sheet?>
<a x="1" y="&lt;2&gt;">one<b xmlns:p="urn:p" p:z="3">two<![CDATA[ & ]]></b><!--c-->three</a>
<!-- after -->"""


def shown(document: Document) -> list[tuple[str, str, str]]:
    return [(str(node.kind), node.qualified_name, node.value) for node in document.nodes[1:]]


def test_nodes_are_in_document_order() -> None:
    assert shown(Document.parse(SOME)) == [
        ("comment", "", " before "),
        ("instruction", "style", "sheet"),
        ("element", "a", "onetwo & three"),
        ("attribute", "x", "1"),
        ("attribute", "y", "<2>"),
        ("text", "", "one"),
        ("element", "b", "two & "),
        ("attribute", "p:z", "3"),
        ("text", "", "two & "),
        ("comment", "", "c"),
        ("text", "", "three"),
        ("comment", "", " after "),
    ]


def test_a_node_knows_where_it_is_and_what_is_in_it() -> None:
    nodes = Document.parse(SOME).nodes
    for node in nodes:
        assert nodes[node.number] is node
        for inside in (*node.attributes, *node.children):
            assert inside.parent is node
            assert node.number < inside.number <= inside.last <= node.last


def test_a_node_has_its_xml() -> None:
    by_kind = {node.kind: node.xml for node in Document.parse(SOME).nodes}
    assert by_kind[XMLKind.ATTRIBUTE] == 'p:z="3"'
    assert by_kind[XMLKind.TEXT] == "three"
    assert by_kind[XMLKind.COMMENT] == "<!-- after -->"
    assert by_kind[XMLKind.INSTRUCTION] == "<?style sheet?>"
    assert by_kind[XMLKind.ELEMENT] == '<b xmlns:p="urn:p" p:z="3">two &amp; </b>'
    assert by_kind[XMLKind.DOCUMENT].startswith("<!-- before --><?style sheet?><a x=")


def test_the_text_stays_as_it_was_given() -> None:
    assert Document.parse(SOME).text == SOME


@pytest.mark.parametrize(
    ("declared", "codec"),
    [
        ("", "utf-8"),
        ("", "utf-8-sig"),
        ("", "utf-16"),
        ("<?xml version='1.0' encoding='UTF-8'?>", "utf-8"),
        ("<?xml version='1.0' encoding='UTF-16'?>", "utf-16"),
        ("<?xml version='1.0' encoding='ISO-8859-1'?>", "latin-1"),
        ('<?xml version="1.0" encoding="windows-1252"?>', "cp1252"),
    ],
)
def test_bytes_are_decoded_as_they_say(declared: str, codec: str) -> None:
    document = Document.parse(f"{declared}<a>größer</a>".encode(codec))
    assert document.root.value == "größer"


LAUGHS = "".join(
    f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' if level else '<!ENTITY l0 "ha">'
    for level in range(10)
)
ATTACKS: dict[str, tuple[str | bytes, type[TamisError], str]] = {
    "billion laughs": (
        f"<?xml version='1.0'?>\n<!DOCTYPE a [{LAUGHS}]><a>&l9;</a>",
        XMLError,
        "line 2, column 1: a document type declaration (<!DOCTYPE …>) is not accepted, because",
    ),
    "quadratic blow-up": (
        f'<!DOCTYPE a [<!ENTITY x "{"y" * 50_000}">]><a>{"&x;" * 10_000}</a>',
        XMLError,
        "a document type declaration",
    ),
    "external entity": (
        '<!-- - --><!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        XMLError,
        "line 1, column 11: a document type declaration",
    ),
    "external document type": (
        '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd"><a/>',
        XMLError,
        "a document type declaration",
    ),
    "document type after an instruction": (
        "\ufeff <?p <!-- ?><!DOCTYPE a []><a/>",
        XMLError,
        "a document type declaration",
    ),
    "document type in UTF-16": (
        "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>".encode("utf-16"),
        XMLError,
        "a document type declaration",
    ),
    "parameter entity": ("<!DOCTYPE a [<!ENTITY % x 'y'> %x;]><a/>", XMLError, "<!DOCTYPE"),
    "unknown entity": ("<a>&nbsp;</a>", XMLError, "the entity &nbsp; is not known: without a DTD"),
    "10,000 deep": (
        "<a>" * 10_000 + "</a>" * 10_000,
        LimitError,
        "elements inside each other: 65 exceeds the limit of 64",
    ),
    "10,000 deep and never closed": (
        "<a>" * 10_000,
        LimitError,
        "elements inside each other: 65 exceeds the limit of 64",
    ),
    "giant attribute": (
        f'<a x="{"y" * 300_000}"/>',
        LimitError,
        "characters of one attribute: 300,000 exceeds the limit of 262,144",
    ),
    "many attributes": (
        "<a " + " ".join(f'x{number}=""' for number in range(20_000)) + "/>",
        LimitError,
        "attributes of one element: 20,000 exceeds the limit of 256",
    ),
    "many siblings": (
        f"<a>{'<b/>' * 200_000}</a>",
        LimitError,
        "nodes of the document: more than 20,000 exceeds the limit of 20,000",
    ),
    "many texts": (
        f"<a>{'<b/>.' * 12_000}</a>",
        LimitError,
        "nodes of the document: 24,001 exceeds the limit of 20,000",
    ),
    "a million siblings": (
        f"<a>{'<b/>' * 1_000_000}</a>",
        LimitError,
        "bytes of XML: 4,000,007 exceeds the limit of 1,048,576",
    ),
    "unterminated attribute": (
        "<a x='" + "y" * 900_000,
        XMLError,
        "this is not well-formed XML: ",
    ),
    "unterminated comment": ("<a><!--" + "-" * 900_000, XMLError, "this is not well-formed XML"),
    "unterminated character data": (
        "<a><![CDATA[" + "]" * 900_000,
        XMLError,
        "this is not well-formed XML",
    ),
    "unterminated instruction": ("<?p " + "?" * 900_000, XMLError, "this is not well-formed XML"),
    "unterminated tag": ("<" + "a" * 900_000, XMLError, "this is not well-formed XML"),
    "many namespaces": (
        "<a " + " ".join(f'xmlns:n{number}="u"' for number in range(30_000)) + "/>",
        LimitError,
        "attributes of one element: 30,000 exceeds the limit of 256",
    ),
    "a tag never closed": ("<a><b></a>", XMLError, "Opening and ending tag mismatch: b line 1"),
    "nothing": ("", XMLError, "there is no element in it"),
    "white space": (" \n ", XMLError, "there is no element in it"),
    "two documents": ("<a/><b/>", XMLError, "line 1, column 5: this is not well-formed XML"),
    "unknown prefix": ("<x:a/>", XMLError, "Namespace prefix x on a is not defined"),
    "control character": ("<a>\x01</a>", XMLError, "line 1, column 4: this is not well-formed"),
    "lone surrogate": ("<a>\ud800</a>", XMLError, "character 4: a lone surrogate"),
    "not UTF-8": (b"<a>\xff</a>", XMLError, "byte 4: this is not utf-8: invalid start byte"),
    "unusual encoding": (
        b"<?xml version='1.0' encoding='utf-7'?><a/>",
        XMLError,
        'the encoding "utf-7" is not read; use utf-8, ',
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_with_its_sentence(name: str) -> None:
    text, error, sentence = ATTACKS[name]
    start = time.process_time()
    with pytest.raises(error) as refused:
        Document.parse(text, limits=XMLLimits(nodes=20_000))
    assert type(refused.value) is error
    assert sentence in str(refused.value)
    assert len(str(refused.value)) < 400
    # Bounded: none takes a tenth of this on a slow machine.
    assert time.process_time() - start < 5


def test_nothing_of_a_file_or_of_the_network_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    for text in (
        f'<!DOCTYPE a [<!ENTITY x SYSTEM "{secret.as_uri()}">]><a>&x;</a>',
        f'<a xmlns:i="http://www.w3.org/2001/XInclude"><i:include href="{secret.as_uri()}"/></a>',
        f'<?xml-stylesheet href="{secret.as_uri()}"?><a/>',
    ):
        try:
            assert "secret" not in Document.parse(text).root.value
        except XMLError as error:
            assert "document type" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("<a>5</a>", XMLLimits(size=8)),
        ("<a><b><c/></b></a>", XMLLimits(depth=3)),
        ("<a x='1'>t<!--c--></a>", XMLLimits(nodes=4)),
        ("<a x='1' y='2'/>", XMLLimits(attributes=2)),
        ("<a x='12345'/>", XMLLimits(value=5)),
    ],
)
def test_a_limit_is_the_most_that_is_allowed(text: str, limits: XMLLimits) -> None:
    Document.parse(text, limits=limits)
    (which,) = [name for name in limits._fields if getattr(limits, name) < 10]
    lower = limits._replace(**{which: getattr(limits, which) - 1})
    with pytest.raises(LimitError):
        Document.parse(text, limits=lower)


def test_a_depth_beyond_what_the_parser_allows_is_refused() -> None:
    with pytest.raises(ValueError, match="the limit on depth can be 200 at the most, not 201"):
        Document.parse("<a/>", limits=XMLLimits(depth=201))
    deep = "<a>" * 200 + "</a>" * 200
    assert len(Document.parse(deep, limits=XMLLimits(depth=200)).nodes) == 201

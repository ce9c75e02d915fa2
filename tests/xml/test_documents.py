"""XML text to documents: what is read, and what is refused, each with its sentence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from lxml import etree

from tamis.errors import LimitError, XMLError
from tamis.xml import Document, XMLKind, XMLLimits, query
from tamis.xml.decoding import decode_document, encode_document
from xml_attacks import ATTACKS

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
        ("<?xml version='1.0' encoding='utf8'?>", "utf-8"),
        # A mark decides before the declaration does.
        ("<?xml version='1.0' encoding='ISO-8859-1'?>", "utf-8-sig"),
        ("<?xml version='1.0' encoding='ISO-8859-1'?>", "utf-16"),
    ],
)
def test_bytes_are_decoded_as_they_say(declared: str, codec: str) -> None:
    document = Document.parse(f"{declared}<a>größer</a>".encode(codec))
    assert document.root.value == "größer"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("<?xml version='1.0' encoding='UTF-16'?><a/>".encode("utf-16-le"), "without its mark"),
        ("<a>€</a>".encode("utf-16-be"), "this is UTF-16 without its mark: write the bytes FF FE"),
        ("<a/>".encode("utf-32"), "UTF-32 is not read; send the document as UTF-8"),
        (b"\xef\xbb\xbf<a>\xe4</a>", "byte 7: this is not utf-8"),
        (b"<?xml version='1.0' encoding='utf-7'?><a/>", 'the encoding "utf-7" is not read; use'),
    ],
    ids=["UTF-16 LE", "UTF-16 BE", "UTF-32", "a mark alone", "UTF-7"],
)
def test_bytes_that_cannot_be_decoded_are_refused(given: bytes, sentence: str) -> None:
    with pytest.raises(XMLError) as refused:
        Document.parse(given)
    assert sentence in str(refused.value)


def declaration(encoding: str) -> str:
    return f"<?xml version='1.0' encoding='{encoding}'?>"


@pytest.mark.parametrize(
    ("text", "charset", "declared"),
    [
        ("<a>größer €</a>", "utf-8", ""),
        ("\ufeff<a>größer €</a>", "utf-8", ""),
        (declaration("UTF-8") + "<a>größer €</a>", "utf-8", "UTF-8"),
        (declaration("utf8") + "<a>größer</a>", "utf-8", "utf8"),
        (declaration("ISO-8859-1") + "<a>größer</a>", "iso-8859-1", "ISO-8859-1"),
        (declaration("iso-8859-15") + "<a>größer €</a>", "iso-8859-15", "iso-8859-15"),
        (declaration("UTF-16") + "<a>größer €</a>", "utf-16", "UTF-16"),
        ("\ufeff" + declaration("UTF-16") + "<a>größer €</a>", "utf-16", "UTF-16"),
        # These cannot be true.
        (declaration("ISO-8859-1") + "<a>größer €</a>", "utf-8", "UTF-8"),
        (declaration("us-ascii") + "<a>größer</a>", "utf-8", "UTF-8"),
        (declaration("shift_jis") + "<a>größer</a>", "utf-8", "UTF-8"),
        ("\ufeff" + declaration("ISO-8859-1") + "<a>größer</a>", "utf-8", "UTF-8"),
    ],
)
def test_bytes_are_encoded_as_they_declare(text: str, charset: str, declared: str) -> None:
    content, told = encode_document(text)
    assert told == charset
    again = decode_document(content)
    assert again[again.index("<a>") :] == text[text.index("<a>") :]
    assert declared in again
    # Other readers agree.
    assert etree.fromstring(content).text == Document.parse(text).root.value


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


MISTAKES = {
    "<a xmlns='größe'/>": 'the namespace "größe" is no URI: write what is not ASCII, and',
    "<a xmlns:b='a b'/>": 'the namespace "a b" is no URI',
    "<a>\n<b></a>": "line 2, column 8: … </a> closes <b>, which was opened in line 2; write </b>",
    "<a>": "the text ends, and <a> of line 1 is not closed; write </a>",
    "<a": 'a ">" is missing at the end of the tag <a',
    "<a></a ": 'a ">" is missing at the end of a closing tag',
    "<a b>": 'the attribute b has no value; write b="…"',
    "<a b=c/>": "the value of an attribute stands in quotes",
    "<a b='1' b='2'/>": "the attribute b is there twice; leave one out",
    "<a xmlns='u' xmlns='v'/>": "the attribute xmlns is there twice; leave one out",
    "<a xmlns:p='urn:u' xmlns:q='urn:u' p:x='1' q:x='2'/>": (
        'the attribute x of "urn:u" is there twice, under two prefixes; leave one out'
    ),
    "<a b='<'/>": 'there is a "<" in the value of an attribute; write &lt;',
    "<a b='1": "the value of an attribute is not closed: its last quote is missing",
    "<a>& b</a>": 'a "&" stands alone; write &amp;',
    "<a>&amp</a>": 'a ";" is missing after an entity',
    "<a>&#0;</a>": "the character number 0 is none that XML allows",
    "<a>&#1114112;</a>": "this character is none that XML allows",
    "<a>&#xZ;</a>": "a character is written as &#xE4; with its number",
    "<a>&#Z;</a>": "a character is written as &#228; with its number",
    '{"a": 1}': 'there is no element: XML begins with "<"',
    "<1a/>": 'a name is missing after "<"; for the character itself, write &lt;',
    "<a b='1'c='2'/>": "a blank is missing between attributes",
    "<a><!-- a": "a comment is not closed: its --> is missing",
    "<a><!-- a -- b --></a>": 'a comment must not have "--" in it',
    "<a><?p": "a processing instruction is not closed: its ?> is missing",
    "<a><?p x": "a processing instruction is not closed: its ?> is missing",
    "<a><?xml version='1.0'?></a>": "may only be the very beginning of the text",
    "<a>]]></a>": '"]]>" stands outside of a CDATA section; write ]]&gt;',
    "<a x:b='1'/>": "the prefix x stands for no namespace; declare it, as in xmlns:x=",
    "<a:b:c xmlns:a='u'/>": "a:b:c is no name with one prefix",
    "<a xmlns:x=''/>": "xmlns:x declares no namespace; write one, or leave it out",
    "<a xmlns:xml='u'/>": "the prefixes xml and xmlns stand for what they always do",
    "<?xml version='2.0'?><a/>": 'the version 2.0 is not read; write "1.0"',
    "<?xml encoding='utf-8'?><a/>": "a version is missing",
    "<?xml version='1.0'><a/>": "<?xml …?> at the beginning is not closed by ?>",
    "<?xml version='1.0' standalone='maybe'?><a/>": "standalone is yes or no; leave it out",
}
WORDS_OF_THE_PARSER = (
    "mismatch",
    "Premature",
    "AttValue",
    "EntityRef",
    "PCDATA",
    "expected",
    "xmlP",
)


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_said_in_words_of_ours_with_its_place(text: str) -> None:
    with pytest.raises(XMLError) as refused:
        Document.parse(text)
    place, _, said = MISTAKES[text].rpartition(" … ")
    assert said in str(refused.value)
    assert str(refused.value).startswith(place or "line 1, column ")
    assert "is mistaken here" not in str(refused.value)
    assert not any(word in str(refused.value) for word in WORDS_OF_THE_PARSER)


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


def test_notebooks_show_documents_queries_and_what_they_find_escaped() -> None:
    document = Document.parse("<a><b>1 &lt; 2</b></a>")
    assert "&lt;b&gt;1 &amp;lt; 2&lt;/b&gt;" in document._repr_html_()
    assert "<p>4 nodes</p>" in document._repr_html_()
    found = query("//b").select(document)
    assert found == [document.nodes[2]]
    shown = found._repr_html_()  # type: ignore[attr-defined]
    assert "element" in shown
    assert "&lt;b&gt;1 &amp;lt; 2&lt;/b&gt;" in shown
    assert "//b" in query("//b")._repr_html_()
    many = Document.parse(f"<a>{'<b/>' * 500}</a>")
    assert "500 nodes in all" in query("//b").select(many)._repr_html_()  # type: ignore[attr-defined]


@pytest.mark.parametrize("marks", [2, 3])
@pytest.mark.parametrize("encoding", [None, "utf-8", "utf-16"])
def test_marks_of_the_byte_order_hide_no_document_type(marks: int, encoding: str | None) -> None:
    text = "\ufeff" * marks + '<!DOCTYPE a [<!ENTITY x "yy">]><a b="&x;"/>'
    with pytest.raises(XMLError, match=r"two byte order marks|document type declaration"):
        Document.parse(text if encoding is None else text.encode(encoding))


def declared(levels: int, on_each: int) -> str:
    return "".join(
        "<a " + " ".join(f'xmlns:p{level}_{n}="u"' for n in range(on_each)) + ">"
        for level in range(levels)
    )


@pytest.mark.parametrize(
    ("levels", "on_each", "inside"),
    [(12, 200, "<b/>" * 3_000), (1, 250, "<b/>" * 15_000), (60, 200, '<b p0_0:x=""/>' * 400)],
)
def test_many_namespaces_around_many_elements_take_little_time(
    levels: int, on_each: int, inside: str
) -> None:
    text = declared(levels, on_each) + inside + "</a>" * levels
    before = time.process_time()
    assert len(Document.parse(text).nodes) > 800
    assert time.process_time() - before < 2


def test_attributes_have_the_prefix_that_was_written() -> None:
    text = '<a xmlns:p="u" xmlns:q="u"><b p:x="1" q:y="2" z="3" xml:lang="en"/></a>'
    names = [node.qualified_name for node in Document.parse(text).nodes]
    assert [name for name in names if name not in {"", "a", "b"}] == ["p:x", "q:y", "z", "xml:lang"]

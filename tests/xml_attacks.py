"""Texts that are made to do harm, or are no XML, each with the sentence that refuses it."""

from __future__ import annotations

from tamis.errors import LimitError, TamisError, XMLError

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
        "the value of an attribute is not closed: its last quote is missing",
    ),
    "unterminated comment": (
        "<a><!--" + "-" * 900_000,
        XMLError,
        "a comment",
    ),
    "unterminated character data": (
        "<a><![CDATA[" + "]" * 900_000,
        XMLError,
        "a CDATA section is not closed: its ]]> is missing",
    ),
    "unterminated instruction": (
        "<?p " + "?" * 900_000,
        XMLError,
        "a processing instruction is not closed: its ?> is missing",
    ),
    "unterminated tag": (
        "<" + "a" * 900_000,
        XMLError,
        "a name has more than 50,000 characters",
    ),
    "many namespaces": (
        "<a " + " ".join(f'xmlns:n{number}="u"' for number in range(30_000)) + "/>",
        LimitError,
        "attributes of one element: 30,000 exceeds the limit of 256",
    ),
    "a tag never closed": ("<a><b></a>", XMLError, "</a> closes <b>, which was opened in line 1"),
    "nothing": ("", XMLError, "there is no element in it"),
    "white space": (" \n ", XMLError, "there is no element in it"),
    "two documents": (
        "<a/><b/>",
        XMLError,
        "line 1, column 5: this is not well-formed XML: something follows the outermost element",
    ),
    "unknown prefix": ("<x:a/>", XMLError, "the prefix x stands for no namespace; declare it"),
    "control character": (
        "<a>\x01</a>",
        XMLError,
        "line 1, column 4: this is not well-formed XML: the character number 1 is none that",
    ),
    "lone surrogate": ("<a>\ud800</a>", XMLError, "character 4: a lone surrogate"),
    "not UTF-8": (b"<a>\xff</a>", XMLError, "byte 4: this is not utf-8: invalid start byte"),
    "unusual encoding": (
        b"<?xml version='1.0' encoding='utf-7'?><a/>",
        XMLError,
        'the encoding "utf-7" is not read; use utf-8, ',
    ),
}

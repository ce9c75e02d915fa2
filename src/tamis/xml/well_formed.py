"""What is wrong with a text that is not well-formed XML, in a sentence of ours.

libxml2 finds the mistake and says what it is by the name of an error; its words are for those who
know how it works.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_PREDEFINED: Final = "&amp; &lt; &gt; &quot; &apos; and numbers such as &#228;"
_PREFIX: Final = 'declare it, as in xmlns:{0}="urn:example", or leave it out'

# By the name of libxml2's error: a pattern of its message, and what to say with the groups of it.
_SENTENCES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "ERR_TAG_NAME_MISMATCH": (
        (
            r"Opening and ending tag mismatch: (\S+) line (\d+) and (\S+)",
            "</{2}> closes <{0}>, which was opened in line {1}; write </{0}> there",
        ),
    ),
    "ERR_TAG_NOT_FINISHED": (
        (
            r"Premature end of data in tag (\S+) line (\d+)",
            "the text ends, and <{0}> of line {1} is not closed; write </{0}>",
        ),
    ),
    "ERR_GT_REQUIRED": (
        (r"Couldn't find end of Start Tag (\S+)", 'a ">" is missing at the end of the tag <{0}'),
        (r"", 'a ">" is missing at the end of a closing tag'),
    ),
    "ERR_ATTRIBUTE_WITHOUT_VALUE": (
        (r".* for attribute (\S+)", 'the attribute {0} has no value; write {0}="…"'),
    ),
    "ERR_ATTRIBUTE_NOT_STARTED": ((r"", "the value of an attribute stands in quotes"),),
    "ERR_ATTRIBUTE_NOT_FINISHED": (
        (r"", "the value of an attribute is not closed: its last quote is missing"),
    ),
    "ERR_ATTRIBUTE_REDEFINED": (
        (r"Attribute (\S+) redefined", "the attribute {0} is there twice; leave one out"),
    ),
    "ERR_LT_IN_ATTRIBUTE": ((r"", 'there is a "<" in the value of an attribute; write &lt;'),),
    "ERR_UNDECLARED_ENTITY": (
        (
            r"Entity '(.{1,100}?)' not defined",
            f"the entity &{{0}}; is not known: without a DTD there are {_PREDEFINED}",
        ),
    ),
    "ERR_NAME_REQUIRED": (
        (r"xmlParseEntityRef", 'a "&" stands alone; write &amp;'),
        (r"", 'a name is missing after "<"; for the character itself, write &lt;'),
    ),
    "ERR_ENTITYREF_SEMICOL_MISSING": (
        (r"", 'a ";" is missing after an entity; for the character "&" itself, write &amp;'),
    ),
    "ERR_INVALID_HEX_CHARREF": ((r"", "a character is written as &#xE4; with its number"),),
    "ERR_INVALID_DEC_CHARREF": ((r"", "a character is written as &#228; with its number"),),
    "ERR_INVALID_CHAR": (
        (
            r"(?:PCDATA|xmlParseCharRef:) invalid (?:Char|xmlChar) value (\d+)",
            "the character number {0} is none that XML allows; leave it out",
        ),
        (r"", "this character is none that XML allows; leave it out"),
    ),
    "ERR_DOCUMENT_END": (
        (r"", "something follows the outermost element; a document has one, and holds all"),
    ),
    "ERR_DOCUMENT_EMPTY": ((r"", 'there is no element: XML begins with "<"'),),
    "ERR_SPACE_REQUIRED": (
        (r"Blank", "<?xml …?> at the beginning is not closed by ?>, or lacks a blank"),
        (r"ParsePI", "a processing instruction is not closed: its ?> is missing"),
        (r"", "a blank is missing between attributes, or one is no name with a value"),
    ),
    "ERR_COMMENT_NOT_FINISHED": ((r"", "a comment is not closed: its --> is missing"),),
    "ERR_HYPHEN_IN_COMMENT": ((r"", 'a comment must not have "--" in it'),),
    "ERR_PI_NOT_FINISHED": ((r"", "a processing instruction is not closed: its ?> is missing"),),
    "ERR_RESERVED_XML_NAME": (
        (r"", "<?xml …?> with a version may only be the very beginning of the text"),
    ),
    "ERR_CDATA_NOT_FINISHED": ((r"", "a CDATA section is not closed: its ]]> is missing"),),
    "ERR_MISPLACED_CDATA_END": ((r"", '"]]>" stands outside of a CDATA section; write ]]&gt;'),),
    "NS_ERR_UNDEFINED_NAMESPACE": (
        (
            r"Namespace prefix (\S+) (?:for (\S+) )?on",
            f"the prefix {{0}} stands for no namespace; {_PREFIX}",
        ),
    ),
    "WAR_NS_URI": (
        (
            r"xmlns\S*: '(.{1,200}?)' is not a valid URI",
            'the namespace "{0}" is no URI: write what is not ASCII, and blanks, as %…',
        ),
    ),
    "NS_ERR_ATTRIBUTE_REDEFINED": (
        (
            r"Namespaced Attribute (\S+) in '(.{1,200}?)' redefined",
            'the attribute {0} of "{1}" is there twice, under two prefixes; leave one out',
        ),
    ),
    "NS_ERR_QNAME": (
        (r"Failed to parse QName '(.{1,100}?)'", "{0} is no name with one prefix, such as a:b"),
    ),
    "NS_ERR_XML_NAMESPACE": (
        (r"(\S+): Empty", "{0} declares no namespace; write one, or leave it out"),
        (r"", "the prefixes xml and xmlns stand for what they always do; choose another"),
    ),
    "ERR_UNKNOWN_VERSION": (
        (r"Unsupported version '(.{1,40}?)'", 'the version {0} is not read; write "1.0"'),
    ),
    "ERR_VERSION_MISSING": ((r"", 'a version is missing; write <?xml version="1.0"?>'),),
    "ERR_XMLDECL_NOT_FINISHED": ((r"", "<?xml …?> at the beginning is not closed by ?>"),),
    "ERR_STANDALONE_VALUE": ((r"", "standalone is yes or no; leave it out"),),
    "ERR_NAME_TOO_LONG": ((r"", "a name has more than 50,000 characters"),),
    "ERR_LTSLASH_REQUIRED": ((r"", 'a closing tag, which begins with "</", is missing'),),
    "ERR_INTERNAL_ERROR": ((r"", "a part of the text is larger than the parser takes"),),
    "ERR_RESOURCE_LIMIT": ((r"", "a part of the text is larger than the parser takes"),),
}


def sentence_of(name: str, message: str) -> str:
    """Return what is wrong, given the name of libxml2's error and its message.

    >>> sentence_of("ERR_TAG_NAME_MISMATCH", "Opening and ending tag mismatch: b line 1 and a")
    '</a> closes <b>, which was opened in line 1; write </b> there'
    """
    for pattern, sentence in _SENTENCES.get(name, ()):
        found = re.match(pattern, message)
        if found is not None:
            return sentence.format(*(_brief(group) for group in found.groups("")))
    return "the markup is mistaken here"


def _brief(name: str) -> str:
    return name if len(name) <= 60 else name[:59] + "…"

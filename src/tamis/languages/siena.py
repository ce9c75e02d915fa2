"""Siena filters: triples of attribute, operator and value, all of which must hold.

::

    {(author, *, "Stein") (edition, >, 1)}
    [["author", "*", "Stein"], {"attribute": "edition", "op": ">", "value": 1}]

A triple with an absent attribute is false, as in Siena; `any` only requires its presence. The
operators are those of "An Efficient Implementation of Query/Advertise" (Heimbigner 2003), table 1,
with the bit-set operators that its remark on Site-Select asks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tamis import diagrams
from tamis.errors import FilterSyntaxError, FilterTypeError
from tamis.events import Bits
from tamis.events.json_text import DECODER
from tamis.events.schema import did_you_mean
from tamis.events.values import RejectedValue
from tamis.filters import Filter, FilterLimits, all_of, attr
from tamis.filters.build import comparison_of, has_bits, text_test
from tamis.languages.tokens import (
    NUMBER,
    QUOTED,
    Tokens,
    describe_token,
    read_mask,
    read_number,
    read_quoted,
    token_pattern,
)

if TYPE_CHECKING:
    from tamis.diagrams import Answer


# --- JSON arrays item by item --------------------------------------------------------------


_SPACE: Final = re.compile(r"[ \t\r\n]*+")


class JSONItems:
    """A cursor in a JSON text: `items` steps through an array, `value` decodes the next value.

    The standard library decodes, one value at a time.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._skip_space()

    @property
    def character(self) -> str:
        """Return the next character, empty at the end."""
        return self.text[self.at : self.at + 1]

    def items(self) -> Iterator[int]:
        """Yield the place of each item of the array here; the caller must decode each."""
        self._step()
        if self.character == "]":
            self._step()
            return
        while True:
            yield self.at
            mark, place = self.character, self.at
            if mark not in (",", "]"):
                raise self.error('"," or "]" is missing in the array', place)
            self._step()
            if mark == "]":
                return

    def value(self) -> Any:
        """Decode one value."""
        start = self.at
        try:
            found, self.at = DECODER.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            reason = f"{error.msg[:1].lower()}{error.msg[1:]}"
            raise self.error(f"this is not JSON: {reason}", error.pos) from None
        except RecursionError:
            raise self.error("this is nested too deeply", start) from None
        reason = _refused(found)
        if reason:
            raise self.error(reason, start)
        self._skip_space()
        return found

    def end(self) -> None:
        """Check that nothing follows."""
        if self.character:
            raise self.error("there is more text after the end of the array", self.at)

    def error(self, reason: str, at: int) -> FilterSyntaxError:
        """Return an error at a place in the text."""
        return FilterSyntaxError(reason, text=self.text, offset=at)

    def _step(self) -> None:
        self.at += 1
        self._skip_space()

    def _skip_space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at


def _refused(found: object) -> str:
    """Return why a value is rejected, or an empty text."""
    inside = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    for item in (found, *inside):
        if isinstance(item, RejectedValue):
            return item.reason
    return ""


# --- filters -------------------------------------------------------------------------------


COMPARISONS: Final[Mapping[str, str]] = {
    **{op: op for op in ("=", "!=", "<", ">", "<=", ">=")},
    "≤": "<=",
    "≥": ">=",
}
TEXT_TESTS: Final[Mapping[str, str]] = {">*": "starts with", "*<": "ends with", "*": "contains"}
BIT_TESTS: Final[Mapping[str, str]] = {"all-bits": "all", "any-bit": "any"}

IS_NUMBER: Final = re.compile(rf"[+-]?(?:{NUMBER})")
IS_MASK: Final = re.compile(r"0[xXbB]\w+|[0-9]+")

OPERATORS: Final = (*COMPARISONS, *TEXT_TESTS, "any", *BIT_TESTS)


# --- what a triple means --------------------------------------------------------------------


def triple(attribute: str, op: str, value: object = None) -> Filter:
    """Return the filter of one triple; `any` takes no value.

    >>> triple("author", "*", "Stein")
    <Filter author contains "Stein">
    """
    if (value is None) is not (op == "any"):
        raise FilterTypeError(
            f'"{op}" takes no value' if op == "any" else f'"{op}" takes a value',
            attribute=attribute,
        )
    name = attr(attribute).name
    if op in COMPARISONS:
        return comparison_of(name, COMPARISONS[op], value)
    if op in TEXT_TESTS:
        return text_test(name, TEXT_TESTS[op], value)
    if op in BIT_TESTS:
        return has_bits(name, BIT_TESTS[op], _mask(op, value))
    if op == "any":
        return attr(name).is_present()
    raise FilterTypeError(_unknown(op), attribute=attribute)


def _mask(op: str, value: object) -> Bits | int:
    if isinstance(value, Bits) or type(value) is int:
        return value
    raise FilterTypeError(f'"{op}" takes a bit mask, as an integer, not {value!r:.60}')


def _unknown(op: str) -> str:
    hint = did_you_mean(op, OPERATORS) or f"the operators are {' '.join(OPERATORS)}"
    return f"{describe_token(op)} is not an operator of Siena; {hint}"


# --- the procedures of the paper ------------------------------------------------------------


def apply(op: str, a: object, b: object) -> bool:
    """Return whether an event's value `b` satisfies a triple with the operator and the value `a`.

    >>> apply("*", "Stein", "John Steinbeck")
    True
    >>> apply(">", 5, 7), apply(">", 7, 5)
    (True, False)
    """
    held = Bits.from_mask(b) if op in BIT_TESTS and type(b) is int else b
    return triple("x", op, a).matches({"x": held})


def covers(op1: str, a: object, op2: str, b: object) -> Answer:
    """Return whether every value that satisfies `op2 b` satisfies `op1 a`; unsure is no.

    >>> covers(">*", "ab", "=", "abc")
    <yes>
    >>> covers("<", 5, "<", 7)
    <no: Event({'x': 5})>
    """
    return diagrams.covers(triple("x", op1, a), triple("x", op2, b))


def intersects(op1: str, a: object, op2: str, b: object) -> Answer:
    """Return whether some value satisfies both `op1 a` and `op2 b`; unsure is yes.

    >>> intersects("<", 5, ">", 7)
    <no>
    >>> bool(intersects("<", 5, ">", 4))
    True
    """
    return diagrams.intersects(triple("x", op1, a), triple("x", op2, b))


# --- reading --------------------------------------------------------------------------------


def parse_siena(text: str, limits: FilterLimits) -> Filter:
    """Parse triples, as JSON if the text begins with a bracket."""
    limits.check_text(text)
    is_json = text.lstrip(" \t\r\n").startswith("[")
    found = JSONReader(text).read() if is_json else TextReader(text, limits).read()
    limits.check(found)
    return found


class TextReader:
    """A parser of `{(author, *, "Stein") (edition, >, 1)}`."""

    # Names have the characters that Siena allows. A sign belongs to the number after it.
    pattern: Final = token_pattern(
        rf"""[^\W\d][\w.$/-]*+ | [+-]?(?:{NUMBER}) | {QUOTED}
        | >\* | \*< | <= | >= | != | \S"""
    )

    def __init__(self, text: str, limits: FilterLimits) -> None:
        self.tokens = Tokens(text, self.pattern, limits)

    def read(self) -> Filter:
        """Parse the filter; the braces are optional if there is a triple."""
        tokens = self.tokens
        braces = tokens.skip("{")
        triples = [] if braces and tokens.current == "}" else self._triples()
        if braces:
            tokens.expect("}", "at the end of the triples")
        if tokens.current:
            raise tokens.error(f"expected a triple, found {describe_token(tokens.current)}")
        return all_of(*triples)

    def _triples(self) -> list[Filter]:
        triples = [self._triple()]
        while self.tokens.skip(",") or self.tokens.current == "(":
            triples.append(self._triple())
        return triples

    def _triple(self) -> Filter:
        tokens = self.tokens
        if not tokens.skip("("):
            raise self._no_triple()
        name = self._name()
        tokens.skip(",")
        op = self._operator()
        at = tokens.at - 1
        value = None
        if tokens.skip(",") or tokens.current != ")":
            value = self._value(op)
        tokens.expect(")", "at the end of the triple")
        try:
            return triple(name, op, value)
        except FilterTypeError as error:
            raise tokens.error(error.reason, at=at) from None

    def _no_triple(self) -> FilterSyntaxError:
        found = self.tokens.current
        hint = ""
        if found[:1] == '"' and self.tokens.at == 1:
            hint = 'in JSON a filter is an array of triples: [["author", "=", "x"]]'
        elif not found and self.tokens.at == 0:
            hint = "the filter that every event matches is {}"
        return self.tokens.error(
            f"expected a triple such as (price, <, 10), found {describe_token(found)}", hint=hint
        )

    def _name(self) -> str:
        word = self.tokens.take()
        if word[:1] in ('"', "'") and word:
            return read_quoted(word, self.tokens)
        if word[:1].isalpha() or word[:1] == "_":
            return word
        raise self._error(f"expected the name of an attribute, found {describe_token(word)}")

    def _operator(self) -> str:
        word = self.tokens.take()
        if word.lower() in OPERATORS:
            return word.lower()
        raise self._error(_unknown(word))

    def _value(self, op: str) -> object:
        word = self.tokens.take()
        if IS_NUMBER.fullmatch(word):
            whole = op in BIT_TESTS and IS_MASK.fullmatch(word)
            return read_mask(word, self.tokens) if whole else self._number(word)
        if word[:1] in ('"', "'") and word:
            return read_quoted(word, self.tokens)
        if word.lower() in ("true", "false"):
            return word.lower() == "true"
        hint = f'text is written in quotes: "{word}"' if word[:1].isalpha() else ""
        raise self._error(f"expected a value, found {describe_token(word)}", hint)

    def _number(self, word: str) -> int | float:
        value = read_number(word.lstrip("+-"), self.tokens)
        return -value if word[0] == "-" else value

    def _error(self, reason: str, hint: str = "") -> FilterSyntaxError:
        return self.tokens.error(reason, at=self.tokens.at - 1, hint=hint)


class JSONReader:
    """A parser of `[["author", "*", "Stein"], {"attribute": "edition", "op": ">", "value": 1}]`."""

    fields: Final = ("attribute", "op", "value")

    def __init__(self, text: str) -> None:
        self._json = JSONItems(text)

    def read(self) -> Filter:
        """Return the filter."""
        triples = [self._triple(at) for at in self._json.items()]
        self._json.end()
        return all_of(*triples)

    def _triple(self, at: int) -> Filter:
        character = self._json.character
        if character == "[":
            parts = [(self._part(place), place) for place in self._json.items()]
        elif character == "{":
            parts = [(part, at) for part in self._members(at)]
        else:
            raise self._json.error("a triple is an array or an object", at)
        if not 2 <= len(parts) <= 3:
            raise self._json.error(
                f"a triple has an attribute, an operator and a value, not {len(parts)} parts", at
            )
        return self._built(*parts)

    def _part(self, at: int) -> object:
        if self._json.character in ("[", "{"):
            raise self._json.error("a triple holds texts, numbers and booleans only", at)
        return self._json.value()

    def _members(self, at: int) -> list[object]:
        members = self._json.value()
        assert isinstance(members, dict)  # noqa: S101 - it began with a brace
        for key in members:
            if key not in self.fields:
                hint = did_you_mean(key, self.fields) or "it has attribute, op and value"
                raise self._json.error(f"a triple has no member {describe_token(key)}; {hint}", at)
        for key in self.fields[:2]:
            if key not in members:
                raise self._json.error(f'the triple lacks its "{key}"', at)
        return [members.get(key) for key in self.fields]

    def _built(
        self,
        attribute: tuple[object, int],
        op: tuple[object, int],
        value: tuple[object, int] = (None, 0),
    ) -> Filter:
        name, at_name = attribute
        if not isinstance(name, str) or not name:
            raise self._json.error("the name of an attribute is a text that is not empty", at_name)
        word, at_word = op
        if not isinstance(word, str) or word not in OPERATORS:
            raise self._json.error(_unknown(str(word)), at_word)
        try:
            return triple(name, word, value[0])
        except FilterTypeError as error:
            raise self._json.error(error.reason, value[1] or at_word) from None

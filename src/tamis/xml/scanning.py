"""Tokens of a query with their places, and the limits on its text and depth."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, TypeVar

from tamis.errors import FilterSyntaxError, FilterTypeError, LimitError
from tamis.events.schema import did_you_mean
from tamis.xml.nodes import XML_NAMESPACE
from tamis.xml.work import MAX_QUERY_DEPTH, XMLQueryLimits

Parsed = TypeVar("Parsed")

# As XML defines names, without colons.
_NAME_START: Final = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d"
    "\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
NAME: Final = rf"[{_NAME_START}][{_NAME_START}0-9.\-·\u0300-\u036f\u203f\u2040]*+"
_BEGINS_NAME: Final = re.compile(f"[{_NAME_START}]")
QUOTED: Final = r"\"[^\"]*+\"?|'[^']*+'?"
_DECLARATION: Final = ("declare", "namespace")
_MEANT: Final = {"==": 'write "=" once', "&&": 'write "and"', "||": 'write "or"'}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class QueryToken(NamedTuple):
    """A token, and where it begins."""

    text: str
    offset: int

    @property
    def is_name(self) -> bool:
        """Return whether it is a name, with or without a prefix."""
        return _BEGINS_NAME.match(self.text) is not None

    @property
    def is_quoted(self) -> bool:
        """Return whether it is a text in quotes."""
        return self.text[:1] in {"'", '"'}

    @property
    def shown(self) -> str:
        """Return it as a message shows it."""
        if not self.text:
            return "the end of the query"
        return f'"{self.text if len(self.text) <= 30 else self.text[:29] + "…"}"'


class QueryTokens:
    """The tokens of a query, and which comes next."""

    def __init__(self, text: str, pattern: re.Pattern[str], limits: XMLQueryLimits) -> None:
        if len(text) > limits.text:
            raise LimitError("characters in the query", actual=len(text), limit=limits.text)
        if limits.depth > MAX_QUERY_DEPTH:
            raise ValueError(f"the limit on depth can be {MAX_QUERY_DEPTH} at the most")
        self.text = text
        self._limits = limits
        self._depth = 0
        _refuse_control_characters(text)
        self._words = [QueryToken(found[0], found.start()) for found in pattern.finditer(text)]
        self._end = QueryToken("", len(text.rstrip()))
        self._at = 0

    @property
    def current(self) -> QueryToken:
        """Return the next token, an empty one at the end."""
        return self.ahead(0)

    def ahead(self, count: int) -> QueryToken:
        """Return a later token."""
        place = self._at + count
        return self._words[place] if place < len(self._words) else self._end

    def take(self) -> QueryToken:
        """Return the next token, and go on."""
        token = self.current
        self._at += 1
        return token

    def skip(self, *texts: str) -> bool:
        """Skip the next token if it is one of these."""
        if self.current.text not in texts:
            return False
        self._at += 1
        return True

    def expect(self, text: str, why: str) -> None:
        """Skip a token that must come next."""
        if not self.skip(text):
            raise self.error(f'"{text}" is missing {why}')

    def opened_by(self, token: QueryToken) -> str:
        """Return which bracket is meant, for a message that another is missing."""
        line_start = self.text.rfind("\n", 0, token.offset) + 1
        line = self.text.count("\n", 0, token.offset)
        place = f"line {line + 1}, " if line else ""
        return f'for the "{token.text}" in {place}column {token.offset - line_start + 1}'

    def expect_end(self) -> None:
        """Refuse what is left over."""
        token = self.current
        if not token.text:
            return
        if token.text in {")", "]"}:
            opening = {")": "(", "]": "["}[token.text]
            raise self.error(f'this "{token.text}" closes nothing: there is no "{opening}" for it')
        hint = _MEANT.get(token.text + self.ahead(1).text, "")
        raise self.error(f"{token.shown} does not continue the query", hint=hint)

    def error(
        self,
        reason: str,
        *,
        at: QueryToken | None = None,
        hint: str = "",
        meant: str = "",
        known: Iterable[str] = (),
    ) -> FilterSyntaxError:
        """Return an error at a token, by default the next; a hint may suggest a known name."""
        offset = (self.current if at is None else at).offset
        hint = hint or did_you_mean(meant, known)
        return FilterSyntaxError(reason, text=self.text, offset=offset, hint=hint)

    def nothing_before(self, token: QueryToken) -> FilterSyntaxError:
        """Return the error where something is missing, before a token that was taken."""
        where = "at the end" if not token.text else f"before {token.shown}"
        before = self.ahead(-2).text if self._at > 1 else ""
        hint = _MEANT.get(before + token.text, "")
        return self.error(f"a name, a path or a value is missing {where}", at=token, hint=hint)

    def quoted(self) -> str:
        """Take a text in quotes, and return what is between them."""
        token = self.take()
        if len(token.text) < 2 or token.text[-1] != token.text[0]:
            raise self.error(f"this {token.text[0]} is never closed", at=token)
        return token.text[1:-1]

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Count a level of nesting; parsing recurses only here."""
        self._depth += 1
        if self._depth > self._limits.depth:
            raise LimitError("levels of the query", actual=None, limit=self._limits.depth)
        yield
        self._depth -= 1


def _refuse_control_characters(text: str) -> None:
    found = _CONTROL.search(text)
    if found:
        raise FilterSyntaxError(
            f"the character U+{ord(found[0]):04X} cannot be in XML, nor in a query over it",
            text=text,
            offset=found.start(),
        )


class Namespaces:
    """The prefixes that a query may use, and the namespaces that they stand for."""

    def __init__(self, given: Mapping[str, str]) -> None:
        for prefix, namespace in given.items():
            if not isinstance(prefix, str) or not re.fullmatch(NAME, prefix):
                raise FilterTypeError(f"{prefix!r:.60} cannot be the prefix of a namespace")
            if not namespace or not isinstance(namespace, str):
                raise FilterTypeError(f'the prefix "{prefix}" must stand for a namespace')
        self._known = {"xml": XML_NAMESPACE, **given}

    def declare(self, tokens: QueryTokens) -> None:
        """Take the declarations at the beginning of a query, as XQuery writes them."""
        declared: set[str] = set()
        while (tokens.current.text, tokens.ahead(1).text) == _DECLARATION:
            tokens.take()
            tokens.take()
            token = tokens.take()
            if not re.fullmatch(NAME, token.text):
                raise tokens.error(f"a prefix is needed here, not {token.shown}", at=token)
            if token.text in declared or token.text == "xml":
                raise tokens.error(f'the prefix "{token.text}" is declared already', at=token)
            tokens.expect("=", "after the prefix")
            place = tokens.current
            namespace = tokens.quoted() if place.is_quoted else ""
            if not namespace:
                raise tokens.error("a namespace in quotes is needed here", at=place)
            tokens.expect(";", "after the declaration")
            declared.add(token.text)
            self._known[token.text] = namespace

    def of(self, prefix: str, tokens: QueryTokens, at: QueryToken) -> str:
        """Return the namespace of a prefix."""
        if prefix not in self._known:
            hint = did_you_mean(prefix, self._known)
            raise tokens.error(
                f'the prefix "{prefix}" stands for no namespace',
                at=at,
                hint=hint or f'begin with: declare namespace {prefix} = "…";',
            )
        return self._known[prefix]


class QueryOpening(ABC, Generic[Parsed]):
    """What parsers have in common: limits, declarations, and that nothing is missing or left."""

    def __init__(
        self,
        text: str,
        pattern: re.Pattern[str],
        limits: XMLQueryLimits,
        namespaces: Mapping[str, str],
    ) -> None:
        self._tokens = QueryTokens(text, pattern, limits)
        self._namespaces = Namespaces(namespaces)

    def parse(self) -> Parsed:
        """Return the query as an expression."""
        self._namespaces.declare(self._tokens)
        if not self._tokens.current.text:
            raise self._tokens.error("the query is empty", hint="write . for the document")
        found = self._whole()
        self._tokens.expect_end()
        return found

    @abstractmethod
    def _whole(self) -> Parsed:
        """Parse all that follows the declarations."""

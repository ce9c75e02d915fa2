"""The Tamis language: conditions that read like SQL and Python.

::

    company in ("IBM", "Dell") and product contains "PC" and price <= 1000
    not (year between 79 and 90) and name starts with "x" or price is present
    price * quantity > budget xor flags has all bits 0b101
    items[sku = "a" and quantity > 3]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import ClassVar, Final

from tamis.events import Kind
from tamis.events.kinds import TYPE_OF_KEYWORD, TYPES, Type, Value
from tamis.filters import Filter
from tamis.filters.arithmetic import Expression, Literal, Reference
from tamis.filters.atoms import HasKind, Present
from tamis.filters.boolean import Not
from tamis.filters.build import (
    between,
    comparison_of,
    has_bits,
    ignoring_case,
    in_network,
    like,
    membership_of,
    regular,
    text_test,
)
from tamis.filters.printing import ANY, RESERVED, needs_no_backticks, show_name
from tamis.languages.expressions import (
    COMMON_INFIX,
    COMPARE,
    MULTIPLY,
    OPERAND_HINTS,
    OPERATOR_HINTS,
    STARTS_OF_CONSTANTS,
    XOR,
    ExpressionParser,
    Operand,
    OtherLanguages,
)
from tamis.languages.tokens import (
    NUMBER,
    QUOTED,
    describe_token,
    read_mask,
    read_number,
    read_quoted,
    token_pattern,
)

KIND_WORDS: Final[Mapping[tuple[str, ...], Kind]] = {
    tuple(kind.value.lower().split()): kind for kind in Kind
}


# What other languages write where an operator is expected.
SYNONYMS: Final[Mapping[str, str]] = {
    "&&": "and",
    "&": "and",
    "||": "or",
    "|": "or",
    "^": "xor",
    "!": "!=",
    "~": "matches",
    "=~": "matches",
    "!~": "not matches",
    "regex": "matches",
    "regexp": "matches",
    "rlike": "matches",
    "glob": "like",
    "equals": "=",
    "eq": "=",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "startswith": "starts with",
    "endswith": "ends with",
    "exists": "is present",
}


# What other languages call tests that ignore case.
_CASELESS_WORDS: Final = {
    "icontains": "contains",
    "iequals": "=",
    "iexact": "=",
    "istartswith": "starts with",
    "iendswith": "ends with",
    "imatches": "matches",
    "iregex": "matches",
}
# Comparisons of texts that ignore case, and what they compare by once folded.
_CASELESS_COMPARISONS: Final = {
    "~=": "=", "~==": "=", "~!=": "!=", "~<": "<", "~<=": "<=", "~>": ">", "~>=": ">=", "~<>": "!=",
}  # fmt: skip
_CASELESS_TESTS: Final = (
    "~contains", "~within", "~starts", "~ends", "~like", "~matches", "~in", "~between",
)  # fmt: skip
# What PostgreSQL writes: `~ '…'`, `~* '…'`, `~~ '…'` and `~~* '…'`, all of them also after `!`.
_POSTGRES: Final = {"": "matches", "*": "~matches", "~": "like", "~*": "~like"}


# An address with or without the bits of its network: four numbers, or hexadecimal digits with
# colons between them. What comes of it is checked later.
NETWORK: Final = (
    r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w.])(?:/[0-9]++)?"
    r"|[0-9a-fA-F]{0,4}:[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]*+(?:/[0-9]++)?"
)
_NETWORK: Final = re.compile(NETWORK)
# `10.0.0/8`, whose tokens are numbers and a slash.
_SHORT_NETWORK: Final = re.compile(r"(?P<numbers>\d{1,3}(?:\.\d{1,3}){0,2})/(?P<bits>\d{1,2})")
_PART_OF_SHORT_NETWORK: Final = re.compile(r"[0-9.]{1,9}|/")
NAME: Final = r"[^\W\d]\w*+(?:\.\w++)*+"


def _is_network(word: str) -> bool:
    return ("." in word or ":" in word) and _NETWORK.fullmatch(word) is not None


def _caseless_hint(word: str, after: str) -> str:
    """Return what to write instead of a `~` that stands apart from its test, or nothing."""
    if word == "not":
        test = _caseless_test(after)
        is_word = test[1:2].isalpha()
        return f'write "not {test}"' if is_word else 'write "not" before the attribute'
    if word in ("is", "has"):
        return f'"{word}" has no variant that ignores case; leave the ~ out'
    test = _caseless_test(word)
    return f'write "{test}"' if test else ""


def _caseless_test(word: str) -> str:
    """Return the test that ignores case for the first word of a test, or nothing."""
    instead = SYNONYMS.get(word, word) if word[:1].isalpha() else word
    test = f"~{instead}"
    if test.removesuffix(" with") not in (*_CASELESS_COMPARISONS, *_CASELESS_TESTS):
        return ""
    return f"{test} with" if test in ("~starts", "~ends") else test


class TamisParser(ExpressionParser):
    """A parser of the Tamis language."""

    # Possessive quantifiers throughout: no token is tried twice, so scanning is linear. An open
    # quote takes the rest of the text, so that it is scanned once. Names and numbers come first,
    # unless they may be the beginning of an address; those are rare.
    pattern: ClassVar[re.Pattern[str]] = token_pattern(
        rf"""{NAME}(?!:) | (?:{NUMBER})(?![\w.:]) | {QUOTED} | `(?:[^`]|``)*+`?
        | === | =~ | !~ | => | =< | <= | >= | != | <> | == | && | \|\| | [(),=<>]
        | ~(?:<>|[<>!=]=?|(?i:contains|within|starts|ends|like|matches|in|between)(?!\w))
        | {NETWORK} | {NAME} | {NUMBER} | \S"""
    )

    infix: ClassVar[Mapping[str, tuple[int, str]]] = COMMON_INFIX | {
        "xor": (XOR, "xor"),
        "==": (COMPARE, "="),
        "!=": (COMPARE, "!="),
        "/": (MULTIPLY, "/"),
        "div": (MULTIPLY, "div"),
    }

    has_elements: ClassVar[bool] = True

    hints: ClassVar[OtherLanguages] = OtherLanguages(
        operators=OPERATOR_HINTS
        | {word: f'write "{instead}"' for word, instead in SYNONYMS.items()}
        | {word: f'write "~{test}"' for word, test in _CASELESS_WORDS.items()},
        operands=OPERAND_HINTS | {"!": 'write "not"', "~": 'write "not"'},
        leading={"exists": 'write "is present" after the name'},
    )

    def condition(self, expression: Expression, at: int) -> Filter:
        """Say what follows `any`, which is no condition."""
        if isinstance(expression, Reference) and expression.name == ANY:
            hint = 'write a test of text, as in any contains "…"'
            raise self.tokens.error("any is not a condition", at=at, hint=hint)
        return super().condition(expression, at)

    def operator_hint(self, at: int) -> str:
        """Look behind `~` and `!~` as well, which are halves of operators."""
        word, *after = (word.lower() for word in self.tokens.words[at : at + 3])
        if word == "~" and (hint := _caseless_hint(*after)):
            return hint
        if word in ("~", "!~"):
            signs = after[0] + after[1] if after[0] == "~" and after[1] == "*" else after[0]
            negation = "not " if word == "!~" else ""
            return f'write "{negation}{_POSTGRES.get(signs, "matches")}"'
        return super().operator_hint(at)

    def operand(self, word: str) -> Operand | None:
        """Parse a name or a constant."""
        first = word[:1]
        if first.isalpha() or first == "_":
            lower = word.lower()
            if lower in RESERVED:
                return self._reserved(word)
            # Most keywords are names unless a text follows: `date` and `bytes` are common ones.
            if lower in TYPE_OF_KEYWORD and self.tokens.current[:1] in ('"', "'"):
                return self._literal_of(lower)
            return Reference(word)
        if "0" <= first <= "9" or (first == "." and len(word) > 1):
            try:
                return Literal.of(read_number(word, self.tokens))
            except ValueError:
                raise self.tokens.error(
                    f'a network stands after "in": write "in {word}"'
                    if "/" in word
                    else f"an address is a text: write '{word}' in quotes, or \"in {word}\"",
                    at=self.tokens.at - 1,
                ) from None
        if first == '"' or first == "'":  # noqa: PLR1714 - twice as fast as a tuple
            return Literal.of(read_quoted(word, self.tokens))
        if first == "`":
            return Reference(self._quoted_name(word))
        # Numerals that are not digits, such as Ⅳ, may begin a name.
        return Reference(word) if needs_no_backticks(word) else None

    def _reserved(self, word: str) -> Operand:
        lower = word.lower()
        if lower in ("true", "false"):
            return Literal.of(lower == "true")
        if lower in TYPE_OF_KEYWORD:
            return self._literal_of(lower)
        if lower == show_name(ANY):
            self.names_any = True
            return Reference(ANY)
        raise self.tokens.error(
            f'"{word}" is a reserved word and cannot be used here',
            at=self.tokens.at - 1,
            hint=f"as the name of an attribute write `{word}`",
        )

    def _literal_of(self, keyword: str) -> Literal:
        return Literal.of(self._converted(TYPE_OF_KEYWORD[keyword]))

    def _quoted_name(self, word: str) -> str:
        name = word[1:-1].replace("``", "`")
        # A name may end in doubled backticks, so the last one closes only if the rest pairs up.
        if len(word) < 2 or word[-1] != "`" or word[1:-1].count("`") % 2:
            raise self.tokens.error("this ` is never closed", at=self.tokens.at - 1)
        if not name:
            raise self.tokens.error("the name is empty", at=self.tokens.at - 1)
        return name

    def _converted(self, type_: Type) -> Value:
        """Parse the text after a keyword: `timestamp "…"`."""
        text = self._text(TYPES[type_].keyword)
        try:
            value: Value = TYPES[type_].conversions[Type.STR](text)
        except ValueError as error:
            raise self.tokens.error(str(error), at=self.tokens.at - 1) from None
        return value

    # --- predicates --------------------------------------------------------------------------

    def _in(self, name: str) -> Filter:
        tokens = self.tokens
        if _is_network(tokens.current):
            return in_network(name, [self._network()])
        if tokens.current == "(" and _is_network(tokens.words[tokens.at + 1]):
            return in_network(name, self.read_list("in", self._network))
        self._refuse_miswritten_network()
        return membership_of(name, self.read_list("in", self.value))

    def _refuse_miswritten_network(self) -> None:
        """Refuse a network in quotes without a list, and one of less than four numbers."""
        words, at = self.tokens.words, self.tokens.at
        if words[at][:1] in ('"', "'") and _is_network(words[at][1:-1]):
            network = words[at][1:-1]
            raise self.tokens.error("a network has no quotes", hint=f'write "in {network}"')
        at += words[at] == "("
        parts = takewhile(_PART_OF_SHORT_NETWORK.fullmatch, words[at : at + 5])
        found = _SHORT_NETWORK.fullmatch("".join(parts))
        if found is not None:
            numbers = found["numbers"].split(".")
            address = ".".join([*numbers, "0", "0", "0"][:4])
            raise self.tokens.error(
                f'"{found[0]}" is not a network: the address has four numbers',
                at=at,
                hint=f'write "in {address}/{found["bits"]}"',
            )

    def _network(self) -> str:
        word = self.tokens.take()
        if not _is_network(word):
            raise self.tokens.error(
                f"expected a network such as 10.0.0.0/8, found {describe_token(word)}",
                at=self.tokens.at - 1,
            )
        return word

    def _is(self, name: str) -> Filter:
        tokens = self.tokens
        negated = tokens.skip("not")
        found: Filter
        if tokens.skip("present"):
            found = Present(name)
        elif tokens.skip("absent") or tokens.skip("null"):
            found = Not.of(Present(name))
        elif tokens.current[:1] in STARTS_OF_CONSTANTS and tokens.current:
            equal = "!=" if negated else "="
            raise tokens.error('there is no constant after "is"', hint=f'write "{equal}"')
        else:
            found = HasKind(name, self._kind())
        return Not.of(found) if negated else found

    def _kind(self) -> Kind:
        for words, kind in KIND_WORDS.items():
            if self.tokens.skip(*words):
                return kind
        kinds = ", ".join(f'"{kind.value}"' for kind in Kind)
        raise self.tokens.error(
            f'expected "present", "absent", {kinds} after "is"', known=("present", "absent", "null")
        )

    def _has(self, name: str) -> Filter:
        for op, ends in (("all", ("bits", "bit")), ("any", ("bit", "bits"))):
            if any(self.tokens.skip(op, end) for end in ends):
                return has_bits(name, op, self._mask())
        raise self.tokens.error('expected "all bits" or "any bit" after "has"')

    def _mask(self) -> int:
        word = self.tokens.take()
        if not word[:1].isdecimal() or "." in word or "e" in word.lower().removeprefix("0x"):
            raise self.tokens.error(
                f"expected a bit mask such as 0b101, found {describe_token(word)}",
                at=self.tokens.at - 1,
            )
        return read_mask(word, self.tokens)

    def _contains(self, name: str) -> Filter:
        return text_test(name, "contains", self._text("contains"))

    def _within(self, name: str) -> Filter:
        return text_test(name, "within", self._text("within"))

    def _starts(self, name: str) -> Filter:
        self.tokens.expect("with", 'after "starts"')
        return text_test(name, "starts with", self._text("starts with"))

    def _ends(self, name: str) -> Filter:
        self.tokens.expect("with", 'after "ends"')
        return text_test(name, "ends with", self._text("ends with"))

    def _like(self, name: str) -> Filter:
        return like(name, self._text("like"))

    def _matches(self, name: str) -> Filter:
        return regular(name, self._text("matches"))

    def _caseless(self, name: str) -> Filter:
        """Parse the test after `~`, which ignores case."""
        word = self.tokens.words[self.tokens.at - 1].lower()
        if word in _CASELESS_COMPARISONS:
            return ignoring_case(comparison_of(name, _CASELESS_COMPARISONS[word], self._text(word)))
        if word == "~between":
            low = self._text(word)
            self.tokens.expect("and", 'after the first text of "~between"')
            return ignoring_case(between(name, low, self._text(word)))
        # `~like`, and `ilike` as in SQL, are `like` but for their first character.
        return ignoring_case(self.predicates[word[1:]](self, name))

    def _text(self, op: str) -> str:
        word = self.tokens.take()
        if word[:1] not in ('"', "'") or not word:
            raise self.tokens.error(
                f'"{op}" takes a text in quotes, not {describe_token(word)}', at=self.tokens.at - 1
            )
        return read_quoted(word, self.tokens)

    predicates: ClassVar[Mapping[str, Callable[..., Filter]]] = {
        "in": _in,
        "is": _is,
        "has": _has,
        "contains": _contains,
        "within": _within,
        "starts": _starts,
        "ends": _ends,
        "like": _like,
        "matches": _matches,
        "ilike": _caseless,
        **dict.fromkeys(_CASELESS_COMPARISONS, _caseless),
        **dict.fromkeys(_CASELESS_TESTS, _caseless),
    }

"""JMS message selectors, as section 3.8.1 of the JMS (Jakarta Messaging) standard defines them.

::

    JMSType = 'car' AND colour IN ('blue', 'green') AND weight > 2500
    phone LIKE '12%3' OR NOT (age BETWEEN 15 AND 19) OR note IS NULL

In JMS a comparison of unlike types is *false* and one with an absent property is *unknown*; in a
Tamis filter both are unknown. This matters only below a NOT, where false becomes true: there
`settled` adds conditions that make it false. Elsewhere the filter stays as short as the selector.
"""

from __future__ import annotations

import math
import operator
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

from tamis.errors import FilterSyntaxError, FilterTypeError
from tamis.events import Kind
from tamis.events.kinds import KIND_OF_TYPE, TYPES, Type, types_from
from tamis.filters import FALSE, TRUE, Filter
from tamis.filters.arithmetic import Arithmetic, Expression, Literal, Reference, Relation
from tamis.filters.atoms import Compare, HasKind, In, Present, ValueAtom, can_compare
from tamis.filters.boolean import And, Connective, Not, Or
from tamis.filters.build import (
    between_expressions,
    compare_expressions,
    comparison_of,
    like,
    membership_of,
)
from tamis.filters.like import like_text
from tamis.languages.expressions import (
    COMMON_INFIX,
    MULTIPLY,
    OPERAND_HINTS,
    OPERATOR_HINTS,
    ZERO,
    ExpressionParser,
    Operand,
    OtherLanguages,
)
from tamis.languages.tokens import LARGEST_BEFORE_SIGN, Tokens, describe_token, token_pattern

# --- numbers as Java writes them -----------------------------------------------------------


# A token is everything that could belong to a number, so that a wrong one is refused whole.
NUMBER: Final = r"0[xX](?:[pP][+-]|[\w.])*+|\.?[0-9](?:[eE][+-]|[\w.])*+"

_DIGITS: Final = r"[0-9](?:[0-9_]*[0-9])?"
_HEX: Final = r"[0-9a-fA-F](?:[0-9a-fA-F_]*[0-9a-fA-F])?"
_EXPONENT: Final = rf"[eE][+-]?{_DIGITS}"

_INTEGER: Final = re.compile(
    rf"(?:0[xX](?P<hexadecimal>{_HEX})|0[bB](?P<binary>[01](?:[01_]*[01])?)"
    r"|0(?P<octal>[0-7_]*[0-7])|(?P<decimal>0|[1-9](?:[0-9_]*[0-9])?))[lL]?"
)
_FLOAT: Final = re.compile(
    rf"({_DIGITS}\.(?:{_DIGITS})?(?:{_EXPONENT})?|\.{_DIGITS}(?:{_EXPONENT})?|{_DIGITS}{_EXPONENT}"
    rf"|{_DIGITS}(?=[fFdD]))[fFdD]?"
)
_HEX_FLOAT: Final = re.compile(
    rf"(0[xX](?:{_HEX}\.?|(?:{_HEX})?\.{_HEX})[pP][+-]?{_DIGITS})[fFdD]?"
)

_BASES: Final = {"hexadecimal": 16, "binary": 2, "octal": 8, "decimal": 10}

# More digits than any 64-bit integer has, with room for zeros and underscores: converting
# thousands of them takes quadratic time.
_MAX_NUMBER_CHARACTERS: Final = 200


def read_jms_number(word: str, tokens: Tokens) -> int | float:
    """Return the number in the token before the current one."""
    if integer := _INTEGER.fullmatch(word):
        return _integer(integer, tokens)
    if found := _FLOAT.fullmatch(word):
        return _finite(float, found[1], tokens)
    if found := _HEX_FLOAT.fullmatch(word):
        return _finite(float.fromhex, found[1], tokens)
    octal = word[:1] == "0" and word.isdecimal()
    raise tokens.error(
        f"{word[:30]} is not a number as Java writes it",
        at=tokens.at - 1,
        hint="a leading 0 makes it octal, with the digits 0 to 7" if octal else "",
    )


def _integer(found: re.Match[str], tokens: Tokens) -> int:
    base = found.lastgroup or ""
    digits = found[base].replace("_", "")
    value = (
        int(digits, _BASES[base])
        if len(digits) <= _MAX_NUMBER_CHARACTERS
        else LARGEST_BEFORE_SIGN + 1
    )
    # The largest plus one is accepted, because a minus may precede it.
    if value > LARGEST_BEFORE_SIGN:
        raise tokens.error(
            f"the integer {found[0][:30]} does not fit in 64 bits",
            at=tokens.at - 1,
            hint="write it with a decimal point for a float",
        )
    return value


def _finite(read: Callable[[str], float], digits: str, tokens: Tokens) -> float:
    try:
        value = read(digits.replace("_", ""))
    except OverflowError:
        value = math.inf
    if math.isinf(value):
        raise tokens.error(f"{digits[:30]} is beyond the largest float", at=tokens.at - 1)
    return value


# --- selectors -----------------------------------------------------------------------------


RESERVED: Final = frozenset(
    {"null", "true", "false", "not", "and", "or", "between", "like", "in", "is", "escape"}
)

# The header fields that a selector may name; every other name with JMS belongs to the standard
# (JMSX…) or to a provider (JMS_…).
HEADER_FIELDS: Final = frozenset(
    {"JMSDeliveryMode", "JMSPriority", "JMSMessageID"}
    | {"JMSTimestamp", "JMSCorrelationID", "JMSType"}
)

EQUALITY: Final = ("=", "!=")

# Unicode categories that may begin a Java identifier (letters, currency signs, connecting
# punctuation), and those that may follow.
_JAVA_START: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_JAVA_PART: Final = _JAVA_START | {"Nd", "Mn", "Mc", "Cf"}

# Names with any character beyond ASCII, so that a wrong one is reported with its name. Dots are an
# extension: Tamis attributes have dotted names.
_PART: Final = r"(?:[\w$]|[^\x00-\x7f\s])"
_NAME: Final = rf"(?!\d){_PART}++(?:\.{_PART}++)*+"


_NO_PATTERNS: Final = 'use LIKE, or the language tamis with "matches"'


class JMSParser(ExpressionParser):
    """A parser of message selectors."""

    # Possessive quantifiers throughout: no token is tried twice, so scanning is linear. An open
    # quote takes the rest of the text, so that it is scanned once.
    pattern: ClassVar[re.Pattern[str]] = token_pattern(
        rf"""{_NAME} | {NUMBER} | '(?:[^']|'')*+'?
        | === | =~ | !~ | => | =< | <= | >= | <> | != | == | && | \|\| | [^\ \t\f\r\n]""",
        blank=r"[\ \t\f\r\n]",
    )

    infix: ClassVar[Mapping[str, tuple[int, str]]] = COMMON_INFIX | {"/": (MULTIPLY, "div")}

    hints: ClassVar[OtherLanguages] = OtherLanguages(
        operators=OPERATOR_HINTS
        | {
            "!=": 'write "<>"',
            "==": 'write "="',
            "&&": 'write "AND"',
            "||": 'write "OR"',
            "!": 'write "<>"',
            "~": _NO_PATTERNS,
            "=~": _NO_PATTERNS,
            "!~": _NO_PATTERNS,
        },
        operands=OPERAND_HINTS | {"!": 'write "NOT"'},
        leading={
            "regex": f"REGEX is an extension of ActiveMQ; {_NO_PATTERNS}",
            "xpath": "XPATH is an extension of ActiveMQ; Tamis does not look into XML",
            "xquery": "XQUERY is an extension of ActiveMQ; Tamis does not look into XML",
        },
    )

    def parse(self) -> Filter:
        """Parse the selector; an empty one selects everything."""
        return super().parse() if self.tokens.current else TRUE

    def _result(self) -> Filter:
        result = settled(super()._result())
        self._limits.check(result)
        return result

    # --- operands ----------------------------------------------------------------------------

    def operand(self, word: str) -> Operand | None:
        """Parse an identifier, a string, a number, TRUE or FALSE."""
        first = word[:1]
        if first == "'":
            return Literal.of(self._string(word))
        if "0" <= first <= "9" or (first == "." and len(word) > 1):
            return Literal.of(read_jms_number(word, self.tokens))
        if word.isspace():
            return None
        if first.isalpha() or first in ("_", "$") or first > "\x7f":
            return self._word(word)
        if first == '"':
            raise self._error("text is written in single quotes, not in double quotes")
        return None

    def _word(self, word: str) -> Operand:
        lower = word.lower()
        if lower in ("true", "false"):
            return Literal.of(lower == "true")
        if lower in RESERVED:
            hint = 'test for it with "IS NULL" or "IS NOT NULL"' if lower == "null" else ""
            raise self._error(f'"{word}" is a reserved word and cannot be used here', hint)
        return Reference(self._name(word))

    def _name(self, word: str) -> str:
        if not word.isascii():
            self._check_java_identifier(word)
        if word.startswith("JMS") and word not in HEADER_FIELDS and word[3:4] not in ("X", "_"):
            raise self._error(
                f'"{word}" is not a name that a selector may use: of those that begin with JMS, '
                f"it may use {', '.join(sorted(HEADER_FIELDS))}, JMSX… and JMS_…"
            )
        return word

    def _check_java_identifier(self, word: str) -> None:
        for place, character in enumerate(word.replace(".", "")):
            allowed = _JAVA_PART if place else _JAVA_START
            if unicodedata.category(character) not in allowed:
                shown = character if character.isprintable() else f"U+{ord(character):04X}"
                word = describe_token(word)
                raise self._error(f'"{shown}" is not allowed in a name, as in {word}')

    def _string(self, word: str) -> str:
        # A string may end in doubled quotes, so the last one closes only if the rest pairs up.
        if len(word) < 2 or word[-1] != "'" or word[1:-1].count("'") % 2:
            raise self._error("this ' is never closed")
        return word[1:-1].replace("''", "'")

    def condition(self, expression: Expression, at: int) -> Filter:
        """Return a bare expression as a condition: a name is true if its value is."""
        if isinstance(expression, Reference):
            return self.counted(comparison_of(expression.name, "=", True))
        return super().condition(expression, at)

    def _error(self, reason: str, hint: str = "") -> FilterSyntaxError:
        return self.tokens.error(reason, at=self.tokens.at - 1, hint=hint)

    # --- comparisons -------------------------------------------------------------------------

    def comparison(self, op: str, left: Expression, right: Expression) -> Filter:
        """Return a comparison; between unlike constants it is false."""
        kinds = _kind(left), _kind(right)
        for kind in kinds:
            if op not in EQUALITY and kind not in (None, Kind.NUMBER):
                raise FilterTypeError(f"{kind.value} can be compared with = and <> only")
        if isinstance(left, Literal) and isinstance(right, Literal) and kinds[0] is not kinds[1]:
            return FALSE
        return compare_expressions(op, left, right)

    def sign_of(self, sign: str, term: Expression) -> Expression:
        """Return an arithmetic expression even for `+name`, which has no value for text."""
        return Arithmetic.of(sign, ZERO, term)

    def between(
        self, term: Expression, low: Expression, high: Expression, *, negated: bool
    ) -> Filter:
        """Return `term >= low AND term <= high`, or `term < low OR term > high`."""
        if negated:
            return Or.of((self.comparison("<", term, low), self.comparison(">", term, high)))
        parts = self.comparison(">=", term, low), self.comparison("<=", term, high)
        if all(isinstance(part, Compare) for part in parts):
            return between_expressions(term, low, high)
        return And.of(parts)

    # --- predicates --------------------------------------------------------------------------

    def _in(self, name: str) -> Filter:
        return membership_of(name, self.read_list("IN", lambda: self._text("IN")))

    def _is(self, name: str) -> Filter:
        tokens = self.tokens
        if tokens.words[tokens.at - 2].lower() == "not":
            raise tokens.error('"NOT" belongs after "IS"', at=tokens.at - 2)
        negated = tokens.skip("not")
        if not tokens.skip("null"):
            raise tokens.error('expected "NULL" or "NOT NULL" after "IS"')
        return Present(name) if negated else Not.of(Present(name))

    def _like(self, name: str) -> Filter:
        pattern = self._text("LIKE")
        at = self.tokens.at - 1
        escape = self._escape() if self.tokens.skip("escape") else None
        return like(name, self._like_pattern(pattern, escape, at))

    def _escape(self) -> str:
        escape = self._text("ESCAPE")
        if len(escape) != 1:
            raise self._error(f'"ESCAPE" takes one character, not {len(escape)}')
        return escape

    def _like_pattern(self, pattern: str, escape: str | None, at: int) -> str:
        """Return the pattern with a backslash as its escape character, as Tamis writes it."""
        if escape is None:
            return pattern.replace("\\", "\\\\")
        parts: list[str] = []
        characters = iter(pattern)
        for character in characters:
            if character == escape:
                escaped = next(characters, "")
                if escaped not in ("%", "_", escape):
                    raise self.tokens.error(
                        f"the escape character {escape} precedes "
                        f"{escaped or 'the end'}; it may precede %, _ or itself",
                        at=at,
                    )
                parts.append(like_text(escaped))
            else:
                parts.append(character if character in "%_" else like_text(character))
        return "".join(parts)

    def _text(self, op: str) -> str:
        word = self.tokens.take()
        if word[:1] != "'":
            raise self._error(f'"{op}" takes text in single quotes, not {describe_token(word)}')
        return self._string(word)

    predicates: ClassVar[Mapping[str, Callable[..., Filter]]] = {
        "in": _in,
        "is": _is,
        "like": _like,
    }


# --- what unlike types mean ------------------------------------------------------------------


def settled(filter_: Filter, *, negated: bool = False) -> Filter:
    """Return the filter with comparisons of unlike types false wherever it matters.

    Only atoms below an odd number of NOTs need it: elsewhere false and unknown both match nothing.
    """
    match filter_:
        case Not(term=term):
            return Not.of(settled(term, negated=not negated))
        case Connective(terms=terms):
            found = [settled(term, negated=negated) for term in terms]
            is_same = all(map(operator.is_, found, terms))
            return filter_ if is_same else type(filter_).of(found)
        case Relation():
            return _settled_relation(filter_, negated=negated)
        case ValueAtom(attribute=name) if negated:
            return And.of((filter_, _alike((name,), _kinds_of_atom(filter_))))
        case _:
            return filter_


# A schema may convert the texts of an equality, to timestamps for example: the type is alike.
_KINDS_OF_EQUAL_TEXTS: Final = tuple(
    dict.fromkeys(TYPES[type_].kind for type_ in types_from(Type.STR))
)


def _kinds_of_atom(atom: ValueAtom) -> tuple[Kind, ...]:
    if atom.kind is not Kind.TEXT or not isinstance(atom, Compare | In):
        return (atom.kind,)
    return _KINDS_OF_EQUAL_TEXTS


def _settled_relation(relation: Relation, *, negated: bool) -> Filter:
    names = sorted(relation.attributes())
    kinds = _kinds_of_relation(relation)
    if negated:
        return And.of((relation, _alike(names, kinds)))
    if relation.op in EQUALITY or _kind(relation.left) or _kind(relation.right):
        return relation
    # Two attributes: Tamis would order texts, JMS orders numbers alone.
    return And.of((relation, *(HasKind(name, Kind.NUMBER) for name in names)))


def _kinds_of_relation(relation: Relation) -> tuple[Kind, ...]:
    known = {kind for side in (relation.left, relation.right) if (kind := _kind(side))}
    if known:
        return tuple(known) if len(known) == 1 else ()
    if relation.op in EQUALITY:
        return tuple(kind for kind in Kind if can_compare("=", kind))
    return (Kind.NUMBER,)


def _alike(names: Iterable[str], kinds: Iterable[Kind]) -> Filter:
    """Return the test that all attributes are of one of the kinds, or one of them is absent."""
    absent = [Not.of(Present(name)) for name in names]
    return Or.of((*(And.of(HasKind(name, kind) for name in names) for kind in kinds), *absent))


def _kind(expression: Expression) -> Kind | None:
    """Return the kind of an expression if it does not depend on the event."""
    match expression:
        case Literal(type=type_):
            return KIND_OF_TYPE[type_]
        case Arithmetic():
            return Kind.NUMBER
        case _:
            return None

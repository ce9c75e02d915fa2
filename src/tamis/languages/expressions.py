"""One parser for the languages that write conditions with operators, driven by their tables.

Operator-precedence parsing with two stacks: nesting costs memory, which the limits bound, and never
the interpreter's stack. A language defines its tokens, its operators and its predicates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import ClassVar, Final, NamedTuple, TypeVar

from tamis.errors import FilterSyntaxError, FilterTypeError, LimitError
from tamis.events import Type, Value
from tamis.filters import Filter, FilterLimits
from tamis.filters.any_text import any_text
from tamis.filters.arithmetic import Arithmetic, Expression, Literal, Reference
from tamis.filters.atoms import PLAIN_ATOMS, Caseless, In, InNetwork
from tamis.filters.boolean import And, Connective, Constant, Not, Or, Xor
from tamis.filters.build import between_expressions, compare_expressions
from tamis.filters.element_test import ElementTest
from tamis.filters.limits import MAY_BE_PATTERNS, atom_cost
from tamis.filters.printing import ANY
from tamis.languages.tokens import LARGEST_BEFORE_SIGN, Tokens, describe_token

Operand = Filter | Expression
Member = TypeVar("Member")

OPEN, OR, XOR, AND, NOT, COMPARE, ADD, MULTIPLY, NEGATE = range(9)

# The precedence of a word that is not an operator.
NO_OPERATOR: Final = (-1, "")

STARTS_OF_CONSTANTS: Final = frozenset("0123456789\"'")

# Prefixes of an operand; `not` in any case.
PREFIXES: Final[Mapping[str, int]] = {"(": OPEN, "-": NEGATE, "+": NEGATE} | {
    "".join(letters): NOT for letters in product("nN", "oO", "tT")
}

# The operators that all these languages share.
COMMON_INFIX: Final[dict[str, tuple[int, str]]] = {
    "or": (OR, "or"),
    "and": (AND, "and"),
    "=": (COMPARE, "="),
    "<>": (COMPARE, "!="),
    "<": (COMPARE, "<"),
    "<=": (COMPARE, "<="),
    ">": (COMPARE, ">"),
    ">=": (COMPARE, ">="),
    "between": (COMPARE, "between"),
    "+": (ADD, "+"),
    "-": (ADD, "-"),
    "*": (MULTIPLY, "*"),
}

CONNECTIVES: Final[Mapping[int, type[Connective]]] = {OR: Or, XOR: Xor, AND: And}

ZERO: Final = Literal.of(0)

# Atoms whose members are counted one by one.
_LISTS: Final = frozenset((In, InNetwork))


class OtherLanguages(NamedTuple):
    """What to say where a word of another language stands."""

    operators: Mapping[str, str]
    """By a word where an operator is expected."""
    operands: Mapping[str, str]
    """By a word where a condition or value is expected."""
    leading: Mapping[str, str]
    """By the word before the one that does not fit, such as the name of a function."""


# The hints that all these languages share.
OPERATOR_HINTS: Final[dict[str, str]] = {
    "%": "there is no remainder operator",
    "(": "there are no functions",
    ";": 'join conditions with "and"',
    ",": 'join conditions with "and"',
    "#": "a filter has no comments",
    "=>": 'write ">="',
    "=<": 'write "<="',
    "===": 'write "="',
    "null": 'write "is null" or "is not null"',
}
OPERAND_HINTS: Final[dict[str, str]] = {
    "[": 'write "in (…)" for one of several values',
    "#": "a filter has no comments",
} | dict.fromkeys("“”„‘’«»", "write straight quotes")


BLANK_HINT: Final = "white space is spaces, tabs, form feeds and line ends"


class ExpressionParser:
    """A parser of one text; a language is a subclass with its tables and its operands."""

    pattern: ClassVar[re.Pattern[str]]
    """The pattern of a token; it must match every character but white space."""
    infix: ClassVar[Mapping[str, tuple[int, str]]]
    """For each infix word: its precedence, and its operator."""
    predicates: ClassVar[Mapping[str, Callable[..., Filter]]]
    """For each predicate's first word: the method that parses the rest."""
    has_elements: ClassVar[bool] = False
    """Whether `name[…]` tests the elements of a list."""
    suggestions: ClassVar[frozenset[str]] = frozenset()
    """Words to suggest where an operator is missing."""
    hints: ClassVar[OtherLanguages]
    """What to say about words of other languages."""

    def __init__(self, text: str, limits: FilterLimits) -> None:
        self.tokens = Tokens(text, self.pattern, limits)
        self._limits = limits
        self._cost = 0
        self._has_patterns = False
        self.names_any = False
        """Whether some test is of any attribute."""
        self._open = 0
        # Each operand with its first token; each operator with its precedence and token.
        self._operands: list[tuple[Operand, int]] = []
        self._operators: list[tuple[int, str, int]] = []
        # The attributes whose elements are being tested.
        self._lists: list[str] = []

    def parse(self) -> Filter:
        """Parse the text."""
        try:
            return self._parse()
        except FilterTypeError as error:
            place = max(0, self.tokens.at - 1)
            raise self.tokens.error(error.reason, at=place) from None

    def _parse(self) -> Filter:
        while True:
            self._read_operand()
            if self._read_operators():
                return self._result()

    # --- what a language defines -------------------------------------------------------------

    def operand(self, word: str) -> Operand | None:
        """Parse the operand that begins with `word`; return None if none does."""
        raise NotImplementedError

    def condition(self, expression: Expression, at: int) -> Filter:
        """Return a bare expression as a condition: only true and false are one."""
        if isinstance(expression, Literal) and isinstance(expression.constant, bool):
            return Constant(expression.constant)
        hint = ""
        if isinstance(expression, Reference):
            hint = f"write {expression} = true"
        elif isinstance(expression, Literal):
            hint = 'write a whole comparison, or "in (…)" for one of several values'
        raise self.tokens.error(f"{expression} is not a condition", at=at, hint=hint)

    def operator_hint(self, at: int) -> str:
        """Return what to write instead of a token where an operator is expected, or nothing."""
        return self.hints.operators.get(self.tokens.words[at].lower(), "")

    # --- operands ----------------------------------------------------------------------------

    def _read_operand(self) -> None:
        """Parse the prefixes of an operand, and the operand."""
        tokens = self.tokens
        while True:
            word = tokens.take()
            while word in PREFIXES:
                self._read_prefix(word)
                word = tokens.take()
            at = tokens.at - 1
            operand = self.operand(word)
            if operand is None:
                raise self._unexpected_operand(word)
            if tokens.current != "[" or not self.has_elements or type(operand) is not Reference:
                break
            self._open_elements(operand.name)
        atom = self._simple_atom(operand) if isinstance(operand, Reference) else None
        self._operands.append((self._with_sign(operand) if atom is None else atom, at))

    def _simple_atom(self, left: Reference) -> Filter | None:
        """Parse `name op constant` or `name predicate …` at once if nothing else is involved.

        Most conditions are of this form; the rest goes through the stacks.
        """
        operators = self._operators
        if operators and operators[-1][0] >= COMPARE:
            return None
        tokens = self.tokens
        at = tokens.at
        op, constant, following = tokens.words[at : at + 3]
        level, symbol = self.infix.get(op, NO_OPERATOR)
        if level == COMPARE and constant[:1] in STARTS_OF_CONSTANTS and symbol != "between":
            if self.infix.get(following, NO_OPERATOR)[0] >= COMPARE:
                return None
            tokens.at = at + 2
            right = self.operand(constant)
            assert isinstance(right, Literal)  # noqa: S101 - that is how constants start
            return self._compared(symbol, left, self._in_range(right), at)
        if op not in self.predicates:
            return None
        tokens.at = at + 1
        return self.counted(self.predicates[op](self, left.name))

    def _open_elements(self, name: str) -> None:
        """Begin the condition of a test of elements, which ends like a parenthesis."""
        if name == ANY:
            raise self.tokens.error(
                "elements belong to one attribute, not to any", at=self.tokens.at
            )
        index, closing = self.tokens.words[self.tokens.at + 1 : self.tokens.at + 3]
        if index == "*" or (index.isdecimal() and closing == "]"):
            raise self.tokens.error(
                "elements are tested, and not counted",
                at=self.tokens.at + 1,
                hint=f"write {name}.… for any of them, or {name}[…] with a condition of one",
            )
        self._read_prefix(self.tokens.take())
        self._lists.append(name)

    def _read_prefix(self, word: str) -> None:
        self._operators.append((PREFIXES.get(word, OPEN), word, self.tokens.at - 1))
        self._open += 1
        if self._open > self._limits.depth:
            raise LimitError(
                "levels inside the filter", actual=self._open, limit=self._limits.depth
            )

    def _with_sign(self, operand: Operand) -> Operand:
        if not isinstance(operand, Literal):
            return operand
        # `-5` is a constant, not zero minus five: it keeps its type and may be in lists.
        if self._operators and self._operators[-1][0] == NEGATE:
            self._open -= 1
            return self._signed(self._operators.pop()[1], operand)
        return self._in_range(operand)

    def read_list(self, word: str, read: Callable[[], Member]) -> list[Member]:
        """Parse a list in parentheses after `word`, each member by `read`."""
        if self.tokens.current in ("[", "{"):
            hint = "write ( and ) around the list"
            raise self.tokens.error(f'"(" is missing after "{word}"', hint=hint)
        self.tokens.expect("(", f'after "{word}"')
        members: list[Member] = []
        while not members or self.tokens.skip(","):
            members.append(read())
            self._cost += 1
            self._check_cost()
        self.tokens.expect(")", "at the end of the list")
        return members

    def value(self) -> Value:
        """Parse a constant, as in a list."""
        negated = self.tokens.skip("-")
        operand = self.operand(self.tokens.take())
        if not isinstance(operand, Literal):
            at = self.tokens.at - 1
            word = describe_token(self.tokens.words[at])
            raise self.tokens.error(f"expected a value, found {word}", at=at)
        return (self._signed("-", operand) if negated else self._in_range(operand)).constant

    def _signed(self, sign: str, literal: Literal) -> Literal:
        value = literal.constant
        if isinstance(value, int | float) and not isinstance(value, bool):
            return Literal.of(-value) if sign == "-" else self._in_range(literal)
        raise self.tokens.error(
            f'only a number can have a "{sign}", not {literal}', at=self.tokens.at - 1
        )

    def _in_range(self, literal: Literal) -> Literal:
        if literal.type is Type.INT and literal.constant == LARGEST_BEFORE_SIGN:
            raise self.tokens.error(
                f"the integer {LARGEST_BEFORE_SIGN} does not fit in 64 bits", at=self.tokens.at - 1
            )
        return literal

    def _unexpected_operand(self, word: str) -> FilterSyntaxError:
        at = self.tokens.at - 1
        if not word:
            missing = "a condition or value is missing at the end"
            return self.tokens.error(missing if at else "the filter is empty", at=at)
        hint = BLANK_HINT if word.isspace() else self.hints.operands.get(word, "")
        joined = self._operators and self._operators[-1][0] in CONNECTIVES
        if joined and self.infix.get(word, NO_OPERATOR)[0] == COMPARE:
            hint = "name the attribute again"
        return self.tokens.error(
            f"expected a condition or value, found {describe_token(word)}", at=at, hint=hint
        )

    # --- operators ---------------------------------------------------------------------------

    def _read_operators(self) -> bool:
        """Parse up to the next operand; return whether the text ends first."""
        tokens, operators = self.tokens, self._operators
        while True:
            word = tokens.take()
            found = self._infix(word)
            if found is not None:
                self._read_infix(*found)
                return False
            if word == ")":
                self._close(word, "(")
            elif word == "]" and self.has_elements:
                self._close(word, "[")
            elif not word:
                self._reduce(OPEN + 1)
                if operators:
                    _, opening, at = operators[-1]
                    raise tokens.error(f'this "{opening}" is never closed', at=at)
                return True
            else:
                self._read_predicate(word)

    def _infix(self, word: str) -> tuple[int, str] | None:
        found = self.infix.get(word)
        if found is None and word.isalpha():
            found = self.infix.get(word.lower())
            if found is None and word in PREFIXES and self.tokens.skip("between"):
                return COMPARE, "not between"
        return found

    def _read_infix(self, level: int, op: str) -> None:
        at = self.tokens.at - 1
        operators = self._operators
        above = operators[-1][0] if operators else OPEN
        # Mostly there is nothing to reduce. Connectives of one level are joined all at once.
        if above < level or (above == level and level in CONNECTIVES):
            operators.append((level, op, at))
            return
        if level == AND:
            self._reduce(COMPARE + 1)
            if operators and operators[-1][1].endswith("between"):
                operators[-1] = (COMPARE, f"{operators[-1][1]} and", operators[-1][2])
                return
        # One higher for operators with any number of terms, which are joined all at once.
        self._reduce(level + 1 if level in CONNECTIVES else level if level > COMPARE else level + 1)
        if level == COMPARE and operators and operators[-1][0] == COMPARE:
            raise self.tokens.error(
                "two comparisons in a row", at=at, hint='join them with "and", or use "between"'
            )
        operators.append((level, op, at))

    def _close(self, word: str, opening: str) -> None:
        self._reduce(OPEN + 1)
        at = self.tokens.at - 1
        if not self._operators:
            raise self.tokens.error(f'this "{word}" has no matching "{opening}"', at=at)
        if self._operators[-1][1] != opening:
            found = self._operators[-1][1]
            raise self.tokens.error(
                f'this "{word}" closes nothing: the last that is open is a "{found}"', at=at
            )
        _, _, start = self._operators.pop()
        self._open -= 1
        if opening == "[":
            condition = self._filter(*self._operands.pop())
            self._operands.append((ElementTest.of(self._lists.pop(), condition), start - 1))

    def _read_predicate(self, word: str) -> None:
        tokens = self.tokens
        at = tokens.at - 1
        negated = word.lower() == "not"
        if negated:
            word = tokens.take()
        method = self.predicates.get(word.lower())
        if method is None and negated:
            raise self._unexpected_after_not(word, at)
        if method is None:
            raise self._unexpected_operator(tokens.at - 1)
        self._reduce(COMPARE + 1)
        operand, start = self._operands.pop()
        if not isinstance(operand, Reference):
            raise tokens.error(
                f'"{word.lower()}" belongs after an attribute, not after '
                f"{'a condition' if isinstance(operand, Filter) else operand}",
                at=at,
            )
        found = self.counted(method(self, operand.name))
        self._operands.append((Not.of(found) if negated else found, start))

    def _unexpected_operator(self, at: int) -> FilterSyntaxError:
        word = self.tokens.words[at]
        known = (*self.infix, *self.predicates, *self.suggestions)
        before = self.tokens.words[at - 1].lower()
        hint = self.hints.leading.get(before) or self.operator_hint(at)
        hint = BLANK_HINT if word.isspace() else hint
        if not word:
            return self.tokens.error("the text ends in the middle of a condition", at=at)
        return self.tokens.error(
            f"expected an operator, found {describe_token(word)}", at=at, hint=hint, known=known
        )

    def _unexpected_after_not(self, word: str, at: int) -> FilterSyntaxError:
        level, symbol = self.infix.get(word, NO_OPERATOR)
        if level != COMPARE:
            return self._unexpected_operator(at + 1)
        unequal = "!=" if "!=" in self.infix else "<>"
        instead = "not" if symbol != "=" else unequal
        before = " before the whole comparison" if symbol != "=" else ""
        instead = f'write "{instead}"{before}'
        return self.tokens.error(f'"not" cannot stand before "{word}"', at=at, hint=instead)

    # --- joining -----------------------------------------------------------------------------

    def _reduce(self, level: int) -> None:
        """Reduce all operators of at least this precedence."""
        operators = self._operators
        while operators and operators[-1][0] >= level:
            self._join()

    def _join(self) -> None:
        level, op, at = self._operators.pop()
        operands = self._operands
        if level in CONNECTIVES:
            operands.append((CONNECTIVES[level].of(self._terms(level)), at))
        elif level == NOT:
            self._open -= 1
            operands.append((Not.of(self._filter(*operands.pop())), at))
        elif level == NEGATE:
            self._open -= 1
            operands.append((self.sign_of(op, self._expression(at)), at))
        else:
            operands.append((self._joined_expressions(level, op, at), at))

    def _terms(self, level: int) -> list[Filter]:
        """Pop all terms joined by operators of one precedence."""
        count = 2
        while self._operators and self._operators[-1][0] == level:
            self._operators.pop()
            count += 1
        terms = self._operands[-count:]
        del self._operands[-count:]
        return [self._filter(*term) for term in terms]

    def _joined_expressions(self, level: int, op: str, at: int) -> Operand:
        right, left = self._expression(at), self._expression(at)
        if level == COMPARE and not op.endswith(("between", "between and")):
            return self._compared(op, left, right, at)
        if op.endswith("between"):
            raise self.tokens.error('"between" needs "and" and a second value', at=at)
        try:
            if level > COMPARE:
                return Arithmetic.of(op, left, right)
            term = self._expression(at)
            return self.counted(self.between(term, left, right, negated=op.startswith("not")))
        except FilterTypeError as error:
            raise self.tokens.error(error.reason, at=at) from None

    def _compared(self, op: str, left: Expression, right: Expression, at: int) -> Filter:
        try:
            return self.counted(self.comparison(op, left, right))
        except FilterTypeError as error:
            raise self.tokens.error(error.reason, at=at) from None

    def comparison(self, op: str, left: Expression, right: Expression) -> Filter:
        """Return the comparison of two expressions."""
        return compare_expressions(op, left, right)

    def between(
        self, term: Expression, low: Expression, high: Expression, *, negated: bool
    ) -> Filter:
        """Return `between`, or `not between`, of three expressions."""
        found = between_expressions(term, low, high)
        return Not.of(found) if negated else found

    def sign_of(self, sign: str, term: Expression) -> Expression:
        """Return `-term`, or `+term`, which is the term itself, so that indexes can use it."""
        if sign == "+" and not isinstance(term, Literal):
            return term
        return Arithmetic.of(sign, ZERO, term)

    def _filter(self, operand: Operand, at: int) -> Filter:
        return operand if isinstance(operand, Filter) else self.condition(operand, at)

    def _expression(self, at: int) -> Expression:
        """Pop an operand of the operator at a token; it must be a value."""
        operand, _ = self._operands.pop()
        if isinstance(operand, Filter):
            raise self.tokens.error(
                f'expected a value on both sides of "{self.tokens.words[at]}", not a condition',
                at=at,
            )
        return operand

    def counted(self, found: Filter) -> Filter:
        """Return an atom and count it; refuse one too many at once, before parsing more."""
        if type(found) in PLAIN_ATOMS:
            self._cost += 1
        # Members of a list are counted while parsing it.
        elif type(found.test if isinstance(found, Caseless) else found) not in _LISTS:
            self._cost += atom_cost(found)
            self._has_patterns = self._has_patterns or isinstance(found, MAY_BE_PATTERNS)
        if self._cost > self._limits.atoms:
            self._check_cost()
        return any_text(found) if self.names_any and ANY in found.attributes() else found

    def _check_cost(self) -> None:
        if self._cost > self._limits.atoms:
            raise LimitError("atoms in the filter", actual=self._cost, limit=self._limits.atoms)

    def _result(self) -> Filter:
        result = self._filter(*self._operands.pop())
        self._limits.check_depth(result)
        if self._has_patterns:
            self._limits.check_steps(result)
        return result

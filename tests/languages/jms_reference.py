"""An evaluator of JMS selectors written straight from the standard, and random selectors for it.

Nothing here uses Tamis: a selector is a tuple tree, its text is written by `text_of`, and its
value on a message (a plain dict) by `value_of`, with None for unknown.
"""

from __future__ import annotations

import math
import operator
import random
import re
from collections.abc import Mapping
from typing import Any

Message = Mapping[str, Any]
Node = tuple[Any, ...]

ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

NAMES = ("a", "b", "c", "flag")
STRINGS = ("", "x", "xy", "x_", "it's", "a\\b", "%", "5")
NUMBERS = ("0", "1", "2", "3", "5", "1.5", "2.", "0x2", "03", "1e0", "4L", "2.0d")
VALUES = {text: float(text) for text in ("1.5", "2.", "1e0")} | {
    "0": 0,
    "1": 1,
    "2": 2,
    "3": 3,
    "5": 5,
    "0x2": 2,
    "03": 3,
    "4L": 4,
    "2.0d": 2.0,
}
PATTERNS = ("%", "x%", "_", "x!_", "%!%", "!!%", "", "a\\b", "%y", "x_")


# --- the standard's rules -------------------------------------------------------------------


def type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


class NotANumberError(Exception):
    """A string or boolean stands in an arithmetic expression."""


def number_of(node: Node, message: Message) -> Any:
    """Return the value of an expression: None for NULL, NULL before everything else."""
    match node:
        case ("name", name):
            return message.get(name)
        case ("literal", text):
            return VALUES[text]
        case ("string", value) | ("boolean", value):
            return value
        case ("sign", sign, term):
            value = number_of(term, message)
            return None if value is None else (0 + numeric(value)) * (-1 if sign == "-" else 1)
        case ("arithmetic", op, left, right):
            a, b = lazily(left, message), lazily(right, message)
            if a is None or b is None:
                return None
            return calculated(op, numeric(a), numeric(b))
    raise AssertionError(node)


def lazily(node: Node, message: Message) -> Any:
    """Return the value, or the exception itself, so that NULL on the other side is still seen."""
    try:
        return number_of(node, message)
    except NotANumberError as error:
        return error


def numeric(value: Any) -> Any:
    if isinstance(value, NotANumberError) or type_of(value) != "number":
        raise NotANumberError
    return value


def calculated(op: str, a: Any, b: Any) -> Any:
    """Java numeric promotion; what a division by zero gives is left open: NaN stands for it."""
    if op == "/":
        if b == 0:
            return math.nan
        if isinstance(a, int) and isinstance(b, int):
            return int(a / b)  # cuts towards zero
        return a / b
    return {"+": operator.add, "-": operator.sub, "*": operator.mul}[op](a, b)


def compared(op: str, left: Node, right: Node, message: Message) -> bool | None:
    a, b = lazily(left, message), lazily(right, message)
    if a is None or b is None:
        return None
    if isinstance(a, NotANumberError) or isinstance(b, NotANumberError) or type_of(a) != type_of(b):
        return False
    if has_no_value(a) or has_no_value(b):
        return None
    if op in ("=", "<>"):
        return bool((a == b) == (op == "="))
    return type_of(a) == "number" and bool(ORDER[op](a, b))


def has_no_value(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def both(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def negation(a: bool | None) -> bool | None:
    return None if a is None else not a


def either(a: bool | None, b: bool | None) -> bool | None:
    return negation(both(negation(a), negation(b)))


def like(value: str, pattern: str, escape: str | None) -> bool:
    parts, i = [], 0
    while i < len(pattern):
        if pattern[i] == escape:
            i += 1
            parts.append(re.escape(pattern[i]))
        else:
            parts.append({"%": ".*", "_": "."}.get(pattern[i], re.escape(pattern[i])))
        i += 1
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


def value_of(node: Node, message: Message) -> bool | None:
    match node:
        case ("and", left, right):
            return both(value_of(left, message), value_of(right, message))
        case ("or", left, right):
            return either(value_of(left, message), value_of(right, message))
        case ("not", term):
            return negation(value_of(term, message))
        case ("constant", value):
            return bool(value)
        case ("compare", op, left, right):
            return compared(op, left, right, message)
        case ("name", name):
            return compared("=", node, ("boolean", True), message)
        case ("between", term, low, high):
            return both(compared(">=", term, low, message), compared("<=", term, high, message))
        case ("not between", term, low, high):
            return either(compared("<", term, low, message), compared(">", term, high, message))
        case ("null", name, is_null):
            return (message.get(name) is None) is bool(is_null)
        case ("in", name, values, negated):
            found = on_string(message.get(name), lambda value: value in values)
            return negation(found) if negated else found
        case ("like", name, pattern, escape, negated):
            found = on_string(message.get(name), lambda value: like(value, pattern, escape))
            return negation(found) if negated else found
    raise AssertionError(node)


def on_string(value: Any, test: Any) -> bool | None:
    if value is None:
        return None
    return type_of(value) == "string" and bool(test(value))


# --- text -----------------------------------------------------------------------------------

LEVELS = {"or": 1, "and": 2, "not": 3}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def term_text(node: Node, level: int = 0) -> str:
    match node:
        case ("name", name):
            return str(name)
        case ("literal", text):
            return str(text)
        case ("string", value):
            return quoted(value)
        case ("boolean", value):
            return "TRUE" if value else "FALSE"
        case ("sign", sign, term):
            return f"{sign} {term_text(term, 3)}"
        case ("arithmetic", op, left, right):
            own = 1 if op in "+-" else 2
            text = f"{term_text(left, own)} {op} {term_text(right, own + 1)}"
            return f"({text})" if own < level else text
    raise AssertionError(node)


def text_of(node: Node, level: int = 0) -> str:
    match node:
        case ("and" | "or" as op, left, right):
            own = LEVELS[op]
            text = f"{text_of(left, own)} {op.upper()} {text_of(right, own + 1)}"
        case ("not", term):
            own, text = LEVELS["not"], f"NOT {text_of(term, LEVELS['not'])}"
        case _:
            return atom_text(node)
    return f"({text})" if own < level else text


def atom_text(node: Node) -> str:
    match node:
        case ("constant", value):
            return "TRUE" if value else "FALSE"
        case ("name", name):
            return str(name)
        case ("compare", op, left, right):
            return f"{term_text(left)} {op} {term_text(right)}"
        case ("between" | "not between" as word, term, low, high):
            return f"{term_text(term)} {word.upper()} {term_text(low)} AND {term_text(high)}"
        case ("null", name, is_null):
            return f"{name} IS {'' if is_null else 'NOT '}NULL"
        case ("in", name, values, negated):
            return f"{name} {'NOT ' if negated else ''}IN ({', '.join(map(quoted, values))})"
        case ("like", name, pattern, escape, negated):
            end = f" ESCAPE {quoted(escape)}" if escape else ""
            return f"{name} {'NOT ' if negated else ''}LIKE {quoted(pattern)}{end}"
    raise AssertionError(node)


# --- chance ---------------------------------------------------------------------------------


class Chance:
    """Random selectors and messages from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def message(self) -> dict[str, Any]:
        booleans = (True, False) * 3
        choices: tuple[Any, ...] = (None, 0, 1, 2, 3, 5, -2, 1.5, 2.0, *STRINGS, *booleans)
        return {name: v for name in NAMES if (v := self.random.choice(choices)) is not None}

    def condition(self, depth: int) -> Node:
        draw = self.random.random()
        if depth == 0 or draw < 0.25:
            return self.atom()
        if draw < 0.5:
            return ("not", self.condition(depth - 1))
        return (
            "and" if draw < 0.75 else "or",
            self.condition(depth - 1),
            self.condition(depth - 1),
        )

    def atom(self) -> Node:
        pick, name = self.random.choice, self.random.choice(NAMES)
        match self.random.randrange(10):
            case 0 | 1:
                return ("compare", pick(("=", "<>", *ORDER)), self.term(2), self.term(2))
            case 2:
                return ("compare", pick(("=", "<>")), ("name", name), ("string", pick(STRINGS)))
            case 3:
                return ("compare", pick(("=", "<>")), self.constant(), self.term(1))
            case 8:
                return ("compare", pick(("=", "<>")), ("name", name), ("name", pick(NAMES)))
            case 4:
                word = pick(("between", "not between"))
                return (word, self.term(1), self.term(1), self.term(1))
            case 5:
                return ("null", name, pick((True, False)))
            case 6:
                values = self.random.sample(STRINGS, self.random.randrange(1, 4))
                return ("in", name, values, pick((True, False)))
            case 7:
                pattern = pick(PATTERNS)
                escape = "!" if "!" in pattern else pick(("!", None))
                return ("like", name, pattern, escape, pick((True, False)))
            case _:
                return pick((("name", name), ("constant", pick((True, False)))))

    def constant(self) -> Node:
        pick = self.random.choice
        return pick((("string", pick(STRINGS)), ("boolean", pick((True, False)))))

    def term(self, depth: int) -> Node:
        pick, draw = self.random.choice, self.random.random()
        if depth == 0 or draw < 0.6:
            return ("name", pick(NAMES)) if draw < 0.4 else ("literal", pick(NUMBERS))
        if draw < 0.7:
            return ("sign", pick("+-"), self.term(depth - 1))
        return ("arithmetic", pick("+-*/"), self.term(depth - 1), self.term(depth - 1))


def is_computable(node: Node) -> bool:
    """Return whether no constant part divides by zero, which parsing refuses."""
    if node[0] == "arithmetic" and not names_in(node) and math.isnan(number_of(node, {})):
        return False
    return all(is_computable(part) for part in node if isinstance(part, tuple))


def names_in(node: Node) -> bool:
    return node[0] == "name" or any(names_in(part) for part in node if isinstance(part, tuple))

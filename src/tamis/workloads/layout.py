"""From the parts of an alternative to text: spaces, and parentheses where they are needed.

A rule is one condition wherever it is used: if `either` makes `a or b`, then `{either} and c` is
`(a or b) and c`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tamis.workloads.distributions import Window
from tamis.workloads.grammar import DrawnValue, Part, Terminal

OR, XOR, AND, NOT, COMPARE, ADD, MULTIPLY, TIGHTEST = range(1, 9)

BINDING: Final = {
    "or": OR,
    "xor": XOR,
    "and": AND,
    "not": NOT,
    **dict.fromkeys(("=", "==", "!=", "<>", "<", "<=", ">", ">="), COMPARE),
    **dict.fromkeys(("between", "in", "is", "has", "contains", "within"), COMPARE),
    **dict.fromkeys(("starts", "ends", "like", "matches"), COMPARE),
    "+": ADD,
    "-": ADD,
    "*": MULTIPLY,
    "/": MULTIPLY,
    "div": MULTIPLY,
}

Drawn = tuple[str, int]
"""A text, and how tightly its loosest operator binds."""


class Hole(NamedTuple):
    """A place for the text of another part."""

    needed: int
    """Text that binds less tightly gets parentheses."""
    enclosed: bool
    """Whether it is already in parentheses."""


class Layout(NamedTuple):
    """The fixed texts of an alternative, with holes in between."""

    texts: tuple[str, ...]
    """One more than holes."""
    holes: tuple[Hole, ...]
    binding: int
    """How tightly the loosest operator of the alternative itself binds."""

    def join(self, drawn: Sequence[Drawn]) -> Drawn:
        """Return the text with its holes filled."""
        binding = self.binding
        written = self.texts[0]
        for (text, bound), (needed, enclosed), after in zip(
            drawn, self.holes, self.texts[1:], strict=True
        ):
            if bound < needed:
                written += f"({text}){after}"
            else:
                written += text + after
                if bound < binding and not enclosed:
                    binding = bound
        return written, binding


def lay_out(parts: Sequence[Part]) -> Layout:
    """Return the layout of an alternative."""
    words = [part.word if isinstance(part, Terminal) else None for part in parts]
    operators = _operators(parts)
    depths = _depths(words)
    texts, holes = [""], []
    for at, word in enumerate(words):
        texts[-1] += _space(words, at)
        if word is None:
            holes.append(Hole(_needed(operators, at), depths[at] > 0))
            texts.append("")
        else:
            texts[-1] += word
    outer = [found for found, depth in zip(operators, depths, strict=True) if found and not depth]
    # An operator alone is part of a comparison elsewhere, not a condition.
    binding = min(outer, default=TIGHTEST) if len(parts) > 1 else TIGHTEST
    return Layout(tuple(texts), tuple(holes), binding)


def separated(separator: str) -> tuple[str, int]:
    """Return the text between repetitions, and how tightly these must bind."""
    return (", ", 0) if separator == "," else (f" {separator} ", BINDING[separator])


def _operators(parts: Sequence[Part]) -> list[int]:
    """Return how tightly each operator binds; `between` has an `and` of its own."""
    found = []
    open_betweens = 0
    for part in parts:
        word = part.word if isinstance(part, Terminal) else ""
        own = word == "and" and open_betweens > 0
        if own or (isinstance(part, DrawnValue) and isinstance(part.source, Window)):
            open_betweens = max(0, open_betweens - 1)
        open_betweens += word == "between"
        found.append(COMPARE if own else BINDING.get(word, 0))
    return found


def _depths(words: Sequence[str | None]) -> list[int]:
    depth = 0
    found = []
    for word in words:
        depth -= word == ")"
        found.append(depth)
        depth += word == "("
    return found


def _needed(operators: Sequence[int], at: int) -> int:
    left = operators[at - 1] if at else 0
    right = operators[at + 1] if at + 1 < len(operators) else 0
    if left == NOT:
        # As filters are printed: `not (x = 1)`.
        return TIGHTEST
    # Subtraction and comparison associate to the left, so the right operand must bind tighter.
    return max(left + 1 if left >= COMPARE else left, right)


def _space(words: Sequence[str | None], at: int) -> str:
    tight = at == 0 or words[at - 1] == "(" or words[at] in (")", ",") or _is_signed(words, at)
    return "" if tight else " "


def _is_signed(words: Sequence[str | None], at: int) -> bool:
    """Return whether a word follows a sign, as in `x < -5`, rather than a difference."""
    before = "(" if at < 2 else words[at - 2]
    return words[at - 1] in ("-", "+") and (before in ("(", ",") or before in BINDING)

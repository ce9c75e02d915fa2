"""Limits on the size of a filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tamis.errors import LimitError
from tamis.filters.any_text import AnyText, bare_test
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import PLAIN_ATOMS, Caseless, In, InNetwork, Regex
from tamis.filters.boolean import MAX_DEPTH, Filter
from tamis.filters.element_test import Conditions, conditions_in
from tamis.filters.patterns import pattern_steps

# The longest that RE2 was seen to take for a step, on one core of a small server.
NANOSECONDS_PER_STEP: Final = 20


class FilterLimits(NamedTuple):
    """Bounds on one filter; the operator can raise each, depth up to 200."""

    text: int = 16 * 1024
    """Characters of text."""
    atoms: int = 1024
    """Atoms; every constant of a list and every operand of an arithmetic counts as one."""
    depth: int = 64
    """Levels of and, or, not, parentheses and arithmetic inside each other."""
    steps: int = 256
    """Steps that all regular expressions together may take for one character of a text."""

    def check_text(self, text: str) -> None:
        """Refuse a text that is too long to parse."""
        if len(text) > self.text:
            raise LimitError("characters in the filter", actual=len(text), limit=self.text)

    def check(self, filter_: Filter) -> Conditions:
        """Refuse a filter with too many atoms, levels or steps; return what it tests."""
        self.check_depth(filter_)
        conditions = conditions_in(filter_)
        atoms = conditions.atoms
        cost, patterns = len(atoms), list[Filter]()
        # Most atoms are plain, and every filter comes through here.
        if not PLAIN_ATOMS.issuperset(map(type, atoms)):
            cost = sum(map(atom_cost, atoms))
            patterns = [atom for atom in atoms if isinstance(atom, MAY_BE_PATTERNS)]
        if cost > self.atoms:
            raise LimitError("atoms in the filter", actual=cost, limit=self.atoms)
        if patterns:
            self._check_steps(patterns)
        return conditions

    def check_steps(self, filter_: Filter) -> None:
        """Refuse a filter whose regular expressions may take too long."""
        self._check_steps(
            [atom for atom in conditions_in(filter_).atoms if isinstance(atom, MAY_BE_PATTERNS)]
        )

    def _check_steps(self, atoms: Sequence[Filter]) -> None:
        tests = [bare_test(atom) for atom in atoms]
        steps = sum(pattern_steps(test.pattern) for test in tests if isinstance(test, Regex))
        if steps > self.steps:
            raise LimitError(
                "steps for one character in the regular expressions of the filter",
                actual=steps,
                limit=self.steps,
                advice="repeat less, as in .* for .{100}, or test with like or contains",
            )

    def check_depth(self, filter_: Filter) -> None:
        """Refuse a filter with too many levels; every node knows its own."""
        depth = min(self.depth, MAX_DEPTH)
        if filter_.depth > depth:
            raise LimitError("levels inside the filter", actual=filter_.depth, limit=depth)


MAY_BE_PATTERNS: Final = (Regex, Caseless, AnyText)
"""The only atoms that may be regular expressions."""

# What was accepted once, under the limits of that time, is read again without any.
NO_LIMITS: Final = FilterLimits(text=2**62, atoms=2**62, depth=2**62, steps=2**62)


def steps_within(seconds: float, text_bytes: int) -> int:
    """Return how many steps a filter may take so that no text of a size takes it longer.

    >>> steps_within(seconds=0.5, text_bytes=256 * 1024)
    95
    """
    return int(seconds * 1e9 / (NANOSECONDS_PER_STEP * text_bytes))


def atom_cost(atom: Filter) -> int:
    """Return how many atoms a node counts as."""
    # Most are of these, and parsers come through here for every atom.
    if type(atom) in PLAIN_ATOMS:
        return 1
    test = bare_test(atom)
    if isinstance(test, In):
        return len(test.values)
    if isinstance(test, InNetwork):
        return len(test.networks)
    if isinstance(atom, Relation):
        return max(1, sum(1 for _ in atom.operands()) - 1)
    return 1

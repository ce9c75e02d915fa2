"""Limits on the size of a filter."""

from __future__ import annotations

from typing import NamedTuple

from tamis.errors import LimitError
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import In
from tamis.filters.boolean import MAX_DEPTH, Filter


class FilterLimits(NamedTuple):
    """Bounds on one filter; the operator can raise each, depth up to 200."""

    text: int = 16 * 1024
    """Characters of text."""
    atoms: int = 1024
    """Atoms; every constant of a list and every operand of an arithmetic counts as one."""
    depth: int = 64
    """Levels of and, or, not, parentheses and arithmetic inside each other."""

    def check_text(self, text: str) -> None:
        """Refuse a text that is too long to parse."""
        if len(text) > self.text:
            raise LimitError("characters in the filter", actual=len(text), limit=self.text)

    def check(self, filter_: Filter) -> None:
        """Refuse a filter with too many atoms or levels; linear in its size."""
        self.check_depth(filter_)
        cost = sum(map(atom_cost, filter_.atoms()))
        if cost > self.atoms:
            raise LimitError("atoms in the filter", actual=cost, limit=self.atoms)

    def check_depth(self, filter_: Filter) -> None:
        """Refuse a filter with too many levels; every node knows its own."""
        depth = min(self.depth, MAX_DEPTH)
        if filter_.depth > depth:
            raise LimitError("levels inside the filter", actual=filter_.depth, limit=depth)


def atom_cost(atom: Filter) -> int:
    """Return how many atoms a node counts as."""
    if isinstance(atom, In):
        return len(atom.values)
    if isinstance(atom, Relation):
        return max(1, sum(1 for _ in atom.operands()) - 1)
    return 1

"""Pushing filters down: a condition in another language that holds at least where a filter does.

Where every part of a filter can be expressed exactly, so is the whole. Other parts are left out of
a conjunction, and make a disjunction unbounded; whoever asks filters again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from tamis.filters import Filter
from tamis.filters.boolean import TruthSets

B = TypeVar("B")


class Bounds(TruthSets[B | None], Generic[B]):
    """Finds for a filter a condition that holds wherever the filter is true; None: everywhere."""

    def __init__(self) -> None:
        self.is_exact = True
        """Whether the conditions so far hold nowhere else."""

    def bound(self, filter_: Filter) -> B | None:
        """Return the condition of a filter."""
        return self.where(filter_, truth=True)

    def _all(self, parts: Sequence[B | None]) -> B | None:
        known = [part for part in parts if part is not None]
        return self.conjunction(known) if known else None

    def _any(self, parts: Sequence[B | None]) -> B | None:
        known = [part for part in parts if part is not None]
        return self.disjunction(known) if known and len(known) == len(parts) else None

    def _parity(self, terms: Sequence[Filter], *, odd: bool) -> B | None:  # noqa: ARG002
        self.is_exact = False
        return None

    def _constant(self, value: bool) -> B | None:
        return self.constant(value)

    def _atom(self, atom: Filter, *, truth: bool) -> B | None:
        found = self.atom(atom, truth=truth)
        if found is None:
            self.is_exact = False
        return found

    def conjunction(self, parts: Sequence[B]) -> B:
        """Return the condition that all of these hold."""
        raise NotImplementedError

    def disjunction(self, parts: Sequence[B]) -> B:
        """Return the condition that one of these holds."""
        raise NotImplementedError

    def constant(self, value: bool) -> B:
        """Return the condition that always holds, or never."""
        raise NotImplementedError

    def atom(self, atom: Filter, *, truth: bool) -> B | None:
        """Return the exact condition that an atom is true, or false; None if there is none."""
        raise NotImplementedError

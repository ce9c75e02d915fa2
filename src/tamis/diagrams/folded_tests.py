"""What a text says about itself folded: how exact tests decide those that ignore case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tamis.diagrams.atom_intervals import (
    TextPredicate,
    folded_test,
    intervals_of,
    text_predicate_of,
)
from tamis.diagrams.value_order import Interval, ValueOrder, common_prefix
from tamis.events import Kind
from tamis.filters.atoms import Caseless, Like, TextTest
from tamis.filters.folding import fold


class FoldedTest(NamedTuple):
    """A test of the folded text, with what exact knowledge of the text decides about it."""

    accepts: Callable[[str], bool]
    """The test of a text as it is."""
    intervals: Sequence[Interval] | None
    """Where a folded text passes, if that is a union of intervals."""
    value_order: ValueOrder
    part: str
    """Every text that contains this, folded, passes; empty if none is known."""
    ending: str
    """Every text that ends with this, folded, passes; empty if none is known."""

    @classmethod
    def of(cls, atom: Caseless, value_order: ValueOrder) -> FoldedTest:
        """Return the test of an atom, in the value order of folded texts."""
        test = folded_test(atom)
        op, text = "", ""
        if isinstance(test, TextTest | Like):
            op, text = text_predicate_of(test).key
        part = text if op == "contains" else ""
        ending = text if op == "ends with" else ""
        return cls(atom.accepts, intervals_of(test, value_order), value_order, part, ending)

    def holds_under(self, low: str, high: str | None) -> bool | None:
        """Return True if all texts from low to below high pass, False if none do, else None."""
        if high == low + "\0":
            return self.accepts(low)
        known = fold(common_prefix(low, high))
        if self.part and self.part in known:
            return True
        if self.intervals is None or not known:
            return None
        begin = self.value_order.below(Kind.TEXT, known)
        end = self.value_order.above_prefix(known)
        if any(one <= begin and end <= other for one, other in self.intervals):
            return True
        return None if any(a < end and begin < b for a, b in self.intervals) else False

    def holds_with_suffix(self, suffix: str) -> bool:
        """Return whether every text that ends with `suffix` passes."""
        folded = fold(suffix)
        if self.part and self.part in folded:
            return True
        return bool(self.ending) and folded.endswith(self.ending)

    def follows_from(self, other: TextPredicate) -> bool:
        """Return whether a text that passes an exact test always passes this one."""
        if not self.part:
            return False
        return any(self.part in fold(part) for part in (*other.parts, other.prefix, other.suffix))

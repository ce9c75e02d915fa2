"""How the values of two expressions compare, as nodes: one pair serves all comparisons of it.

With one value each, exactly one of less, equal and greater is the case where the two can be
compared. With several values, each may be the case for some choice of them, independently of the
others. Values of kinds without an order are only the same or different.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tamis.diagrams.diagram import Diagram, Node
from tamis.diagrams.kernels import FALSE, TRUE
from tamis.diagrams.variable_order import ComparedPair, PairVariables
from tamis.filters.arithmetic import Arithmetic


class PairOutcomes(NamedTuple):
    """Where the left value is less than the right one, equal to it, and so on."""

    less: Node
    equal: Node
    greater: Node
    same: Node = FALSE
    different: Node = FALSE

    def satisfying(self, op: str) -> list[Node]:
        """Return the outcomes that satisfy a comparison."""
        return [getattr(self, name) for name in _SATISFYING[op]]

    def knowing(self, op: str) -> list[Node]:
        """Return the outcomes that make a comparison true or false, not unknown."""
        return list(self if op in _EQUALITY else self[:3])


_EQUALITY: Final = ("=", "!=")
_SATISFYING: Final = {
    "<": ("less",),
    "<=": ("less", "equal"),
    ">": ("greater",),
    ">=": ("greater", "equal"),
    "=": ("equal", "same"),
    "!=": ("less", "greater", "different"),
}


def computes(pair: ComparedPair) -> bool:
    """Return whether a pair is compared by arithmetic, and so as numbers."""
    return isinstance(pair.left, Arithmetic) or isinstance(pair.right, Arithmetic)


def outcomes_of(
    pair: ComparedPair, variables: PairVariables, diagram: Diagram, *, many: bool
) -> PairOutcomes:
    """Return the outcomes of a pair; `many` if an attribute in it may hold several values."""
    is_itself = pair.left == pair.right
    if many:
        less, equal, greater, same, different, _ = map(diagram.literal, variables)
        found = PairOutcomes(less, equal, greater, same, different)
        # Both sides take the same choice of values.
        return found._replace(less=FALSE, greater=FALSE, different=FALSE) if is_itself else found
    # Arithmetic may have no value: it divides by zero, or exceeds 64 bits.
    known = diagram.literal(variables.known) if computes(pair) else TRUE
    if is_itself:
        return PairOutcomes(FALSE, known, FALSE)
    less, equal = diagram.literal(variables.less), diagram.literal(variables.equal)
    not_less, not_equal = diagram.negate(less), diagram.negate(equal)
    return PairOutcomes(
        diagram.both(known, less),
        diagram.all([known, not_less, equal]),
        diagram.all([known, not_less, not_equal]),
    )

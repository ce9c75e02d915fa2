"""`any` and `all` over the elements of a collection, with conditions that are not about them.

Inside of `any` and `all`, a filter is asked of each element, so that it can say nothing about the
message. What does is moved out where that keeps the meaning, also over an empty collection and for
unknown truth values: `any(a(x) and b)` is `any(a(x)) and b`, and `any(a(x) or c(x))` is `any(a(x))
or any(c(x))`. The rest is refused.
"""

from __future__ import annotations

from typing import NamedTuple

from tamis.errors import FilterTypeError
from tamis.objects.accessors import Accessor
from tamis.objects.patterns import (
    Combination,
    Complement,
    Conjunction,
    Disjunction,
    ObjectFilter,
    Quantified,
)


class Quantifier(NamedTuple):
    """Some element of what an accessor finds satisfies a condition, or all do."""

    accessor: Accessor
    every: bool
    scope: int
    """Of the element: what was asked of another one, or of the message, has another scope."""

    def over(self, condition: ObjectFilter) -> ObjectFilter:
        """Return the filter that a condition on each element says; it may name the message."""
        match self._scopes(condition):
            case [True]:
                return Quantified(self.accessor, self.every, condition)
            case [False]:
                raise self._refused(condition)
            case _:
                return self._mixed(condition)

    def _scopes(self, condition: ObjectFilter) -> list[bool]:
        return [*{one.accessor.scope == self.scope for one in condition.conditions()}]

    def _mixed(self, condition: ObjectFilter) -> ObjectFilter:
        match condition:
            case Complement(term=Conjunction(terms=terms)):
                return self._mixed(Disjunction.of(map(Complement.of, terms)))
            case Complement(term=Disjunction(terms=terms)):
                return self._mixed(Conjunction.of(map(Complement.of, terms)))
            case Conjunction(terms=terms) | Disjunction(terms=terms):
                if isinstance(condition, Conjunction) is self.every:
                    return self._distributed(type(condition), terms)
                return self._moved(type(condition), terms)
            case _:
                raise self._refused(condition)

    def _distributed(
        self, kind: type[Combination], terms: tuple[ObjectFilter, ...]
    ) -> ObjectFilter:
        about = [term for term in terms if self._scopes(term) == [True]]
        others = [self.over(term) for term in terms if term not in about]
        return kind.of((*([self.over(kind.of(about))] if about else []), *others))

    def _moved(self, kind: type[Combination], terms: tuple[ObjectFilter, ...]) -> ObjectFilter:
        outer = [term for term in terms if self._scopes(term) == [False]]
        inner = [term for term in terms if self._scopes(term) != [False]]
        if len(inner) > 1 and any(len(self._scopes(term)) > 1 for term in inner):
            raise self._refused(kind.of(terms))
        return kind.of((self.over(kind.of(inner)), *outer))

    def _refused(self, condition: ObjectFilter) -> FilterTypeError:
        stray = next(one for one in condition.conditions() if one.accessor.scope != self.scope)
        word, join = ("all", "or") if self.every else ("any", "and")
        return FilterTypeError(
            f"inside of {word} over {self.accessor}, the condition on {stray.accessor} does not "
            f"ask about the element: write it outside, before or after {word}(…), or join it to "
            f"the condition on the element with `{join}`"
        )

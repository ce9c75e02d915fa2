"""From filters over objects to filters over attributes, and what is left to check.

Each condition becomes tests of the attribute that its accessor is named for. What no such test says
exactly is weakened, never strengthened: the translation holds wherever the filter does. `_lower`
returns a filter that holds wherever a term is true, or wherever it is false, and whether it holds
nowhere else.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from tamis.events import Kind
from tamis.events.values import nearest_number
from tamis.filters.atoms import COMPLEMENTS, Compare, HasKind, In, Present
from tamis.filters.boolean import TRUE, And, Filter, Not, Or
from tamis.filters.build import comparison_of, like, membership_of, regular, text_test
from tamis.filters.translations import Translation
from tamis.objects.accessors import (
    Accessor,
    AccessorSteps,
    CallStep,
    ClassStep,
    IndexStep,
    KeysStep,
    name_of,
)
from tamis.objects.comparing import kind_of_operand
from tamis.objects.patterns import (
    Complement,
    Conjunction,
    Disjunction,
    ObjectCondition,
    ObjectFilter,
    Parity,
    Quantified,
)
from tamis.objects.remembering import ReadOnce

MAX_EXACT_PARITY: Final = 4
"""The parity of more terms is left to check: its formula doubles with each."""


class Lowered(NamedTuple):
    """A filter over attributes, and whether it holds only where it has to."""

    filter: Filter
    exact: bool


class Residue(NamedTuple):
    """A filter over objects that is left to check where its translation holds."""

    checked: ObjectFilter

    def __str__(self) -> str:
        return repr(self.checked)

    def holds(self, event: object) -> bool:
        """Return whether an object, or a plain event, satisfies the filter itself."""
        return self.checked.truth(event) is True

    def holds_once(self, event: object, once: ReadOnce) -> bool:
        """Return the same, with what others have read of the object."""
        if isinstance(event, Mapping):
            return self.checked.truth(once.event(event)) is True
        return self.checked.truth_by(event, once) is True


def translate_object_filter(filter_: ObjectFilter) -> Translation:
    """Return a filter over attributes that holds wherever a filter over objects does."""
    roots = {condition.accessor.root for condition in filter_.conditions()}
    lowering = _Lowering(guarded=len(roots) > 1)
    lowered, exact = lowering.lower(filter_, positive=True)
    if len(roots) == 1 and "" not in roots:
        lowered = And.of((lowering.guard(*roots), lowered))
    return Translation(lowered, None if exact else Residue(filter_), lowering.ways)


ObjectFilter.translate = translate_object_filter


class _Lowering:
    def __init__(self, *, guarded: bool) -> None:
        self._guarded = guarded
        self.ways: Final[dict[str, AccessorSteps]] = {}

    def guard(self, root: str) -> Filter:
        """Return the test for a class of messages."""
        return self._is_a((), root)

    def lower(self, filter_: ObjectFilter, *, positive: bool) -> Lowered:
        """Return where a filter is true, or with `positive=False` where it is false."""
        match filter_:
            case Complement(term=term):
                return self.lower(term, positive=not positive)
            case Conjunction(terms=terms) | Disjunction(terms=terms):
                join = And if isinstance(filter_, Conjunction) is positive else Or
                return _joined(join.of, [self.lower(term, positive=positive) for term in terms])
            case Parity(terms=terms):
                return self._parity(terms, odd=positive)
            case ObjectCondition():
                return self._with_guard(
                    filter_.accessor, self._condition(filter_, positive=positive)
                )
            case Quantified():
                return self._with_guard(
                    filter_.accessor, self._quantified(filter_, positive=positive)
                )
            case _:
                raise AssertionError(f"{filter_!r} is no filter over objects")

    def _with_guard(self, accessor: Accessor, lowered: Lowered) -> Lowered:
        if not self._guarded or not accessor.root:
            return lowered
        return Lowered(And.of((self.guard(accessor.root), lowered.filter)), lowered.exact)

    def _name(self, steps: AccessorSteps) -> str:
        name = name_of(steps)
        self.ways[name] = steps
        return name

    def _is_a(self, steps: AccessorSteps, class_name: str) -> Filter:
        return Compare(self._name((*steps, ClassStep(class_name))), Kind.BOOLEAN, "=", True)

    # --- parity ------------------------------------------------------------------------------

    def _parity(self, terms: Sequence[ObjectFilter], *, odd: bool) -> Lowered:
        sides = [
            (self.lower(term, positive=True), self.lower(term, positive=False)) for term in terms
        ]
        if len(terms) > MAX_EXACT_PARITY:
            known = [_joined(Or.of, side) for side in sides]
            return Lowered(And.of(one.filter for one in known), exact=False)
        is_odd, is_even = sides[0]
        for true, false in sides[1:]:
            is_odd, is_even = (
                _either(is_odd, false, is_even, true),
                _either(is_odd, true, is_even, false),
            )
        return is_odd if odd else is_even

    # --- conditions --------------------------------------------------------------------------

    def _condition(self, condition: ObjectCondition, *, positive: bool) -> Lowered:
        steps = condition.accessor.steps
        match condition.op:
            case "is a":
                return _signed(self._is_a(steps, condition.operand), positive=positive)
            case "present":
                return _signed(Present(self._name(steps)), positive=positive)
            case "compare":
                return Lowered(Present(self._name(steps)) if steps else TRUE, exact=False)
            case "has":
                return self._has(condition, positive=positive)
            case "contains":
                return self._contains(condition, positive=positive)
            case _:
                return _value_test(condition, self._name(steps), positive=positive)

    def _has(self, condition: ObjectCondition, *, positive: bool) -> Lowered:
        name = self._name(condition.accessor.steps)
        equal = ObjectCondition(condition.accessor, "=", condition.operand)
        if positive:
            return _value_test(equal, name, positive=True)
        # A collection without elements of that kind has no such element either.
        unequal = _value_test(equal, name, positive=False).filter
        kind = kind_of_operand(condition.operand)
        assert kind is not None  # noqa: S101 - constants are never NaN
        return Lowered(Or.of((unequal, Not.of(HasKind(name, kind)))), exact=False)

    def _contains(self, condition: ObjectCondition, *, positive: bool) -> Lowered:
        if not positive:
            return Lowered(TRUE, exact=False)
        name = self._name(condition.accessor.steps)
        equal = ObjectCondition(condition.accessor, "=", condition.operand)
        keys = self._name((*condition.accessor.steps, KeysStep()))
        is_key = _value_test(equal, keys, positive=True).filter
        if isinstance(condition.operand, str):
            # The element of a collection that equals a text contains it.
            holds = text_test(name, "contains", condition.operand)
        else:
            holds = _value_test(equal, name, positive=True).filter
        return Lowered(Or.of((holds, is_key)), exact=False)

    # --- elements ----------------------------------------------------------------------------

    def _quantified(self, condition: Quantified, *, positive: bool) -> Lowered:
        if condition.every is positive:
            # All elements satisfy something, or none does: no attribute says that.
            return Lowered(TRUE, exact=False)
        steps = condition.accessor.steps
        lowered, exact = self._some(condition.inner, steps, positive=positive)
        return Lowered(lowered, exact and positive)

    def _some(self, inner: ObjectFilter, outer: AccessorSteps, *, positive: bool) -> Lowered:
        """Return where some element satisfies a filter; attributes hold the values of all."""
        match inner:
            case Parity():
                return Lowered(TRUE, exact=False)
            case Complement(term=term):
                return self._some(term, outer, positive=not positive)
            case Conjunction(terms=terms) | Disjunction(terms=terms):
                parts = [self._some(term, outer, positive=positive) for term in terms]
                if isinstance(inner, Disjunction) is positive:
                    return _joined(Or.of, parts)
                # Different elements may satisfy the parts.
                return Lowered(And.of(part.filter for part in parts), exact=False)
            case Quantified(accessor=accessor, every=every, inner=nested):
                if every is positive or not _leads_into_elements(accessor.steps):
                    return Lowered(TRUE, exact=False)
                found = self._some(nested, (*outer, *accessor.steps), positive=positive)
                return Lowered(found.filter, found.exact and positive)
            case ObjectCondition():
                return self._some_value(inner, outer, positive=positive)
            case _:
                raise AssertionError(f"{inner!r} is no filter over objects")

    def _some_value(
        self, condition: ObjectCondition, outer: AccessorSteps, *, positive: bool
    ) -> Lowered:
        op, accessor = condition.op, condition.accessor
        if op in ("is a", "contains", "compare") or not _leads_into_elements(accessor.steps):
            return Lowered(TRUE, exact=False)
        name = self._name((*outer, *accessor.steps))
        if op == "present":
            return Lowered(Present(name) if positive else TRUE, exact=positive)
        if positive:
            tested = ObjectCondition(accessor, "=", condition.operand) if op == "has" else condition
            return _value_test(tested, name, positive=True)
        if op in COMPLEMENTS:
            other = ObjectCondition(accessor, COMPLEMENTS[op], condition.operand)
            return Lowered(_value_test(other, name, positive=True).filter, exact=False)
        return Lowered(TRUE, exact=False)


_COLLECTION_MEMBERS: Final = frozenset(
    name for cls in (list, tuple, set, frozenset, deque) for name in dir(cls)
)


def _leads_into_elements(steps: AccessorSteps) -> bool:
    """Return whether steps from an element can be taken from all elements at once."""
    match steps[:1]:
        case (IndexStep() | ClassStep(),):
            return False
        case (CallStep(name=name),):
            return name not in _COLLECTION_MEMBERS
        case _:
            return True


def _joined(join: Callable[[Iterable[Filter]], Filter], parts: Sequence[Lowered]) -> Lowered:
    return Lowered(join([part.filter for part in parts]), all(part.exact for part in parts))


def _either(one: Lowered, with_one: Lowered, other: Lowered, with_other: Lowered) -> Lowered:
    first, second = _joined(And.of, (one, with_one)), _joined(And.of, (other, with_other))
    return _joined(Or.of, (first, second))


def _signed(atom: Filter, *, positive: bool) -> Lowered:
    return Lowered(atom if positive else Not.of(atom), exact=True)


# --- tests of values -------------------------------------------------------------------------


def _value_test(condition: ObjectCondition, name: str, *, positive: bool) -> Lowered:
    op, given = condition.op, condition.operand
    first = given[0] if op == "in" else given
    if kind_of_operand(first) is Kind.NUMBER and (
        condition.accessor.exact or _has_decimal(op, given)
    ):
        return Lowered(_weakened(op if positive else _complement(op), given, name), exact=False)
    return _signed(_atom(op, given, name), positive=positive)


def _has_decimal(op: str, given: Any) -> bool:
    return any(isinstance(each, Decimal) for each in (given if op == "in" else (given,)))


def _complement(op: str) -> str:
    return COMPLEMENTS.get(op, "number")


def _weakened(op: str, given: Any, name: str) -> Filter:
    """Return a test that the nearest number passes if the decimal does: the order is kept."""
    constants = given if isinstance(given, tuple) else (given,)
    if not all(math.isfinite(_nearest(one)) for one in constants):
        # Beyond all numbers: no filter over attributes compares with infinity.
        return HasKind(name, Kind.NUMBER)
    match op:
        case "!=" | "number":
            return HasKind(name, Kind.NUMBER)
        case "in":
            return In(name, Kind.NUMBER, tuple(dict.fromkeys(map(_nearest, given))))
        case "=":
            return comparison_of(name, "=", _nearest(given))
        case _:
            return comparison_of(name, f"{op[0]}=", _nearest(given))


def _nearest(given: Any) -> Any:
    return nearest_number(given) if isinstance(given, Decimal) else given


def _atom(op: str, given: Any, name: str) -> Filter:
    match op:
        case "in":
            return membership_of(name, given)
        case "like":
            return like(name, given)
        case "matches":
            return regular(name, given)
        case "has part":
            return text_test(name, "contains", given)
        case "starts with" | "ends with":
            return text_test(name, op, given)
        case _:
            return comparison_of(name, op, given)

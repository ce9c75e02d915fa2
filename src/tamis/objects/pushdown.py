"""The part of a filter over objects that a broker can evaluate, on the fields that travel.

It holds wherever the filter does: a test of what does not travel as it is, such as the result of a
method, is left out, and whoever reads the objects checks the whole filter again. Methods and
properties are not published as attributes: a publisher does not know which of them any subscriber
asks for, and to call all of them for every object would cost more than it saves.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from tamis.events import Kind
from tamis.events.reflection import Promise, PromisedClass, element_of, is_collection, promise_of
from tamis.filters.atoms import Atom, Compare, HasKind, In, Present, ValueAtom
from tamis.filters.boolean import FALSE, TRUE, And, Filter, Not, Or
from tamis.objects.accessors import (
    AccessorSteps,
    ClassStep,
    FieldStep,
    KeysStep,
    name_of,
    needs_no_quotes,
)
from tamis.objects.carriers import PlainCarrier
from tamis.objects.codec import SCHEMA_ATTRIBUTE, TYPE_ATTRIBUTE
from tamis.objects.fields import fields_digest, fields_of, has_fields
from tamis.objects.message_classes import class_called, description_of
from tamis.objects.patterns import ObjectFilter
from tamis.objects.translating import translate_object_filter

_KINDS: Final = frozenset({Kind.NUMBER, Kind.TEXT, Kind.BOOLEAN})
"""What JSON has itself; other kinds travel as texts."""
_EXACT_INTEGERS: Final = 2**53
"""Decimals beyond are rounded differently in JSON and in columns of objects."""

_IS_OBJECT: Final = Present(TYPE_ATTRIBUTE)


def pushed_down(filter_: ObjectFilter) -> Filter:
    """Return a filter over the attributes of events that holds wherever one over objects does."""
    translation = translate_object_filter(filter_)
    roots = {condition.accessor.root for condition in filter_.conditions()}
    return _Pushdown(translation.ways, roots).weakened(translation.filter)


class _Travel(NamedTuple):
    """How what an accessor finds travels."""

    is_scalar: bool = True
    """Whether there is an attribute of this name whenever the accessor finds something."""
    may_lack: bool = False
    """Whether writers of other versions may lack the field, which then has a default here."""
    several: bool = False
    """Whether it is found in elements, some of which may lack it."""
    schema: str = ""
    """The schema of the class."""

    def __or__(self, other: tuple[Any, ...]) -> _Travel:
        assert isinstance(other, _Travel)  # noqa: S101 - two of a kind
        return _Travel(
            self.is_scalar and other.is_scalar,
            self.may_lack or other.may_lack,
            self.several or other.several,
            self.schema or other.schema,
        )


class _Pushdown:
    def __init__(self, ways: Any, roots: set[str]) -> None:
        self._ways: Final = ways
        self._by_name: Final = "" in roots
        self._classes: Final = [class_called(root) for root in sorted(roots) if root]

    def weakened(self, filter_: Filter) -> Filter:
        """Return the filter without the tests of what does not travel."""
        match filter_:
            case And(terms=terms):
                return _all(self.weakened(term) for term in terms)
            case Or(terms=terms):
                return _any(self.weakened(term) for term in terms)
            case Not(term=Atom() as atom):
                return self._literal(atom, filter_)
            case Atom():
                return self._literal(filter_, filter_)
            case _:
                return filter_ if filter_ in (TRUE, FALSE) else TRUE

    def _literal(self, atom: Atom, literal: Filter) -> Filter:
        steps: AccessorSteps = self._ways[atom.attribute]
        if isinstance(steps[-1], ClassStep):
            return self._type_test(steps, literal)
        if isinstance(steps[-1], KeysStep):
            return TRUE if self._classes else self._otherwise(steps[:-1], name_of(steps[:-1]))
        if not _is_readable(atom, literal):
            return TRUE
        travels = [_travel(cls, steps) for cls in self._classes]
        if None in travels:
            return TRUE
        found = _Travel()
        for each in travels:
            found |= each or _Travel()
        if isinstance(atom, Present) and not found.is_scalar:
            return TRUE
        others = [self._otherwise(steps, atom.attribute)] if self._by_name else []
        return _any((literal, *_from_others(atom.attribute, found), *others))

    def _type_test(self, steps: AccessorSteps, literal: Filter) -> Filter:
        [*before, last] = steps
        assert isinstance(last, ClassStep)  # noqa: S101 - the caller looked
        cls = class_called(last.class_name)
        if before or cls is None:
            return TRUE
        test = Compare(TYPE_ATTRIBUTE, Kind.TEXT, "=", description_of(cls).name)
        return Not.of(test) if isinstance(literal, Not) else test

    def _otherwise(self, steps: AccessorSteps, name: str) -> Filter:
        """Return which objects of any class may answer although the attribute does not."""
        if len(steps) > 1:
            return _IS_OBJECT
        return And.of((_IS_OBJECT, Not.of(Present(name))))


def _all(terms: Iterable[Filter]) -> Filter:
    return And.of(term for term in dict.fromkeys(terms) if term != TRUE)


def _any(terms: Iterable[Filter]) -> Filter:
    distinct = dict.fromkeys(terms)
    return TRUE if TRUE in distinct else Or.of(distinct)


def _from_others(name: str, found: _Travel) -> Iterable[Filter]:
    """Yield what holds of objects whose writers may lack a field that has a default here."""
    if found.may_lack:
        other = Compare(SCHEMA_ATTRIBUTE, Kind.TEXT, "!=", found.schema)
        # Of several elements, some may lack it.
        yield other if found.several else And.of((other, Not.of(Present(name))))


def _is_readable(atom: Atom, literal: Filter) -> bool:
    """Return whether a test means the same on what JSON has."""
    if isinstance(atom, HasKind):
        return literal is atom and atom.kind is Kind.NUMBER
    if not isinstance(atom, ValueAtom):
        return True
    constants = atom.values if isinstance(atom, In) else (getattr(atom, "value", None),)
    return atom.kind in _KINDS and not any(map(_is_rounded, constants))


def _is_rounded(constant: object) -> bool:
    return isinstance(constant, int | float) and abs(constant) >= _EXACT_INTEGERS


# --- the way of an accessor through declared fields ----------------------------------------------


def _travel(cls: type | None, steps: AccessorSteps) -> _Travel | None:
    """Return how what some steps find in objects of a class travels; None: it does not."""
    if cls is None or not all(map(_is_named, steps)):
        return None
    at = Promise((PromisedClass(cls),))
    may_lack = several = False
    for step in steps:
        assert isinstance(step, FieldStep)  # noqa: S101 - all are named
        if any(is_collection(one.cls) for one in at.classes):
            at, several = _elements(at), True
        followed = [_field(one, step.name) for one in at.classes]
        if None in followed:
            return None
        known = [each for each in followed if each is not None]
        if not known:
            # Nothing is declared: JSON has exactly what the object has, and no methods.
            return _Travel(False, may_lack, several, fields_digest(cls))
        if len(known) > 1:
            return None
        [(at, lacks)] = known
        may_lack |= lacks
    is_scalar = at.is_known and all(map(_is_scalar, _elements(at).classes))
    return _Travel(is_scalar, may_lack, several, fields_digest(cls))


def _is_named(step: object) -> bool:
    return isinstance(step, FieldStep) and needs_no_quotes(step.name)


def _field(owner: PromisedClass, name: str) -> tuple[Promise, bool] | None:
    """Return what a declared field, or a value of a mapping, promises, and whether it may lack."""
    cls = owner.cls
    if has_fields(cls):
        for field in fields_of(cls).fields:
            if field.name == name:
                return promise_of(field.annotation), not field.is_required
        return None
    return (element_of(owner), False) if hasattr(cls, "keys") else None


def _elements(promise: Promise) -> Promise:
    """Return what a collection promises of its elements, also of those of collections in it."""
    for _ in range(16):
        if not any(is_collection(one.cls) for one in promise.classes):
            return promise
        several = [
            element_of(one) if is_collection(one.cls) else Promise((one,))
            for one in promise.classes
        ]
        if not all(each.is_known for each in several):
            return Promise()
        promise = Promise(tuple(one for each in several for one in each.classes))
    return Promise()


def _is_scalar(promised: PromisedClass) -> bool:
    return issubclass(promised.cls, (*PlainCarrier.CLASSES, Enum))

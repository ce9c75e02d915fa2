"""AccessorSteps of stand-ins, checked against the classes: members, calls, indices and keys."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final, NamedTuple

from tamis.errors import FilterTypeError
from tamis.events.reflection import (
    UNKNOWN,
    Method,
    Promise,
    PromisedClass,
    call_problem,
    declared_keys,
    element_of,
    is_collection,
    member_of,
    members_of,
    united,
)
from tamis.events.schema import did_you_mean
from tamis.events.values import brief
from tamis.objects.accessors import (
    Accessor,
    CallStep,
    FieldStep,
    IndexStep,
    KeyStep,
    Step,
    require_public,
)
from tamis.objects.checking import fits_argument, is_constant, may_hold_decimals

TEST_NAMES: Final = (
    *("contains", "in_", "startswith", "endswith", "starts_with", "ends_with", "like", "matches"),
    *("is_present", "is_absent", "is_a", "any", "all", "compare"),
)
"""The tests that a stand-in has, unless its class has a member of that name."""

_SCOPES: Final = count(1)
"""Each element that a condition is written about has its own."""


class Recorded(NamedTuple):
    """What was asked of a stand-in so far, and what the classes promise about it."""

    accessor: Accessor
    promise: Promise = UNKNOWN
    method: Method | None = None
    """The method that is asked for, and not yet called."""
    is_element: bool = False
    """Whether it stands for each element of a collection, which may be compared itself."""

    def then(self, step: Step, promise: Promise, method: Method | None = None) -> Recorded:
        """Return what is recorded after one more step."""
        accessor = self.accessor.then(step, exact=may_hold_decimals(promise))
        return Recorded(accessor, promise, method)


def recorded(stand_in: Any) -> Recorded:
    """Return what a stand-in has recorded; it has no public way to say, as its members have."""
    found: Recorded = object.__getattribute__(stand_in, "_recorded")
    return found


def is_stand_in(given: object) -> bool:
    """Return whether something is a stand-in."""
    return hasattr(type(given), "_recorded")


def described(given: object) -> str:
    """Return what something is, for a sentence."""
    if is_stand_in(given):
        return f"another part of a message ({recorded(given).accessor})"
    return brief(given)


def require_called(found: Recorded) -> Recorded:
    """Return what is recorded, unless it is a method that waits to be called."""
    if found.method is not None:
        raise FilterTypeError(
            f"{found.accessor} is a method: call it, as in "
            f"{found.accessor}{found.method.signature or '()'}"
        )
    return found


# --- members ---------------------------------------------------------------------------------


def take_member(given: Recorded, name: str) -> Recorded:
    """Return the step to a public member, or say why there is none."""
    require_public(name)
    owner = require_called(given)
    if not owner.promise.is_known:
        return owner.then(FieldStep(name), UNKNOWN)
    found = [member_of(one, name) for one in owner.promise.classes]
    known = [one for one in found if one is not None]
    if not known:
        raise _no_member(owner, name)
    for one in known:
        if isinstance(one, Method):
            return owner.then(FieldStep(name), UNKNOWN, one)
    return owner.then(FieldStep(name), united(one for one in known if isinstance(one, Promise)))


def _no_member(owner: Recorded, name: str) -> FilterTypeError:
    promise, accessor = owner.promise, owner.accessor
    what = f"{accessor} is {promise}, which" if accessor.steps else f"{promise}"
    known = [name for one in promise.classes for name in members_of(one.cls)]
    hint = did_you_mean(name, [*known, *TEST_NAMES])
    if any(issubclass(one.cls, Mapping) or typing.is_typeddict(one.cls) for one in promise.classes):
        hint = f"for a key write [{name!r}]"
    elif any(is_collection(one.cls) for one in promise.classes):
        hint = f"for its elements write .any(lambda each: each.{name} …)"
    elif name == "between":
        hint = f"write (low <= {accessor}) & ({accessor} <= high)"
    elif not hint and known:
        hint = f"it has {', '.join(sorted(known)[:8])}"
    return FilterTypeError(f"{what} has no member {name!r}{'; ' + hint if hint else ''}")


# --- calls -----------------------------------------------------------------------------------


def take_call(
    given: Recorded, arguments: Sequence[object], named: Mapping[str, object]
) -> Recorded:
    """Return the call of the method that was asked for, or say what is wrong with it."""
    accessor, method = given.accessor, given.method
    last = accessor.steps[-1] if accessor.steps else None
    if not isinstance(last, FieldStep):
        raise FilterTypeError(f"{accessor} is not a method that could be called")
    if method is None and given.promise.is_known:
        raise FilterTypeError(
            f"{accessor} is {given.promise}, not a method: leave out the parentheses"
        )
    in_order = _in_order(accessor, method, arguments, named)
    for argument in in_order:
        if not is_constant(argument):
            raise FilterTypeError(
                f"an argument of {accessor}() is a constant, not {described(argument)}"
            )
    if method is not None and (problem := call_problem(method, in_order, fits_argument)):
        raise FilterTypeError(problem)
    owner = Recorded(replace(accessor, steps=accessor.steps[:-1]))
    promise = UNKNOWN if method is None else method.returns
    return owner.then(CallStep(last.name, tuple(in_order)), promise)


def _in_order(
    accessor: Accessor,
    method: Method | None,
    arguments: Sequence[object],
    named: Mapping[str, object],
) -> Sequence[object]:
    if not named:
        return arguments
    if method is None or method.signature is None:
        raise FilterTypeError(f"write the arguments of {accessor} in order, without names")
    try:
        bound = method.signature.bind(*arguments, **named)
    except TypeError as error:
        raise FilterTypeError(
            f"{method.name}{method.signature} cannot be called like that: {error}"
        ) from None
    if bound.kwargs:
        raise FilterTypeError(
            f"{method.name}{method.signature} takes {', '.join(bound.kwargs)} by name only, and "
            "filters give arguments in order: add a method that takes them in order, or none"
        )
    return bound.args


# --- indices and keys ------------------------------------------------------------------------


def take_item(given: Recorded, key: object) -> Recorded:
    """Return the step to an element or to the value under a key, or say why there is none."""
    owner = require_called(given)
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise FilterTypeError(
            f"{owner.accessor}[…] takes an index or a text as key, not {described(key)}"
        )
    promise = _item_promise(owner, key) if owner.promise.is_known else UNKNOWN
    return owner.then(KeyStep(key) if isinstance(key, str) else IndexStep(key), promise)


def _item_promise(owner: Recorded, key: str | int) -> Promise:
    found = [_item_of(owner.accessor, one, key) for one in owner.promise.classes]
    known = [promise for promise in found if promise is not None]
    if not known:
        raise FilterTypeError(
            f"{owner.accessor} is {owner.promise}, which has no elements or keys: leave out "
            f"[{key!r}]"
        )
    return united(known)


def _item_of(accessor: Accessor, promised: PromisedClass, key: str | int) -> Promise | None:
    cls, arguments = promised.cls, promised.arguments
    if typing.is_typeddict(cls):
        keys = declared_keys(cls)
        if key not in keys:
            hint = did_you_mean(str(key), keys) or f"it has {', '.join(keys)}"
            raise FilterTypeError(f"{promised} has no key {key!r}; {hint}")
        return keys[str(key)]
    if issubclass(cls, Mapping):
        if arguments and not arguments[0].may_be(type(key)):
            raise FilterTypeError(f"a key of {accessor} is {arguments[0]}, not {key!r}")
        return element_of(promised)
    if issubclass(cls, Sequence) and not issubclass(cls, str | bytes):
        if isinstance(key, str):
            raise FilterTypeError(f"{accessor} is {promised}, whose elements have no key {key!r}")
        return _place_of(accessor, promised, key)
    return UNKNOWN if hasattr(cls, "__getitem__") else None


def _place_of(accessor: Accessor, promised: PromisedClass, place: int) -> Promise:
    arguments = promised.arguments
    is_fixed = issubclass(promised.cls, tuple) and bool(arguments)
    if not is_fixed or (len(arguments) == 2 and not arguments[1].is_known):
        return element_of(promised)
    if not -len(arguments) <= place < len(arguments):
        raise FilterTypeError(f"{accessor} has {len(arguments)} elements, so there is no [{place}]")
    return arguments[place]


def take_element(given: Recorded) -> Recorded:
    """Return what stands for each element of a collection."""
    several = [one for one in given.promise.classes if is_collection(one.cls)]
    promise = united(map(element_of, several)) if several else UNKNOWN
    accessor = Accessor("", (), may_hold_decimals(promise), next(_SCOPES))
    return Recorded(accessor, promise, is_element=True)

"""The attributes that the fields and properties of a class declare, as a schema has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import Enum
from typing import Final, NamedTuple, is_typeddict

from tamis.events.kinds import TYPES, Type, check_value
from tamis.events.reflection import (
    Method,
    Promise,
    PromisedClass,
    declaring_class,
    element_of,
    hints_of,
    is_collection,
    member_of,
    members_of,
    of_pydantic,
    promise_of,
)

MAX_CLASS_DEPTH: Final = 8
"""Classes inside each other; what lies deeper is not declared."""

# Booleans and timestamps first: for Python they are integers and dates.
_FIRST: Final = (Type.BOOL, Type.TIMESTAMP)
_ORDER: Final = (*_FIRST, *(type_ for type_ in TYPES if type_ not in _FIRST))


class ClassAttribute(NamedTuple):
    """An attribute that a class declares."""

    name: str
    type: Type
    many: bool


def attributes_of(cls: type) -> Iterator[ClassAttribute]:
    """Yield the attributes of a class, of its bases, and of the classes of its fields."""
    yield from _walk(PromisedClass(cls), "", many=False, path=(cls,))


def _walk(
    promised: PromisedClass, prefix: str, *, many: bool, path: tuple[type, ...]
) -> Iterator[ClassAttribute]:
    for name, promise in _declared(promised).items():
        yield from _attribute(f"{prefix}{name}", promise, many=many, path=path)


def _declared(promised: PromisedClass) -> Mapping[str, Promise]:
    """Return what fields and properties promise; methods take part in filters over objects only."""
    cls = promised.cls
    fields = {name: promise_of(hint) for name, hint in hints_of(cls).items()}
    known = {
        name: member_of(promised, name)
        for name in members_of(cls)
        if not of_pydantic(declaring_class(cls, name))
    }
    members = {n: p for n, p in known.items() if p is not None and not isinstance(p, Method)}
    return {name: p for name, p in {**fields, **members}.items() if not name.startswith("_")}


def _attribute(
    name: str, promise: Promise, *, many: bool, path: tuple[type, ...]
) -> Iterator[ClassAttribute]:
    types = {_type_of(one.cls) for one in promise.classes}
    if types <= {Type.INT, Type.FLOAT} and len(types) == 2:
        types = {Type.FLOAT}
    if len(types) != 1:
        return
    [type_] = types
    if type_ is not None:
        yield ClassAttribute(name, type_, many)
        return
    for one in promise.classes if len(path) <= MAX_CLASS_DEPTH else ():
        if is_collection(one.cls):
            yield from _attribute(name, element_of(one), many=True, path=path)
        elif one.cls not in path and (is_typeddict(one.cls) or not issubclass(one.cls, Mapping)):
            yield from _walk(one, f"{name}.", many=many, path=(*path, one.cls))


def _type_of(cls: type) -> Type | None:
    """Return the type of a class's instances as values; None if they are none."""
    if issubclass(cls, Enum):
        types = {_type_of(type(check_value(member))) for member in cls}
        return types.pop() if len(types) == 1 else None
    if issubclass(cls, Decimal):
        return Type.FLOAT
    return next((type_ for type_ in _ORDER if issubclass(cls, TYPES[type_].cls)), None)

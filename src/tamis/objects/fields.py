"""The declared fields of a class of messages: what travels, and how an object is made of it."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from tamis.errors import EventError
from tamis.events.reflection import (
    MAX_ANNOTATION_DEPTH,
    Promise,
    assigned_names,
    hints_of,
    promise_of,
)

RESERVED: Final = "_object"
"""What an object's type and version travel under; a private name, so that no filter asks for it."""


class DeclaredField(NamedTuple):
    """A field of a class."""

    name: str
    """Of the member, and of the attribute of the event."""
    annotation: Any
    is_required: bool
    argument: str | None
    """What its constructor calls it; None: it is set afterwards."""

    @property
    def is_private(self) -> bool:
        """Return whether it is private: what a constructor takes under a public name is not."""
        return (self.argument or self.name).startswith("_")


class DeclaredFields(NamedTuple):
    """The fields of a class, and what makes an object of their values."""

    fields: tuple[DeclaredField, ...]
    make: Callable[[dict[str, Any]], Any]
    is_mapping: bool = False

    def read(self, given: Any, name: str) -> object:
        """Return what an object has in a field."""
        return given.get(name) if self.is_mapping else getattr(given, name, None)

    def undeclared(self, given: Any) -> str | None:
        """Return something that an object has beside its fields, and that would be lost."""
        if self.is_mapping:
            names = {one.name for one in self.fields}
            return next((str(key) for key in given if key not in names), None)
        # Pydantic keeps there what a model does not declare and allows.
        extra = getattr(given, "model_extra", None) if hasattr(type(given), "model_extra") else None
        return next(iter(extra), None) if isinstance(extra, Mapping) else None


def has_fields(cls: type) -> bool:
    """Return whether a class declares fields, so that its objects can travel."""
    try:
        fields_of(cls)
    except EventError:
        return False
    return True


@lru_cache(maxsize=1024)
def fields_of(cls: type) -> DeclaredFields:
    """Return the fields of a class; raise `EventError` if its objects cannot travel."""
    found = next(filter(None, (find(cls) for find in _MAKES)), None)
    if found is None:
        raise EventError(
            f"objects of the class {cls.__qualname__!r} cannot travel: it declares no fields; make "
            "it a dataclass, or give it annotations or an __init__ with parameters"
        )
    if any(field.name == RESERVED for field in found.fields):
        raise EventError(f"the field {RESERVED!r} of {cls.__qualname__} has a reserved name")
    return _without_private(found, cls)


def _without_private(found: DeclaredFields, cls: type) -> DeclaredFields:
    """Return the fields that travel: private state stays in the program that has it."""
    private = [field for field in found.fields if field.is_private]
    needed = next((field.name for field in private if field.is_required), None)
    if needed is not None:
        raise EventError(
            f"objects of the class {cls.__qualname__!r} cannot travel: the field {needed!r} is "
            "private, so it stays here, and nobody can make one without it; give it a default, or "
            "a public name"
        )
    return found._replace(fields=tuple(one for one in found.fields if not one.is_private))


@lru_cache(maxsize=1024)
def fields_digest(cls: type) -> str:
    """Return a digest of the names of the fields of a class and of the classes of its fields."""
    names: list[str] = []
    waiting, seen = [cls], {cls}
    for each in waiting:
        for field in fields_of(each).fields:
            names.append(f"{waiting.index(each)}.{field.name}")
            for part in _parts(promise_of(field.annotation)):
                if part not in seen and has_fields(part):
                    seen.add(part)
                    waiting.append(part)
    return sha256("\n".join(names).encode()).hexdigest()[:16]


def _parts(promise: Promise, depth: int = 0) -> list[type]:
    if depth > MAX_ANNOTATION_DEPTH:
        return []
    own = [one.cls for one in promise.classes]
    below = [inside for one in promise.classes for inside in one.arguments]
    return own + [part for inside in below for part in _parts(inside, depth + 1)]


# --- the makes of classes ----------------------------------------------------------------------


def _dataclass(cls: Any) -> DeclaredFields | None:
    if not hasattr(cls, "__dataclass_fields__"):
        return None
    hints, missing = hints_of(cls), dataclasses.MISSING
    fields = [
        DeclaredField(
            one.name,
            hints.get(one.name, Any),
            one.init and one.default is missing and one.default_factory is missing,
            one.name if one.init else None,
        )
        for one in dataclasses.fields(cls)
    ]
    _check_constructor(cls, fields)
    return DeclaredFields(tuple(fields), lambda given: cls(**given))


def _check_constructor(cls: Any, fields: Sequence[DeclaredField]) -> None:
    """Refuse a class whose constructor needs what no field keeps, such as an `InitVar`."""
    known = {field.argument for field in fields}
    for one in [*inspect.signature(cls.__init__).parameters.values()][1:]:
        is_required = one.default is one.empty and one.kind not in (
            one.VAR_KEYWORD,
            one.VAR_POSITIONAL,
        )
        if is_required and one.name not in known:
            raise EventError(
                f"objects of the class {cls.__qualname__!r} cannot travel: its constructor needs "
                f"{one.name!r}, which no field keeps; give it a default, or make it a field"
            )


def _struct(cls: Any) -> DeclaredFields | None:
    if not issubclass(cls, msgspec.Struct):
        return None
    hints = hints_of(cls)
    fields = [
        DeclaredField(one.name, hints.get(one.name, Any), one.required, one.name)
        for one in msgspec.structs.fields(cls)
    ]
    return DeclaredFields(tuple(fields), lambda given: cls(**given))


def _named_tuple(cls: Any) -> DeclaredFields | None:
    if not issubclass(cls, tuple) or not hasattr(cls, "_fields"):
        return None
    hints = hints_of(cls)
    fields = [
        DeclaredField(name, hints.get(name, Any), name not in cls._field_defaults, name)
        for name in cls._fields
    ]
    return DeclaredFields(tuple(fields), lambda given: cls(**given))


def _attrs_class(cls: Any) -> DeclaredFields | None:
    declared = getattr(cls, "__attrs_attrs__", None)
    if declared is None:
        return None
    hints, nothing = hints_of(cls), sys.modules["attr"].NOTHING
    fields = [
        DeclaredField(
            one.name,
            hints.get(one.name, Any),
            one.init and one.default is nothing,
            one.alias if one.init else None,
        )
        for one in declared
    ]
    return DeclaredFields(tuple(fields), lambda given: cls(**given))


def _pydantic_model(cls: Any) -> DeclaredFields | None:
    declared = getattr(cls, "model_fields", None)
    if not isinstance(declared, Mapping) or not hasattr(cls, "model_validate"):
        return None
    fields = [
        DeclaredField(name, one.annotation, one.is_required(), name)
        for name, one in declared.items()
    ]
    return DeclaredFields(
        tuple(fields), lambda given: cls.model_validate(given, by_name=True, by_alias=False)
    )


def _typed_dict(cls: Any) -> DeclaredFields | None:
    if not typing.is_typeddict(cls):
        return None
    fields = [
        DeclaredField(name, annotation, _is_required_key(cls, name), name)
        for name, annotation in hints_of(cls).items()
    ]
    return DeclaredFields(tuple(fields), dict, is_mapping=True)


def _is_required_key(cls: Any, name: str) -> bool:
    """Return whether a typed dictionary has a key; Python looks into no annotations as texts."""
    try:
        origin = typing.get_origin(typing.get_type_hints(cls, include_extras=True)[name])
    except Exception:  # Annotations are other people's code, and may name what is not there.
        origin = None
    if origin in (typing.Required, typing.NotRequired):
        return origin is typing.Required
    return name in cls.__required_keys__


def _plain_class(cls: Any) -> DeclaredFields | None:
    if cls.__module__ == "builtins" or issubclass(cls, type | Mapping):
        return None
    if cls.__init__ is object.__init__:
        hints = hints_of(cls)
        fields = [DeclaredField(n, a, not hasattr(cls, n), None) for n, a in hints.items()]
        return DeclaredFields(tuple(fields), lambda _: cls.__new__(cls)) if fields else None
    try:
        parameters = [*inspect.signature(cls.__init__).parameters.values()][1:]
    except (TypeError, ValueError):
        return None
    if any(one.kind in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY) for one in parameters):
        return None
    named = [one for one in parameters if one.kind is not one.VAR_KEYWORD]
    fields = [_parameter_field(cls, one) for one in named]
    return DeclaredFields(tuple(fields), lambda given: cls(**given)) if fields else None


def _parameter_field(cls: type, parameter: inspect.Parameter) -> DeclaredField:
    """Return the member that keeps an argument of the constructor."""
    name, of_class = parameter.name, hints_of(cls)
    known = {*assigned_names(cls), *of_class, *dir(cls)}
    kept = next((each for each in (name, f"_{name}") if each in known), None)
    if kept is None:
        raise EventError(
            f"objects of the class {cls.__qualname__!r} cannot travel: no member {name!r} or "
            f"'_{name}' keeps the argument {name!r} of its __init__"
        )
    annotation = hints_of(cls.__init__).get(name, of_class.get(kept, Any))  # type: ignore[misc]
    return DeclaredField(kept, annotation, parameter.default is parameter.empty, name)


_MAKES: Final[tuple[Callable[[Any], DeclaredFields | None], ...]] = (
    _dataclass,
    _struct,
    _named_tuple,
    _attrs_class,
    _pydantic_model,
    _typed_dict,
    _plain_class,
)

"""From annotations to carriers."""

from __future__ import annotations

import types
import typing
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, Final, TypeVar

from tamis.errors import EventError
from tamis.events.places import path
from tamis.objects.carriers import (
    AnyCarrier,
    Carrier,
    EitherCarrier,
    EnumCarrier,
    FlagCarrier,
    LiteralCarrier,
    MappingCarrier,
    NoneCarrier,
    PartCarrier,
    PartCodec,
    PlaceSteps,
    PlainCarrier,
    SeveralCarrier,
    TupleCarrier,
)

_COLLECTIONS: Final = (list, tuple, set, frozenset, deque)
_ABSTRACT: Final = (Sequence, AbstractSet, Collection, Iterable)


class CarrierFactory:
    """Makes carriers of annotations; type variables stand for what is given."""

    def __init__(
        self,
        parts: PartCodec,
        arguments: Mapping[Any, Any],
        describe: Callable[[type], bool | None],
    ) -> None:
        """Make a factory; `describe` says whether a class with fields is a mapping."""
        self._parts: Final = parts
        self._arguments: Final = arguments
        self._describe: Final = describe

    def carrier(self, annotation: Any, at: PlaceSteps) -> Carrier:
        """Return the carrier of an annotation; raise an error if there is none."""
        if isinstance(annotation, TypeVar):
            return self.carrier(self._arguments.get(annotation, annotation.__bound__ or Any), at)
        if isinstance(annotation, typing.NewType):
            return self.carrier(annotation.__supertype__, at)
        origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.Final):
            return self.carrier(inside[0], at)
        if annotation is Any or annotation is object:
            return AnyCarrier()
        if annotation is None or annotation is type(None):
            return NoneCarrier()
        if origin is typing.Literal:
            return LiteralCarrier(inside)
        if origin in (typing.Union, types.UnionType):
            return self._either([self.carrier(each, at) for each in inside], at)
        cls = origin or annotation
        if not isinstance(cls, type):
            raise EventError(f"{annotation!r} cannot be carried in a message", place=path(at))
        return self._of_class(cls, inside, at)

    def _of_class(self, cls: type, inside: tuple[Any, ...], at: PlaceSteps) -> Carrier:
        if issubclass(cls, Flag):
            return FlagCarrier(cls)
        if issubclass(cls, Enum):
            return EnumCarrier(cls)
        if issubclass(cls, PlainCarrier.CLASSES):
            return PlainCarrier(cls)
        is_mapping = self._describe(cls)
        if is_mapping is not None:
            return PartCarrier(cls, inside, self._parts, is_mapping=is_mapping)
        if issubclass(cls, Mapping):
            key, value = inside if len(inside) == 2 else (str, Any)
            if key not in (str, int):
                raise EventError("keys of a dictionary are texts or integers", place=path(at))
            return MappingCarrier(key, self.carrier(value, at))
        if cls is tuple and inside and inside[-1] is not ...:
            return TupleCarrier([self.carrier(each, at) for each in inside])
        if cls in _COLLECTIONS or cls in _ABSTRACT:
            return SeveralCarrier(cls, self.carrier(inside[0] if inside else Any, at))
        raise EventError(
            f"objects of the class {cls.__qualname__!r} cannot be carried in a message: it "
            "declares no fields",
            place=path(at),
        )

    def _either(self, carriers: list[Carrier], at: PlaceSteps) -> Carrier:
        if sum(isinstance(each, PartCarrier) for each in carriers) > 1:
            raise EventError(
                "it may be of several classes, which a reader could not tell apart; declare one "
                "field for each",
                place=path(at),
            )
        if sum(isinstance(each, PartCarrier | MappingCarrier) for each in carriers) > 1:
            raise EventError(
                "it may be an object or a dictionary, or one of two dictionaries, which a reader "
                "could not tell apart; declare one of them",
                place=path(at),
            )
        if sum(isinstance(each, SeveralCarrier | TupleCarrier) for each in carriers) > 1:
            raise EventError(
                "it may be one of several collections, which a reader could not tell apart; "
                "declare one of them",
                place=path(at),
            )
        for enum in carriers:
            if isinstance(enum, EnumCarrier | FlagCarrier):
                _check_alone(enum, [each for each in carriers if each is not enum], at)
        numbers = {each.base for each in carriers if isinstance(each, PlainCarrier)}
        if Decimal in numbers and not numbers.isdisjoint((int, float)):
            raise EventError(
                "it may be a Decimal or another number, which a reader could not tell apart; "
                "declare one of them",
                place=path(at),
            )
        return EitherCarrier(carriers)


def _check_alone(
    enum: EnumCarrier | FlagCarrier, others: Sequence[Carrier], at: PlaceSteps
) -> None:
    """Refuse an enumeration beside something whose values may be written as its members are."""
    for other in others:
        if isinstance(other, EnumCarrier):
            is_alike = any(map(enum.restores, other.values()))
        elif isinstance(other, LiteralCarrier):
            is_alike = any(map(enum.restores, other.constants))
        elif isinstance(enum, EnumCarrier):
            is_alike = any(map(other.may_write, enum.values()))
        else:
            is_alike = other.may_write(0)
        if is_alike:
            raise EventError(
                f"it may be {enum.shown} or {other.shown}, which a reader could not tell apart; "
                "declare one of them",
                place=path(at),
            )

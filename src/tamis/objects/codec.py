"""Objects as events: their declared fields in JSON, with the name and version of their class.

An object becomes an event with an attribute for each field, so that filters in text see them, and
`_object`, which says of which classes it is. Whoever reads it has the class, perhaps in another
version: fields that it does not know are left out, those that it lacks get their defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from tamis.errors import EventError, LimitError
from tamis.events.places import inside, path
from tamis.events.reflection import declaring_class, generic_bases
from tamis.events.values import brief
from tamis.mismatches import find_mismatch
from tamis.objects.carrier_factory import CarrierFactory
from tamis.objects.carriers import MAX_LEVELS, Carrier, PartCodec, PlaceSteps
from tamis.objects.fields import (
    RESERVED,
    DeclaredField,
    DeclaredFields,
    fields_digest,
    fields_of,
    has_fields,
)
from tamis.objects.message_classes import (
    MAX_NAME_CHARACTERS,
    MAX_VERSION,
    MessageClass,
    description_of,
    known_class,
    remember_writer,
    travelling_names,
)

MAX_BASES: Final = 64
TYPE_ATTRIBUTE: Final = f"{RESERVED}.type"
"""The names of the object's class and of those that it is derived from."""
SCHEMA_ATTRIBUTE: Final = f"{RESERVED}.schema"
"""What tells classes with different fields apart, also where nobody has changed the version."""
COLLECTION_ATTRIBUTE: Final = f"{RESERVED}.collection"
"""The name of the collection that the object was added to, if it was."""

_Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)]


class ObjectHeader(msgspec.Struct, omit_defaults=True):
    """What travels with the fields of an object."""

    type: Annotated[list[_Name], msgspec.Meta(min_length=1, max_length=MAX_BASES)]
    version: Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)]
    schema: _Name = ""
    collection: _Name | None = None


class _ObjectEvent(msgspec.Struct):
    header: ObjectHeader | None = msgspec.field(default=None, name=RESERVED)


_ENCODER: Final = msgspec.json.Encoder()
_HEADERS: Final = msgspec.json.Decoder(_ObjectEvent)


def is_message_object(given: object) -> bool:
    """Return whether something is an object that can travel, rather than a plain event."""
    return not isinstance(given, Mapping) and has_fields(type(given))


def encode_object(given: object, collection: str | None = None) -> bytes:
    """Return an object as an event in JSON; raise `EventError` if it cannot travel.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Trade:
    ...     symbol: str
    >>> encode_object(Trade("ACME")).decode()
    '{"symbol":"ACME","_object":{"type":["tamis.objects.codec.Trade"],"version":1,"schema":"..."}}'
    """
    cls: Any = type(given)
    remember_writer(cls)
    try:
        fields = _carried(cls, ()).write(given, ())
    except RecursionError:
        raise EventError(f"{cls.__qualname__}: it is nested too deeply") from None
    version = description_of(cls).version
    header = ObjectHeader(travelling_names(cls), version, fields_digest(cls), collection)
    return _ENCODER.encode({**fields, RESERVED: header})


def read_object_header(data: bytes | memoryview | msgspec.Raw) -> ObjectHeader | None:
    """Return what travels with an object's fields; None: it is a plain event."""
    try:
        return _HEADERS.decode(data).header
    except msgspec.MsgspecError as error:
        place, reason = find_mismatch(error, _ObjectEvent)
        raise EventError(reason, place=place) from None


def decode_object(
    data: bytes | memoryview | msgspec.Raw, header: ObjectHeader, asked: Iterable[type] = ()
) -> Any:
    """Return the object that an event carries; raise `EventError` if it cannot be read here.

    Of several classes with its name, those that are `asked` for come first.
    """
    name = header.type[0]
    cls = known_class(header.type, asked)
    if cls is None:
        raise EventError(
            f"an object of the class {brief(name)} has come, which is not known here: import the "
            "class and name it in a filter, or decorate it with message_class"
        )
    described = description_of(cls)
    own = described.name == name
    if own and header.version < described.oldest:
        raise EventError(
            f"{name} has come in version {header.version}; the class here is version "
            f"{described.version} and reads no versions before {described.oldest}"
        )
    try:
        return _carried(cls, ()).read(data, ())
    except (EventError, LimitError) as error:
        told = f"{name} version {header.version} cannot be read as {_shown(described)}"
        raise inside(told, error) from None


def _shown(described: MessageClass) -> str:
    return f"{described.name} version {described.version}"


# --- classes -----------------------------------------------------------------------------------


class _CarriedField(NamedTuple):
    declared: DeclaredField
    carrier: Carrier


class _CarriedClass:
    """How the fields of one class are carried."""

    def __init__(self, cls: type, arguments: tuple[Any, ...]) -> None:
        self._cls: Final = cls
        self._declared: Final[DeclaredFields] = fields_of(cls)
        variables = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
        factory = CarrierFactory(_PARTS, variables, _is_mapping)
        self._fields: Final = [
            _CarriedField(one, factory.carrier(self._annotation(one, variables), (one.name,)))
            for one in self._declared.fields
        ]
        self._decoder: Final = self._made_decoder()

    def _annotation(self, field: DeclaredField, variables: Mapping[Any, Any]) -> Any:
        """Return the annotation of a field, which a generic base class may declare."""
        owner = declaring_class(self._cls, field.name)
        return _substituted(field.annotation, _variables(self._cls, variables, owner))

    def _made_decoder(self) -> msgspec.json.Decoder[Any]:
        # Under other names: a member may be called as a method of structs is.
        fields = [
            (
                f"f{n}",
                one.carrier.decoded,
                msgspec.field(default=msgspec.UNSET, name=one.declared.name),
            )
            for n, one in enumerate(self._fields)
        ]
        try:
            return msgspec.json.Decoder(msgspec.defstruct(self._cls.__name__, fields))
        except TypeError as error:
            raise EventError(
                f"objects of the class {self._cls.__qualname__!r} cannot travel: {error}"
            ) from None

    def write(self, given: object, at: PlaceSteps) -> dict[str, object]:
        """Return the fields of an object."""
        declared = self._declared
        if (lost := declared.undeclared(given)) is not None:
            raise EventError(
                f"{self._cls.__name__} does not declare {lost!r:.60}, which would be lost; declare "
                "it, or leave it out",
                place=path(at),
            )
        return {
            one.declared.name: one.carrier.checked(
                declared.read(given, one.declared.name), (*at, one.declared.name)
            )
            for one in self._fields
            if not self._is_left_out(given, one.declared)
        }

    def _is_left_out(self, given: Any, field: DeclaredField) -> bool:
        """Return whether a mapping lacks a key that it may lack."""
        return self._declared.is_mapping and not field.is_required and field.name not in given

    def read(self, data: bytes | memoryview | msgspec.Raw, at: PlaceSteps) -> object:
        """Return an object of its fields."""
        try:
            decoded = self._decoder.decode(data)
        except msgspec.MsgspecError as error:
            place, reason = find_mismatch(error, self._decoder.type)
            raise EventError(reason, place=".".join(filter(None, (path(at), place)))) from None
        given: dict[str, Any] = {}
        later: dict[str, Any] = {}
        for number, (declared, carrier) in enumerate(self._fields):
            value = getattr(decoded, f"f{number}")
            if value is not msgspec.UNSET:
                here = later if declared.argument is None else given
                key = declared.argument or declared.name
                here[key] = carrier.read(value, (*at, declared.name))
            elif declared.is_required:
                raise EventError(
                    "it is missing, and the class has no default for it; give it one, so that "
                    "objects of other versions can be read",
                    place=path((*at, declared.name)),
                )
        return self._made(given, later, at)

    def _made(self, given: dict[str, Any], later: dict[str, Any], at: PlaceSteps) -> object:
        try:
            made = self._declared.make(given)
            for name, value in later.items():
                object.__setattr__(made, name, value)
        except Exception as error:  # Constructors are other people's code.
            raise EventError(
                f"{self._cls.__qualname__} cannot be made of it: {type(error).__name__}: "
                f"{str(error)[:200]}",
                place=path(at),
            ) from None
        return made


def _variables(cls: type, given: Mapping[Any, Any], owner: type) -> Mapping[Any, Any]:
    """Return what the type variables of a class stand for in one that is derived from it."""
    if cls is owner:
        return given
    for base, arguments in generic_bases(cls):
        if owner in base.__mro__:
            below = [_substituted(each, given) for each in arguments]
            parameters = getattr(base, "__parameters__", ())
            return _variables(base, dict(zip(parameters, below, strict=False)), owner)
    return {}


def _substituted(annotation: Any, given: Mapping[Any, Any]) -> Any:
    """Return an annotation with what its type variables stand for."""
    if isinstance(annotation, TypeVar):
        return given.get(annotation, annotation.__bound__ or Any)
    parameters = () if isinstance(annotation, type) else getattr(annotation, "__parameters__", ())
    return (
        annotation[tuple(_substituted(one, given) for one in parameters)]
        if parameters
        else annotation
    )


def _is_mapping(cls: type) -> bool | None:
    return fields_of(cls).is_mapping if has_fields(cls) else None


def _write_part(cls: type, arguments: Any, value: object, at: PlaceSteps) -> object:
    return _carried(cls, arguments).write(value, at)


def _read_part(cls: type, arguments: Any, data: msgspec.Raw, at: PlaceSteps) -> object:
    if len(at) > MAX_LEVELS:
        raise EventError(f"it is nested more than {MAX_LEVELS} levels deep", place=path(at))
    return _carried(cls, arguments).read(data, at)


_PARTS: Final = PartCodec(_write_part, _read_part)


@lru_cache(maxsize=1024)
def _carried(cls: type, arguments: tuple[Any, ...]) -> _CarriedClass:
    return _CarriedClass(cls, arguments)

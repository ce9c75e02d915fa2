"""How values of annotated fields are carried in JSON: checked when written, restored when read.

`carrier_factory` makes a `Carrier` of each annotation. It knows the type that msgspec decodes, and
turns values into what JSON has, and back. Objects inside of objects are decoded when their class is
known, one level at a time.
"""

from __future__ import annotations

import math
import typing
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, Final
from uuid import UUID

import msgspec

from tamis.errors import EventError
from tamis.events.event import EventLimits
from tamis.events.kinds import is_value
from tamis.events.places import path
from tamis.events.values import INT64_MAX, INT64_MIN, brief

MAX_LEVELS: Final = EventLimits().depth
"""Objects and collections inside each other, as in any event."""

PlaceSteps = tuple[str | int, ...]
"""The way to a value in a message."""
ReadPart = Callable[[type, Any, msgspec.Raw, PlaceSteps], object]
"""Makes an object of a class, with its type arguments, of its text."""
WritePart = Callable[[type, Any, object, PlaceSteps], object]
"""Returns the fields of an object of a class."""


class PartCodec(typing.NamedTuple):
    """How objects inside of objects are written and read."""

    write: WritePart
    read: ReadPart


class Carrier:
    """How the values of one annotation are carried."""

    decoded: Any = Any
    """The type that msgspec decodes."""
    shown: str = "anything"
    """What it is called in sentences."""

    def takes(self, value: object) -> bool:
        """Return whether a value keeps what the annotation promises."""
        raise NotImplementedError

    def write(self, value: Any, at: PlaceSteps) -> object:
        """Return a value, which it takes, as msgspec encodes it."""
        raise NotImplementedError

    def restores(self, decoded: object) -> bool:
        """Return whether it has written what was decoded; asked only of several carriers."""
        raise NotImplementedError

    def may_write(self, decoded: object) -> bool:  # noqa: ARG002
        """Return whether it may write what is decoded as this text, number or boolean."""
        return False

    def read(self, decoded: Any, at: PlaceSteps) -> object:
        """Return the value that was written."""
        raise NotImplementedError

    def checked(self, value: object, at: PlaceSteps) -> object:
        """Return a value as it is encoded, or raise an error that says where it does not fit."""
        if len(at) > MAX_LEVELS:
            raise EventError(f"it is nested more than {MAX_LEVELS} levels deep", place=path(at))
        if not self.takes(value):
            raise EventError(f"{brief(value)} is not {self.shown}, as declared", place=path(at))
        return self.write(value, at)


class PlainCarrier(Carrier):
    """Texts, numbers and what msgspec writes as texts."""

    CLASSES: typing.ClassVar = (
        *(bool, int, float, str, Decimal, datetime, date, time, timedelta, UUID, bytes),
    )

    def __init__(self, cls: type) -> None:
        self.cls: Final = cls
        self.base: Final = next(each for each in self.CLASSES if issubclass(cls, each))
        self.decoded = self.base
        self.shown = cls.__name__

    def takes(self, value: object) -> bool:
        """Return whether it is of the class; an integer is a float as well."""
        if self.base is float:
            return isinstance(value, float | int) and not isinstance(value, bool)
        if self.base is int or self.base is date:
            return isinstance(value, self.cls) and not isinstance(value, bool | datetime)
        return isinstance(value, self.cls)

    def write(self, value: Any, at: PlaceSteps) -> object:
        """Return it, unless JSON or an event cannot have it."""
        plain = value if type(value) is self.base else self._plain(value, at)
        if problem := _problem_of(plain):
            raise EventError(problem, place=path(at))
        if self.cls is not self.base and self._remade(plain, at) != value:
            raise EventError(f"{brief(value)} would come back as something else", place=path(at))
        return _decimal_number(plain) if isinstance(plain, Decimal) else _with_minutes(plain)

    def _plain(self, value: Any, at: PlaceSteps) -> Any:
        """Return what is equal to a value, but of no class derived from the one that travels."""
        # Python's type checkers take an integer for a float.
        is_integer = self.base is float and not isinstance(value, float)
        try:
            plain = _COPIES[int if is_integer else self.base](self.base, value)
            if plain == value or plain != plain:  # noqa: PLR0124 - NaN is refused below
                return plain
        except (ArithmeticError, TypeError, ValueError):
            pass
        raise EventError(
            f"{brief(value)} of the class {type(value).__name__} is equal to no "
            f"{self.base.__name__}",
            place=path(at),
        )

    def restores(self, decoded: object) -> bool:
        """Return whether it is of the class."""
        return type(decoded) is self.base

    def may_write(self, decoded: object) -> bool:
        """Return whether it is of the class, or both are numbers."""
        numbers = (int, float, Decimal)
        return self.restores(decoded) or (self.base in numbers and type(decoded) in numbers)

    def read(self, decoded: Any, at: PlaceSteps) -> object:
        """Return it as the class has it."""
        return decoded if self.cls is self.base else self._remade(decoded, at)

    def _remade(self, plain: Any, at: PlaceSteps) -> object:
        try:
            return _COPIES[self.base](self.cls, plain)
        except Exception as error:  # Constructors are other people's code.
            raise EventError(
                f"{brief(plain)} makes no {self.shown}: {type(error).__name__}: {str(error)[:200]}",
                place=path(at),
            ) from None


def _time_of_day(given: Any) -> dict[str, Any]:
    names = ("hour", "minute", "second", "microsecond", "tzinfo", "fold")
    return {name: getattr(given, name) for name in names}


_COPIES: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    bool: lambda cls, given: cls(given),
    int: lambda cls, given: cls(int.__int__(given)),
    float: lambda cls, given: cls(float.__float__(given)),
    str: lambda cls, given: cls(str.__str__(given)),
    Decimal: lambda cls, given: cls(given),
    datetime: lambda cls, given: cls(given.year, given.month, given.day, **_time_of_day(given)),
    date: lambda cls, given: cls(given.year, given.month, given.day),
    time: lambda cls, given: cls(**_time_of_day(given)),
    timedelta: lambda cls, given: cls(
        days=given.days, seconds=given.seconds, microseconds=given.microseconds
    ),
    UUID: lambda cls, given: cls(int=given.int),
    bytes: lambda cls, given: cls(bytes(memoryview(given))),
}
"""How an instance of a class is made of one of another class with the same base."""


def _problem_of(plain: Any) -> str:
    """Return why JSON or an event cannot have a value; empty if it can."""
    match plain:
        case str():
            return "" if _is_unicode(plain) else "the text has lone surrogates"
        case Decimal() if not plain.is_finite() or not math.isfinite(float(plain)):
            return f"JSON has no number {plain}"
        case float() if not math.isfinite(plain):
            return f"JSON has no number {plain}"
        case int() if not INT64_MIN <= plain <= INT64_MAX:
            return "the integer does not fit in 64 bits"
        case datetime() if not _has_minutes(plain) and not timedelta(days=1) < (
            plain.replace(tzinfo=None) - datetime.min
        ) < datetime.max - datetime.min - timedelta(days=1):
            return "the zone's offset has seconds, so that the time cannot be told in UTC"
        case time() if not _has_minutes(plain):
            return "the zone's offset has seconds: times of day travel with hours and minutes"
    return ""


def _has_minutes(plain: datetime | time) -> bool:
    return (plain.utcoffset() or timedelta()) % timedelta(minutes=1) == timedelta()


def _with_minutes(plain: Any) -> Any:
    """Return the same moment in UTC if the offset of its zone has seconds, which texts have not."""
    if isinstance(plain, datetime) and not _has_minutes(plain):
        return plain.astimezone(UTC)
    return plain


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _decimal_number(value: Decimal) -> object:
    """Return a decimal as a number in JSON, with all of its digits."""
    if value == value.to_integral_value() and not INT64_MIN <= value <= INT64_MAX:
        # As an integer it would not fit into an event.
        return msgspec.Raw(f"{value:E}".encode())
    return msgspec.Raw(str(value).encode())


class EnumCarrier(Carrier):
    """Members of an enumeration, by what filters compare."""

    def __init__(self, cls: type[Enum]) -> None:
        self.cls: Final = cls
        self.shown = cls.__name__
        kinds = {type(_compared(member)) for member in cls}
        is_exact = len(kinds) == 1 and kinds <= {*PlainCarrier.CLASSES}
        self._value: Final = PlainCarrier(kinds.pop()) if is_exact else None
        self.decoded = Any if self._value is None else self._value.decoded
        self._members: Final = dict[object, Enum]()
        for member in cls:
            other = self._members.setdefault(self._decoded(member), member)
            if other is not member:
                raise EventError(
                    f"{other} and {member} would be written alike, and a reader could not tell "
                    "them apart; give one of them another value"
                )

    def _decoded(self, member: Enum) -> object:
        written = msgspec.json.encode(self.write(member, ()))
        return msgspec.json.decode(written, type=self.decoded)

    def values(self) -> list[object]:
        """Return what its members are decoded as."""
        return [*self._members]

    def takes(self, value: object) -> bool:
        """Return whether it is a member."""
        return isinstance(value, self.cls)

    def write(self, value: Any, at: PlaceSteps) -> object:
        """Return what it is compared by."""
        compared = _compared(value)
        return (self._value or PlainCarrier(type(compared))).write(compared, at)

    def restores(self, decoded: object) -> bool:
        """Return whether it is the value of a member."""
        if decoded.__hash__ is None or decoded not in self._members:
            return False
        # For Python, 1 and True are equal.
        return type(decoded) in map(type, self._members)

    def read(self, decoded: Any, at: PlaceSteps) -> object:
        """Return the member."""
        if not self.restores(decoded):
            raise EventError(f"{brief(decoded)} is no {self.shown}", place=path(at))
        return self._members[decoded]


class FlagCarrier(PlainCarrier):
    """Members of an enumeration of flags, and their combinations, by the number that they are."""

    def __init__(self, cls: type[Flag]) -> None:
        super().__init__(int)
        self._flags: Final = cls
        self.shown = cls.__name__

    def takes(self, value: object) -> bool:
        """Return whether it is a member or a combination of some."""
        return isinstance(value, self._flags)

    def write(self, value: Any, at: PlaceSteps) -> object:
        """Return the number."""
        return super().write(value.value, at)

    def restores(self, decoded: object) -> bool:
        """Return whether it is the number of a combination."""
        try:
            return type(decoded) is int and isinstance(self._flags(decoded), self._flags)
        except ValueError:
            return False

    def read(self, decoded: Any, at: PlaceSteps) -> object:
        """Return the combination."""
        if not self.restores(decoded):
            raise EventError(f"{brief(decoded)} is no {self.shown}", place=path(at))
        return self._flags(decoded)


def _compared(member: Enum) -> Any:
    value = member.value
    return value if is_value(value) else member.name


class LiteralCarrier(Carrier):
    """One of some constants."""

    def __init__(self, constants: Sequence[Any]) -> None:
        self.constants: Final = constants
        self.decoded = typing.Literal[*constants]
        self.shown = f"one of {', '.join(map(repr, constants))}"

    def takes(self, value: object) -> bool:
        """Return whether it is one of them."""
        return any(value == each and type(value) is type(each) for each in self.constants)

    def restores(self, decoded: object) -> bool:
        """Return whether it is one of them."""
        return self.takes(decoded)

    def write(self, value: Any, at: PlaceSteps) -> object:  # noqa: ARG002
        """Return it."""
        return value

    def read(self, decoded: Any, at: PlaceSteps) -> object:  # noqa: ARG002
        """Return it."""
        return decoded


class NoneCarrier(LiteralCarrier):
    """Nothing but None."""

    def __init__(self) -> None:
        super().__init__([None])
        self.decoded = None
        self.shown = "None"


class PartCarrier(Carrier):
    """An object inside of an object: exactly of the class that is declared."""

    decoded = msgspec.Raw

    def __init__(self, cls: type, arguments: Any, parts: PartCodec, *, is_mapping: bool) -> None:
        self._cls: Final = cls
        self._arguments: Final = arguments
        self._parts: Final = parts
        self._is_mapping: Final = is_mapping
        self.shown = f"exactly of the class {cls.__name__}"

    def takes(self, value: object) -> bool:
        """Return whether it is of the class: of a derived one, fields would be lost."""
        return isinstance(value, Mapping) if self._is_mapping else type(value) is self._cls

    def write(self, value: Any, at: PlaceSteps) -> object:
        """Return its fields."""
        return self._parts.write(self._cls, self._arguments, value, at)

    def restores(self, decoded: object) -> bool:
        """Return whether it is an object of JSON."""
        return isinstance(decoded, msgspec.Raw) and bytes(memoryview(decoded)[:1]) == b"{"

    def read(self, decoded: Any, at: PlaceSteps) -> object:
        """Return the object."""
        return self._parts.read(self._cls, self._arguments, decoded, at)


class SeveralCarrier(Carrier):
    """Elements of a list, a set, or a tuple of any length."""

    def __init__(self, cls: type, element: Carrier) -> None:
        self._cls: Final = cls
        self._element: Final = element
        concrete = set if cls is AbstractSet else list
        self._make: Final = cls if cls in (list, tuple, set, frozenset, deque) else concrete
        self.decoded = list[element.decoded]  # type: ignore[name-defined]
        self.shown = cls.__name__

    def takes(self, value: object) -> bool:
        """Return whether it is such a collection."""
        return isinstance(value, self._cls) and not isinstance(value, str | bytes | Mapping)

    def write(self, value: Any, at: PlaceSteps) -> object:
        """Return the elements; equal sets have theirs in the same order."""
        found = [self._element.checked(each, (*at, place)) for place, each in enumerate(value)]
        return sorted(found, key=msgspec.json.encode) if isinstance(value, AbstractSet) else found

    def restores(self, decoded: object) -> bool:
        """Return whether it is a list."""
        return isinstance(decoded, list)

    def read(self, decoded: Any, at: PlaceSteps) -> object:
        """Return a collection of the class, or a list if that is abstract."""
        element = self._element
        return self._make(element.read(each, (*at, n)) for n, each in enumerate(decoded))


class TupleCarrier(Carrier):
    """A tuple with an annotation for each place."""

    def __init__(self, elements: Sequence[Carrier]) -> None:
        self._elements: Final = elements
        self.decoded = tuple[*(each.decoded for each in elements)]  # type: ignore[misc]
        self.shown = f"a tuple of {len(elements)}"

    def takes(self, value: object) -> bool:
        """Return whether it has the length."""
        return isinstance(value, tuple) and len(value) == len(self._elements)

    def write(self, value: Any, at: PlaceSteps) -> object:
        """Return the elements."""
        pairs = zip(self._elements, value, strict=True)
        return [one.checked(each, (*at, n)) for n, (one, each) in enumerate(pairs)]

    def restores(self, decoded: object) -> bool:
        """Return whether it is a tuple."""
        return isinstance(decoded, tuple)

    def read(self, decoded: Any, at: PlaceSteps) -> object:
        """Return the tuple."""
        pairs = zip(self._elements, decoded, strict=True)
        return tuple(one.read(each, (*at, n)) for n, (one, each) in enumerate(pairs))


class MappingCarrier(Carrier):
    """A dictionary from texts or integers."""

    def __init__(self, key: type, value: Carrier) -> None:
        self._key: Final = key
        self._value: Final = value
        self.decoded = dict[key, value.decoded]  # type: ignore[valid-type, name-defined]
        self.shown = "a dictionary"

    def takes(self, value: object) -> bool:
        """Return whether it is a mapping."""
        return isinstance(value, Mapping)

    def write(self, value: Any, at: PlaceSteps) -> object:
        """Return the values by the texts of their keys."""
        found = {}
        for key, each in value.items():
            if not isinstance(key, self._key) or isinstance(key, bool) or key == "":
                raise EventError(f"the key {brief(key)} is no {self._key.__name__}", place=path(at))
            # As the reader's keys are: a member of an enumeration may show itself otherwise.
            text = str.__str__(key) if isinstance(key, str) else int.__repr__(key)
            found[text] = self._value.checked(each, (*at, text))
        return found

    def restores(self, decoded: object) -> bool:
        """Return whether it is a dictionary."""
        return isinstance(decoded, dict)

    def read(self, decoded: Any, at: PlaceSteps) -> object:
        """Return the dictionary."""
        return {key: self._value.read(each, (*at, str(key))) for key, each in decoded.items()}


class AnyCarrier(Carrier):
    """What nothing is declared of: only what JSON has itself comes back as it was."""

    shown = "plain JSON (declare another type for it)"

    def takes(self, value: object) -> bool:
        """Return whether JSON has such values."""
        return value is None or type(value) in (str, int, float, bool, list, dict)

    def write(self, value: Any, at: PlaceSteps) -> object:
        """Return it, if all that is inside will come back as well."""
        if isinstance(value, list):
            return [self.checked(each, (*at, place)) for place, each in enumerate(value)]
        if isinstance(value, dict):
            return MappingCarrier(str, self).write(value, at)
        return value if value is None else PlainCarrier(type(value)).write(value, at)

    def restores(self, decoded: object) -> bool:  # noqa: ARG002
        """Return whether it may have written this."""
        return True

    may_write = restores

    def read(self, decoded: Any, at: PlaceSteps) -> object:  # noqa: ARG002
        """Return it."""
        return decoded


class EitherCarrier(Carrier):
    """Values of one of several annotations."""

    def __init__(self, carriers: Sequence[Carrier]) -> None:
        self._carriers: Final = carriers
        self._parts: Final = [each for each in carriers if each.decoded is msgspec.Raw]
        rest = [each for each in carriers if each.decoded is not msgspec.Raw]
        self._rest: Final = typing.Union[*(each.decoded for each in rest)] if rest else Any
        self.decoded = msgspec.Raw if self._parts else self._rest
        self.shown = " or ".join(each.shown for each in carriers)

    def takes(self, value: object) -> bool:
        """Return whether one of them takes it."""
        return any(each.takes(value) for each in self._carriers)

    def write(self, value: Any, at: PlaceSteps) -> object:
        """Write it with the first carrier that accepts it."""
        return next(each for each in self._carriers if each.takes(value)).write(value, at)

    def restores(self, decoded: object) -> bool:
        """Return whether one of them has written this."""
        return any(each.restores(decoded) for each in self._carriers)

    def read(self, decoded: Any, at: PlaceSteps) -> object:
        """Read it with the carrier that wrote it."""
        if isinstance(decoded, msgspec.Raw) and bytes(memoryview(decoded)[:1]) != b"{":
            decoded = msgspec.json.decode(decoded, type=self._rest)
        return next(each for each in self._carriers if each.restores(decoded)).read(decoded, at)

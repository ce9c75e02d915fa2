"""Classes of messages by the names under which they travel, each with a version of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from tamis.errors import FilterTypeError
from tamis.events.values import brief
from tamis.objects.accessors import class_identity, class_name

MAX_NAME_CHARACTERS: Final = 500
MAX_VERSION: Final = 2**31 - 1

T = TypeVar("T")


class MessageClass(NamedTuple):
    """What other processes know a class by."""

    name: str
    version: int = 1
    oldest: int = 1
    """The first version whose objects this class can be made of."""


_described: Final[WeakKeyDictionary[type, MessageClass]] = WeakKeyDictionary()
_by_identity: Final[WeakValueDictionary[str, type]] = WeakValueDictionary()
_by_travelling_name: Final[WeakValueDictionary[str, type]] = WeakValueDictionary()


def message_class(name: str, *, version: int = 1, oldest: int = 1) -> Callable[[type[T]], type[T]]:
    """Give a class of messages the name and the version under which its objects travel.

    Without it, the name is that of the class with its module, and the version is 1. Objects of
    versions before `oldest` are refused.

    >>> @message_class("market.Trade", version=2)
    ... class Trade:
    ...     symbol: str
    >>> description_of(Trade)
    MessageClass(name='market.Trade', version=2, oldest=1)
    """
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise FilterTypeError(
            f"the name of a class of messages is a text of 1 to {MAX_NAME_CHARACTERS} characters, "
            f"not {brief(name)}"
        )
    for what, number in (("version", version), ("oldest version", oldest)):
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= MAX_VERSION:
            raise FilterTypeError(f"the {what} of {name!r} is a number from 1, not {brief(number)}")
    if oldest > version:
        raise FilterTypeError(
            f"{name!r} has version {version}, so the oldest that it reads is not {oldest}"
        )

    def decorate(cls: type[T]) -> type[T]:
        if not isinstance(cls, type):
            raise FilterTypeError(f"message_class decorates a class, not {brief(cls)}")
        _described[cls] = MessageClass(name, version, oldest)
        remember(cls)
        return cls

    return decorate


def description_of(cls: type) -> MessageClass:
    """Return what a class travels as; a derived class has a name of its own."""
    return _described.get(cls) or MessageClass(class_name(cls))


def remember(cls: type) -> None:
    """Take note of a class, so that its objects are known when they arrive."""
    _by_identity[class_identity(cls)] = cls
    _by_travelling_name[description_of(cls).name] = cls


def remember_writer(cls: type) -> None:
    """Take note of a class whose objects are sent, unless readers have another of its name."""
    _by_identity[class_identity(cls)] = cls
    _by_travelling_name.setdefault(description_of(cls).name, cls)


def class_called(identity: str) -> type | None:
    """Return the class that a filter names, if it is still there."""
    return _by_identity.get(identity)


def travelling_names(cls: type) -> list[str]:
    """Return the names of a class and of all that it is derived from, its own first."""
    bases = [base for base in cls.__mro__ if base is not object]
    return [description_of(base).name for base in bases]


def known_class(names: Sequence[str], asked: Iterable[type] = ()) -> type | None:
    """Return the most derived class that is known here of those that an object has.

    Classes that a reader asks for come before others that have the same names.
    """
    wanted = {name: place for place, name in enumerate(names)}
    own = [cls for cls in asked if description_of(cls).name in wanted]
    if own:
        known = [each for cls in own for each in _derived(cls, wanted)]
        return min(known, key=lambda cls: _preference(cls, wanted))
    found = next((cls for name in names if (cls := _by_travelling_name.get(name))), None)
    if found is None or description_of(found).name == names[0]:
        return found
    # A derived class may be imported here, though no filter has named it.
    return min(_derived(found, wanted), key=lambda cls: _preference(cls, wanted))


def _preference(cls: type, wanted: dict[str, int]) -> tuple[int, bool]:
    """Return how far a class is from the object's own, and whether another was named later."""
    name = description_of(cls).name
    return wanted[name], _by_travelling_name.get(name) is not cls


def _derived(cls: type, wanted: dict[str, int]) -> Iterable[type]:
    found: list[Any] = [cls]
    for each in found:
        below = type.__subclasses__(each)
        found.extend(one for one in below if description_of(one).name in wanted)
    return found

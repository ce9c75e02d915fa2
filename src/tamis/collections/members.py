"""The members of a collection: of which class they are, which are wanted, which came before."""

from __future__ import annotations

import types
import typing
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from tamis.collections.qualities import RELIABLE, Quality
from tamis.errors import FilterTypeError, OptionError
from tamis.events.reflection import PromisedClass, is_protocol, member_of, members_of
from tamis.events.schema import did_you_mean
from tamis.events.values import brief
from tamis.objects import ObjectFilter, StandIn, message, where
from tamis.objects.accessors import CallStep, FieldStep
from tamis.objects.carriers import PlainCarrier
from tamis.objects.codec import encode_object, read_object_header
from tamis.objects.collection_names import levels_of
from tamis.objects.message_classes import class_called
from tamis.objects.patterns import require_object_filter

T = TypeVar("T")

MOST_REMEMBERED: Final = 100_000
"""Members that a set remembers, so that equal ones are left out, or that were pulled."""
MOST_CONDITIONS: Final = 1_000
"""Conditions of which is remembered where to look for the next member."""

MemberCondition = ObjectFilter | StandIn | Callable[[Any], object] | None
"""A filter over objects, a function that `where` reads, or None for all members."""


class NamedCollection(Generic[T]):
    """What collections have in common, for asyncio or not."""

    QUALITY: ClassVar[Quality] = RELIABLE
    _members: ClassVar[type | None] = None

    def __class_getitem__(cls, members: Any) -> Any:
        """Return the collection of members of a class, which is checked now."""
        if isinstance(members, TypeVar):
            return super().__class_getitem__(members)  # type: ignore[misc]
        kind: Any = cls
        return _collection_of(kind, _checked_members(cls.__name__, members))

    def __new__(cls, *_: object, **__: object) -> Self:
        """Refuse a collection that does not say what its members are, whatever else is given."""
        if cls._members is None:
            raise OptionError(cls.__name__, f"has no class of members: write {_example(cls)}")
        return super().__new__(cls)

    def __init__(self, name: str) -> None:
        if hasattr(type(name), "publish"):
            raise OptionError(
                "name", f"is a bus, which comes after it: write {_example(type(self))}"
            )
        levels_of(name)
        self.name: Final = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def member_class(self) -> type:
        """Return the class of the members: `Trade` for `DASet[Trade](…)`."""
        assert self._members is not None  # noqa: S101 - `__new__` looked
        return self._members


@lru_cache(maxsize=1024)
def _collection_of(cls: type[Any], members: type) -> type[Any]:
    # A class, not what `typing` makes: that cannot tell at first what the members are.
    body = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "_members": members}
    return type(cls.__name__, (cls,), {**body, "__doc__": cls.__doc__})


def _checked_members(name: str, given: Any) -> type:
    """Return the class of some members, or say why they are of none."""
    found = typing.get_origin(given) or given
    if found is Any or not isinstance(found, type) or found is types.UnionType:
        shown = brief(given)
        raise OptionError(
            name, f"has no class of members: write {name}[Trade](…) with one class, not {shown}"
        )
    if issubclass(found, (*PlainCarrier.CLASSES, Enum)) or found.__module__ == "builtins":
        raise OptionError(
            name,
            f"has members of a class with fields, which {found.__name__} is not: write a class "
            f"that holds it, such as a dataclass with a field of {found.__name__}",
        )
    if is_protocol(found) or typing.is_typeddict(found):
        raise OptionError(
            name,
            f"has members of one class, and {found.__name__} only describes structure: name the "
            "class, or a base class of all members",
        )
    return found


def _example(cls: type) -> str:
    return f'{cls.__name__}[Trade]("/market/acme", bus)'


def wanted(cls: type, condition: MemberCondition) -> ObjectFilter:
    """Return the filter for members of a class that satisfy a condition."""
    every = require_object_filter(message(cls))
    if condition is None:
        return every
    if isinstance(condition, ObjectFilter | StandIn):
        asked = require_object_filter(condition)
        _check_about(cls, asked)
        return every & asked
    if callable(condition):
        return every & where(cls, condition)
    raise FilterTypeError(
        f"a condition is a filter over objects, a function to be read, or None, not "
        f"{brief(condition)}"
    )


def _check_about(cls: type, condition: ObjectFilter) -> None:
    """Refuse a condition on what no member could be or have."""
    for one in condition.conditions():
        root, first = one.accessor.root, one.accessor.steps[:1]
        about = class_called(root) if root else None
        if about is not None and not (issubclass(cls, about) or issubclass(about, cls)):
            raise FilterTypeError(
                f"{one!r} asks for {about.__name__}, and members are {cls.__name__}: write "
                f"message({cls.__name__})"
            )
        if not root and isinstance(first[0] if first else None, FieldStep | CallStep):
            _check_has(cls, first[0].name)  # type: ignore[union-attr]


def _check_has(cls: type, name: str) -> None:
    derived = [cls]
    for each in derived:
        if member_of(PromisedClass(each), name) is not None:
            return
        derived.extend(type.__subclasses__(each))
    raise FilterTypeError(
        f"{cls.__name__} has no member {name!r}, nor has a class that is derived from it"
        f"{'; ' + hint if (hint := did_you_mean(name, members_of(cls))) else ''}"
    )


class Distinct:
    """Tells members that came before, as far as it remembers."""

    def __init__(self) -> None:
        self._seen: Final[OrderedDict[bytes, None]] = OrderedDict()

    def is_new(self, member: object, text: bytes) -> bool:
        """Take note of a member and its text; return whether no equal one is remembered."""
        header = read_object_header(text)
        # As this program would write it: whoever wrote it may have another version of the class.
        own = encode_object(member, None if header is None else header.collection)
        digest = blake2b(own, digest_size=16).digest()
        if digest in self._seen:
            return False
        self._seen[digest] = None
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
        return True


class PulledMembers:
    """Which present members were pulled, so that none comes twice, whatever was asked for.

    It is told without anything being awaited in between, so that of several who pull at the same
    time one gets a member.
    """

    def __init__(self, every: ObjectFilter) -> None:
        self._every: Final = every
        """The condition that all members satisfy."""
        self._starts: Final[OrderedDict[ObjectFilter, int]] = OrderedDict()
        """By condition, where to look: all that satisfy it and came before were pulled."""
        self._taken: OrderedDict[int, None] = OrderedDict()
        """The sequences of those that were pulled, and are not before all that were not."""

    def start(self, asked: ObjectFilter) -> int:
        """Return where to look for members that satisfy a condition."""
        return max(self._starts.get(asked, 1), self._starts.get(self._every, 1))

    def is_taken(self, sequence: int) -> bool:
        """Return whether a member was pulled, as far as is remembered."""
        return sequence in self._taken or sequence < self._starts.get(self._every, 1)

    def take(self, asked: ObjectFilter, sequence: int) -> None:
        """Take note of the first member that was not pulled, of those that satisfy a condition."""
        self._taken[sequence] = None
        self._starts[asked] = max(self.start(asked), sequence + 1)
        self._starts.move_to_end(asked)
        if asked == self._every:
            first = self._starts[asked]
            self._taken = OrderedDict((one, None) for one in self._taken if one >= first)
        if len(self._taken) > MOST_REMEMBERED:
            self._taken.popitem(last=False)
        if len(self._starts) > MOST_CONDITIONS:
            self._starts.popitem(last=False)

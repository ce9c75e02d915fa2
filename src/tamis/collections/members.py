"""The members of a collection: of which class they are, which are wanted, which came before."""

from __future__ import annotations

import typing
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, ClassVar, Final, Generic, TypeVar

from tamis.collections.qualities import RELIABLE, Quality
from tamis.errors import FilterTypeError, OptionError
from tamis.events.values import brief
from tamis.objects import ObjectFilter, StandIn, message, where
from tamis.objects.codec import encode_object, read_object_header
from tamis.objects.collection_names import levels_of
from tamis.objects.patterns import require_object_filter

T = TypeVar("T")

MOST_REMEMBERED: Final = 100_000
"""Members that a set remembers, so that equal ones are left out."""

MemberCondition = ObjectFilter | StandIn | Callable[[Any], object] | None
"""A filter over objects, a function that `where` reads, or None for all members."""


class NamedCollection(Generic[T]):
    """What collections have in common, for asyncio or not."""

    QUALITY: ClassVar[Quality] = RELIABLE

    def __init__(self, name: str) -> None:
        levels_of(name)
        self.name: Final = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def member_class(self) -> type:
        """Return the class of the members: `Trade` for `DASet[Trade](…)`."""
        bases = [base for cls in type(self).__mro__ for base in vars(cls).get("__orig_bases__", ())]
        for alias in (getattr(self, "__orig_class__", None), *bases):
            for argument in typing.get_args(alias):
                found = typing.get_origin(argument) or argument
                if isinstance(found, type) and found is not Any:
                    return found
        name = type(self).__name__
        raise OptionError(name, f"has no class of members: write {name}[Trade](…)")


def wanted(cls: type, condition: MemberCondition) -> ObjectFilter:
    """Return the filter for members of a class that satisfy a condition."""
    every = require_object_filter(message(cls))
    if condition is None:
        return every
    if isinstance(condition, ObjectFilter | StandIn):
        return every & condition
    if callable(condition):
        return every & where(cls, condition)
    raise FilterTypeError(
        f"a condition is a filter over objects, a function to be read, or None, not "
        f"{brief(condition)}"
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

"""Sets of attributes that a principal may see or send, and documents reduced to them.

Attributes are named as in events: `customer.name` is the member `name` of `customer`, or of any of
the objects in a list `customer`, or a member that is called `customer.name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tamis.events.kinds import TYPE_OF_CLASS
from tamis.filters.printing import ANY

# The bytes of a CloudEvent are its data under another name, and may contain hidden parts of it.
DATA: Final = "data"
DATA_AS_BYTES: Final = "data_base64"


class _NameTree(NamedTuple):
    """A set of names, with all names nested in them."""

    exact: frozenset[str]
    inside: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> _NameTree:
        exact = frozenset(names)
        return cls(exact, tuple(f"{name}." for name in exact))

    def cover(self, name: str) -> bool:
        return name in self.exact or name.startswith(self.inside)


class AttributeSet:
    """A set of attributes: those shown, or all, minus those hidden; each with all nested in it.

    >>> seen = AttributeSet(hidden=["level", "customer"])
    >>> [seen.include(name) for name in ("price", "level", "levels", "customer.name")]
    [True, False, True, False]
    """

    __slots__ = ("_hidden", "_shown")

    def __init__(self, *, shown: Iterable[str] | None = None, hidden: Iterable[str] = ()) -> None:
        self._shown: Final = None if shown is None else _NameTree.of(_with_bytes_shown(shown))
        self._hidden: Final = _NameTree.of(_with_bytes_hidden(hidden))

    def include(self, name: str) -> bool:
        """Return whether the set contains an attribute, or all of them if any may be meant."""
        if name == ANY:
            return self.are_all
        return (self._shown is None or self._shown.cover(name)) and not self._hidden.cover(name)

    def include_all_in(self, name: str) -> bool:
        """Return whether the set contains an attribute with all that can be nested in it.

        >>> AttributeSet(hidden=["items.cost"]).include_all_in("items")
        False
        """
        inside = f"{name}."
        return self.include(name) and not any(one.startswith(inside) for one in self._hidden.exact)

    @property
    def are_all(self) -> bool:
        """Return whether no attribute is left out."""
        return self._shown is None and not self._hidden.exact


def _with_bytes_shown(names: Iterable[str]) -> set[str]:
    given = set(names)
    return given | {DATA_AS_BYTES} if DATA in given else given


def _with_bytes_hidden(names: Iterable[str]) -> set[str]:
    given = set(names)
    data = _NameTree.of([DATA])
    return given | {DATA_AS_BYTES} if any(map(data.cover, given)) else given


def project(document: Mapping[str, object], sets: Sequence[AttributeSet]) -> dict[str, object]:
    """Return decoded JSON reduced to the attributes in one of the sets.

    Members without a value are dropped too: an empty object, a null or a gap in a list would
    reveal that something was there.

    >>> order = {"price": 5, "by": {"name": "Ann"}, "items": [{"cost": 1}, {"cost": 2, "sku": "a"}]}
    >>> project(order, [AttributeSet(hidden=["by.name", "items.cost"])])
    {'price': 5, 'items': [{'sku': 'a'}]}
    """
    return _project_members("", document, sets)


def _project_members(
    prefix: str, members: Mapping[str, object], sets: Sequence[AttributeSet]
) -> dict[str, object]:
    left = {}
    for key, item in members.items():
        kept = _project_item(f"{prefix}.{key}" if prefix else key, item, sets)
        if kept is not None:
            left[key] = kept
    return left


def _project_item(name: str, item: object, sets: Sequence[AttributeSet]) -> object:
    """Return a member reduced to the sets, None if nothing is left."""
    # Most members are plain values, and checking for abstract classes first takes longer.
    if type(item) not in TYPE_OF_CLASS:
        if isinstance(item, Mapping):
            return _project_members(name, item, sets) or None
        if isinstance(item, Sequence):
            left = [_project_item(name, element, sets) for element in item]
            return [element for element in left if element is not None] or None
    return item if any(attributes.include(name) for attributes in sets) else None

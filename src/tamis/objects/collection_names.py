"""Names of collections, hierarchical: `/market/acme`, and patterns of them: `/market/*`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tamis.errors import OptionError
from tamis.events import Kind
from tamis.events.values import brief
from tamis.filters.atoms import Compare
from tamis.filters.boolean import Filter
from tamis.filters.build import regular, text_test
from tamis.objects.codec import COLLECTION_ATTRIBUTE
from tamis.objects.message_classes import MAX_NAME_CHARACTERS

MAX_LEVELS_OF_A_NAME: Final = 32

_RULE: Final = (
    "a text such as '/market/acme': levels of printable characters, each after a slash; in a "
    "pattern, * stands for one level, and ** at the end for all below"
)


def levels_of(name: str) -> Sequence[str]:
    """Return the levels of a name or a pattern, or say what is wrong with it.

    >>> levels_of("/market/acme")
    ['market', 'acme']
    """
    if not isinstance(name, str) or not name.startswith("/") or len(name) > MAX_NAME_CHARACTERS:
        raise OptionError("name", f"is {brief(name)}; it must be {_RULE}")
    levels = name[1:].split("/")
    is_valid = len(levels) <= MAX_LEVELS_OF_A_NAME and all(map(_is_level, levels))
    if not is_valid or "**" in levels[:-1]:
        raise OptionError("name", f"is {brief(name)}; it must be {_RULE}")
    return levels


def _is_level(level: str) -> bool:
    return level in ("*", "**") or (bool(level) and level.isprintable() and "*" not in level)


def is_pattern(name: str) -> bool:
    """Return whether a name stands for several collections."""
    return not {"*", "**"}.isdisjoint(levels_of(name))


def in_collection(name: str) -> Filter:
    """Return the filter for members of a collection, or of all collections that fit a pattern.

    >>> print(in_collection("/market/**"))
    _object.collection starts with "/market/"
    """
    levels = levels_of(name)
    if not is_pattern(name):
        return Compare(COLLECTION_ATTRIBUTE, Kind.TEXT, "=", name)
    if "*" not in levels:
        return text_test(COLLECTION_ATTRIBUTE, "starts with", name.removesuffix("**"))
    parts = {"*": "[^/]+", "**": ".+"}
    pattern = "".join(f"/{parts.get(level) or re.escape(level)}" for level in levels)
    return regular(COLLECTION_ATTRIBUTE, f"^{pattern}$")

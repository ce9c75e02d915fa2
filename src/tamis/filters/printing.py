"""How names and values are written in the Tamis language."""

from __future__ import annotations

import re
from typing import Final

from tamis.events.kinds import TRAITS_OF_CLASS, Value

ANY: Final = ""
"""The name that stands for any attribute; no attribute has it."""
_ANY_WORD: Final = "any"

# Words that are attribute names only in backticks.
RESERVED: Final = frozenset(
    {"and", "or", "xor", "not", "true", "false", "is", "has", "in", "between", "like", "matches"}
    | {"contains", "within", "starts", "ends", "div", "timestamp", _ANY_WORD}
)

PLAIN_NAME: Final = re.compile(r"[^\W\d]\w*(?:\.\w+)*")


def show_name(name: str) -> str:
    """Return an attribute's name, in backticks where it would not be read back as one.

    >>> show_name("order.price"), show_name("unit price"), show_name("in")
    ('order.price', '`unit price`', '`in`')
    """
    if needs_no_backticks(name):
        return name
    if name == ANY:
        return _ANY_WORD
    return "`" + name.replace("`", "``") + "`"


def needs_no_backticks(name: str) -> bool:
    """Return whether a name needs no backticks."""
    return name.lower() not in RESERVED and PLAIN_NAME.fullmatch(name) is not None


def show_value(value: Value) -> str:
    """Return a constant as the Tamis language writes it."""
    return TRAITS_OF_CLASS[type(value)].show(value)

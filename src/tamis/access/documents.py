"""Rights to documents: a right holds whichever node somebody looks at.

A node gives its text and what that stands for, such as a number, which count as one value here: a
right that says `/order/@level` < 3 means the number, and one that says "vip" means the text.
"""

from __future__ import annotations

from tamis.access.every_value import ValueAlternatives, holds_for_every_choice
from tamis.access.joining import FilterInMode
from tamis.events.gathering import HoldsAttributes
from tamis.events.kinds import Value
from tamis.filters.printing import ANY


def holds_for_document(right: FilterInMode, document: HoldsAttributes) -> bool:
    """Return whether a right certainly holds for a document, whichever nodes one looks at.

    Where the attributes of a document do not say all, as of very long texts, it does not.
    """
    names = right.filter.attributes()
    # Not all text is in attributes, and keys of elements may stand for more than there is.
    if ANY in names or any("[" in name for name in names):
        return False
    choices = _choices(document, names)
    return choices is not None and holds_for_every_choice(right, choices, None)


def _choices(document: HoldsAttributes, names: frozenset[str]) -> ValueAlternatives | None:
    # The extra is there, or there would be no document.
    from tamis.xml.extracted import MAX_CHARACTERS, values_of  # noqa: PLC0415

    found: dict[str, list[tuple[Value, ...]]] = {}
    for name, values in document.__attributes__(names).items():
        texts = [value for value in values if isinstance(value, str)]
        if any(len(text) >= MAX_CHARACTERS for text in texts):
            return None
        # Every node gives its text, and equal texts stand for equal values.
        found[name] = [tuple(values_of(text)) for text in texts] or [(value,) for value in values]
    return found

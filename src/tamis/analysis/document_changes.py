"""Changes that a document can show: its nodes have texts, and what these stand for.

The search for a change takes attributes for independent values. In a document the number 5 is
there because a text says so, and not every text can be in XML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tamis.analysis.explain import Explanation
from tamis.events import Event, Value

_IMPOSSIBLE: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def possible_in_document(found: Explanation) -> Explanation:
    """Return an explanation whose change a document can show; without one if none can."""
    if found.change is None or found.changed is None:
        return found
    values = dict(found.changed)
    change = dict(found.change)
    for name, wanted in found.change.items():
        if wanted is None:
            continue
        possible = _possible(values[name])
        if possible is None:
            return _without_change(found)
        values[name] = possible
        shown = _shown(possible)
        change[name] = shown[0] if len(shown) == 1 else shown
    changed = Event.of_checked(values)
    if found.filter.matches(changed, found.mode) is found.matched:
        return _without_change(found)
    return found._replace(change=change, changed=changed)


def _without_change(found: Explanation) -> Explanation:
    return found._replace(change=None, changed=None)


def _possible(wanted: Sequence[Value]) -> tuple[Value, ...] | None:
    """Return what nodes have whose values are these; None if there are no such nodes."""
    from tamis.xml.extracted import values_of  # noqa: PLC0415 - needs the extra `xml`

    found: dict[tuple[type, Value], Value] = {}
    for value in wanted:
        if isinstance(value, str) and any(one not in wanted for one in values_of(value)[1:]):
            # It stood for a number that is another now.
            continue
        is_element = value is True
        text = "" if is_element else str(value)
        if _IMPOSSIBLE.search(text) or text != " ".join(text.split()):
            return None
        for one in (True,) if is_element else values_of(text):
            found[type(one), one] = one
    return tuple(found.values())


def _shown(values: Sequence[Value]) -> list[Value]:
    from tamis.xml.extracted import one_for_each_node  # noqa: PLC0415 - needs the extra `xml`

    return one_for_each_node(values)

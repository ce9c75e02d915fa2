"""Events as people and programs read them."""

from __future__ import annotations

import json
import math
import re
from typing import Final

from tamis.events import Event, Value
from tamis.events.json_text import json_form
from tamis.filters.printing import show_name, show_value

_PLAIN: Final = re.compile(r"[\w.:+-]+")


def show_event(event: Event) -> str:
    """Return an event for people, with its values in the syntax of the Tamis language.

    >>> show_event(Event({"price": 9.5, "tag": ["new", "red"]}))
    'price = 9.5, tag = "new" "red"'
    """
    if not event:
        return "an event without attributes"
    return ", ".join(
        f"{show_name(name)} = {' '.join(map(show_value, values))}" for name, values in event.items()
    )


def brief_event(event: Event) -> str:
    """Return an event for a row of a table, with quotes only where they are needed.

    >>> brief_event(Event({"symbol": "ACME", "headline": "Profit up", "tag": ["new", "red"]}))
    'symbol=ACME headline="Profit up" tag=new,red'
    """
    return " ".join(
        f"{name}={','.join(_brief(_plain(value)) for value in values)}"
        for name, values in event.items()
    )


def _brief(value: object) -> str:
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain_event(event: Event) -> dict[str, object]:
    """Return an event as values for JSON, with NaN and infinities as text.

    >>> from tamis.events import Bits
    >>> plain_event(Event({"price": float("nan"), "flags": Bits([0, 2])}))
    {'price': 'nan', 'flags': 5}
    """
    return {
        name: _plain(values[0]) if len(values) == 1 else [_plain(value) for value in values]
        for name, values in event.items()
    }


def _plain(value: Value) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json_form(value)

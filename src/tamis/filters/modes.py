"""What an absent attribute means: the four modes, and the view of an event that each gives."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from tamis.errors import FilterError, SchemaError
from tamis.events import Event, Schema
from tamis.events.schema import check_schema


class Mode(StrEnum):
    """What a comparison means when its attribute is absent or of another kind."""

    TOTAL = "total"
    """Nothing may be absent: an event that lacks an attribute of the schema is refused."""
    STRICT = "strict"
    """Every attribute that the filter compares must be there, needed or not."""
    DEFAULT = "default"
    """The schema's default stands in for what is absent; without one, comparisons are false."""
    SQL = "sql"
    """Three-valued: an absent attribute makes a comparison unknown, and its negation too."""

    @property
    def is_three_valued(self) -> bool:
        """Return whether a comparison with an absent attribute is unknown rather than false."""
        return self in (Mode.SQL, Mode.STRICT)


class View(NamedTuple):
    """An event as a mode sees it, and the truth of a comparison with an absent attribute."""

    event: Event
    unknown: bool | None
    schema: Schema | None = None
    """What declares the attributes, for tests of any of them."""


UNKNOWN: Final[dict[Mode, bool | None]] = {
    mode: None if mode.is_three_valued else False for mode in Mode
}
"""The truth of a comparison with an absent attribute."""


def as_mode(mode: str) -> Mode:
    """Return the mode of that name, or raise an error that lists them."""
    try:
        return Mode(mode)
    except ValueError:
        names = ", ".join(repr(m.value) for m in Mode)
        raise FilterError(f"{mode!r} is not a mode; the modes are {names}") from None


def view_of(event: Event | Mapping[str, object], mode: Mode, schema: Schema | None) -> View:
    """Return `event` as `mode` sees it, or raise EventError if `schema` refuses it."""
    require_schema(mode, schema)
    seen = Event.of(event)
    if schema is not None:
        seen = schema.ensure_conforming(seen)
        if mode is Mode.TOTAL:
            schema.require_all(seen)
        elif mode is Mode.DEFAULT:
            seen = schema.with_defaults(seen)
    return View(seen, UNKNOWN[mode], schema)


def require_schema(mode: Mode, schema: Schema | None) -> None:
    """Refuse what is not a schema, and mode `total` without one, which defines a total event."""
    if schema is not None:
        check_schema(schema)
    if mode is Mode.TOTAL and schema is None:
        raise SchemaError(
            "mode 'total' needs a schema: it says which attributes every event must have"
        )

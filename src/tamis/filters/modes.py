"""What an absent attribute means: the four modes, and the view of an event that each gives."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from tamis.errors import FilterError, SchemaError
from tamis.events import Event, Schema


class Mode(StrEnum):
    """How a filter is read when an attribute is absent, or of another kind than it asks for."""

    TOTAL = "total"
    """Nothing may be absent: an event that lacks an attribute of the schema is refused."""
    STRICT = "strict"
    """Every attribute that the filter compares must be there, needed for the result or not."""
    DEFAULT = "default"
    """The schema's default stands in for what is absent; without one, comparisons are false."""
    SQL = "sql"
    """Three-valued: what is absent makes a comparison unknown, and so its negation."""

    @property
    def is_three_valued(self) -> bool:
        """Return whether a comparison with something absent is unknown rather than false."""
        return self in (Mode.SQL, Mode.STRICT)


class View(NamedTuple):
    """An event as a mode shows it, and the truth of a comparison with something absent."""

    event: Event
    unknown: bool | None


def as_mode(mode: str) -> Mode:
    """Return the mode of that name, or say which there are."""
    try:
        return Mode(mode)
    except ValueError:
        names = ", ".join(repr(m.value) for m in Mode)
        raise FilterError(f"{mode!r} is not a mode; the modes are {names}") from None


def view_of(event: Event | Mapping[str, object], mode: Mode, schema: Schema | None) -> View:
    """Return `event` as `mode` shows it, or say why `schema` refuses it."""
    require_schema(mode, schema)
    seen = Event.of(event)
    if schema is not None:
        seen = schema.conform(seen)
        if mode is Mode.TOTAL:
            schema.require_all(seen)
        elif mode is Mode.DEFAULT:
            seen = schema.with_defaults(seen)
    return View(seen, None if mode.is_three_valued else False)


def require_schema(mode: Mode, schema: Schema | None) -> None:
    """Refuse mode `total` without the schema that says what a total event is."""
    if mode is Mode.TOTAL and schema is None:
        raise SchemaError(
            "mode 'total' needs a schema: it says which attributes every event must have"
        )

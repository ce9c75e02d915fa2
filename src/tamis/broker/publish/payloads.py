"""Events as bytes: how they are stored, read again, and cut down to what someone may see."""

from __future__ import annotations

from typing import Final, NamedTuple

from tamis.errors import EventError, LimitError, RefusedError
from tamis.events import (
    CloudEvent,
    Event,
    EventLimits,
    Schema,
    decode_cloudevent,
    decode_json,
)
from tamis.protocol import Code

JSON: Final = "json"
CLOUDEVENTS: Final = "cloudevents"
NUMBER_OF: Final = {JSON: 1, CLOUDEVENTS: 2}
NAME_OF: Final = {number: name for name, number in NUMBER_OF.items()}


class Payload(NamedTuple):
    """An event as it was published, and what it says."""

    text: bytes
    format: str
    event: Event
    source: Event | CloudEvent
    """The same with what it came in; rights to data that is bytes depend on it."""


class PayloadDecoder:
    """Reads events, within limits and as a schema says."""

    def __init__(self, schema: Schema | None, limits: EventLimits, *, is_total: bool) -> None:
        self._schema = schema
        self._limits = limits
        self._is_total = is_total

    def read(self, text: bytes, format_: str) -> Payload:
        """Return an event that someone sent, or refuse it with a sentence."""
        try:
            payload = self.stored(text, format_)
            if self._is_total and self._schema is not None:
                self._schema.require_all(payload.event)
        except LimitError as error:
            raise RefusedError(Code.TOO_LARGE, str(error)) from None
        except EventError as error:
            raise RefusedError(Code.BAD_EVENT, str(error)) from None
        return payload

    def stored(self, text: bytes, format_: str) -> Payload:
        """Return an event that was stored."""
        if format_ == CLOUDEVENTS:
            source = decode_cloudevent(text, limits=self._limits)
            event = source.event()
            event = event if self._schema is None else self._schema.conform(event)
            return Payload(text, format_, event, source)
        event = decode_json(text, schema=self._schema, limits=self._limits)
        return Payload(text, format_, event, event)

"""CloudEvents 1.0 in their JSON format: one event in structured mode, or a batch."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from typing import Any

from msgspec import UNSET

from tamis.errors import CloudEventError, EventError, LimitError
from tamis.events import cloudevent_rules as rules
from tamis.events import places
from tamis.events.event import Event
from tamis.events.flatten import flatten
from tamis.events.json_text import check_finite, dump_json, kind_of_json, parse_json
from tamis.events.limits import EventLimits
from tamis.events.strict_json import RejectedValue
from tamis.events.timestamps import parse_rfc3339

Extension = bool | int | str


@dataclass(frozen=True, kw_only=True)
class CloudEvent:
    """A CloudEvent that is valid: what the specification forbids cannot be made.

    `data` is any JSON value (None is an explicit null), text of another content type, or bytes;
    UNSET says that there is none.

    >>> order = CloudEvent(id="1", source="/shop", type="sold", data={"price": 9.5})
    >>> order.event()
    Event({'specversion': '1.0', 'id': '1', 'source': '/shop', 'type': 'sold', 'data.price': 9.5})
    """

    id: str
    source: str
    type: str
    subject: str | None = None
    time: datetime | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, Extension] = field(default_factory=dict)
    data: object = UNSET
    limits: InitVar[EventLimits | None] = None
    # Compared too: to data alone 1 and True are equal.
    _event: Event = field(init=False, repr=False)

    def __post_init__(self, limits: EventLimits | None) -> None:
        for name in self.extensions:
            rules.check_extension_name(name)
        # A copy: what the caller does to the mapping later must not reach a checked event.
        set_ = {name: value for name, value in self.extensions.items() if value is not None}
        object.__setattr__(self, "extensions", set_)
        context = self.context()
        rules.check_context(context)
        if self.data is not UNSET:
            rules.check_data(self.data, self.datacontenttype)
        object.__setattr__(self, "_event", _event(context, self.data, limits or EventLimits()))

    def __hash__(self) -> int:
        # By the specification these two tell any two events apart.
        return hash((self.source, self.id))

    def event(self) -> Event:
        """Return the attributes: the context's under their names, those of the data under `data`.

        Bytes give no attributes.
        """
        return self._event

    def context(self) -> dict[str, object]:
        """Return the context attributes that are set, extensions among them."""
        named = {name: getattr(self, name) for name in (*rules.REQUIRED, *rules.OPTIONAL)}
        every = {"specversion": "1.0", **named, **self.extensions}
        return {name: value for name, value in every.items() if value is not None}


def decode_cloudevent(text: str | bytes, *, limits: EventLimits | None = None) -> CloudEvent:
    """Return the CloudEvent that a JSON text in structured mode describes.

    >>> decode_cloudevent('{"specversion": "1.0", "id": "1", "source": "/shop", "type": ""}')
    Traceback (most recent call last):
    tamis.errors.CloudEventError: type: it is empty
    """
    limits = limits or EventLimits()
    return _cloudevent(parse_json(text, limits), limits)


def decode_cloudevents(text: str | bytes, *, limits: EventLimits | None = None) -> list[CloudEvent]:
    """Return the CloudEvents of a batch, all or none; the size limit is that of the whole text.

    >>> decode_cloudevents('[{"specversion": "1.0", "id": "1", "source": "/shop"}]')
    Traceback (most recent call last):
    tamis.errors.CloudEventError: [0].type: it is missing, and every CloudEvent has one
    """
    limits = limits or EventLimits()
    batch = parse_json(text, limits)
    if not isinstance(batch, list):
        raise CloudEventError(f"a batch is a JSON array, not {kind_of_json(batch)}")
    return [_member_of_batch(index, data, limits) for index, data in enumerate(batch)]


def encode_cloudevent(cloudevent: CloudEvent) -> str:
    """Return the CloudEvent as JSON text in structured mode.

    >>> encode_cloudevent(CloudEvent(id="1", source="/shop", type="sold", data=b"zip"))
    '{"specversion":"1.0","id":"1","source":"/shop","type":"sold","data_base64":"emlw"}'
    """
    return dump_json(_members(cloudevent))


def encode_cloudevents(cloudevents: Iterable[CloudEvent]) -> str:
    """Return a batch of CloudEvents as a JSON array."""
    return dump_json([_members(cloudevent) for cloudevent in cloudevents])


def _event(context: dict[str, object], data: object, limits: EventLimits) -> Event:
    visible = {} if data is UNSET or isinstance(data, bytes) else {"data": data}
    try:
        event = Event.of_checked(flatten({**context, **visible}, limits))
        for name, values in event.items():
            check_finite(name, values)
    except EventError as error:
        raise CloudEventError(error.reason, place=error.place) from None
    return event


def _member_of_batch(index: int, data: object, limits: EventLimits) -> CloudEvent:
    try:
        return _cloudevent(data, limits)
    except (EventError, LimitError) as error:
        raise places.inside(f"[{index}]", error) from None


def _cloudevent(data: object, limits: EventLimits) -> CloudEvent:
    if not isinstance(data, dict):
        raise CloudEventError(f"a CloudEvent is a JSON object, not {kind_of_json(data)}")
    _check_marks(data)
    payload = _take_data(data)
    context = {name: value for name, value in data.items() if value is not None}
    rules.check_version(context.pop("specversion", None))
    if "time" in context:
        context["time"] = _time(context["time"])
    return _construct(context, payload, limits)


def _check_marks(members: Mapping[str, object]) -> None:
    for name, value in members.items():
        if isinstance(value, RejectedValue):
            raise CloudEventError(value.reason, place=places.path([name]))


def _take_data(members: dict[str, object]) -> object:
    """Remove the data from the members of a CloudEvent, and return it."""
    data, encoded = members.pop("data", UNSET), members.pop("data_base64", None)
    if encoded is None:
        return data
    if data is not UNSET:
        raise CloudEventError("it stands beside 'data', and only one may", place="data_base64")
    return _from_base64(encoded)


def _from_base64(text: object) -> bytes:
    try:
        data = binascii.a2b_base64(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        data = b""
    # Python's decoder passes over what it does not understand, in its strict mode too.
    if _to_base64(data) != text:
        raise CloudEventError("it is not Base64 text", place="data_base64")
    return data


def _to_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _time(text: object) -> datetime:
    try:
        return parse_rfc3339(str(text))
    except ValueError as error:
        raise CloudEventError(str(error), place="time") from None


def _construct(context: dict[str, Any], payload: object, limits: EventLimits) -> CloudEvent:
    # The constructor checks the types, of the required attributes also that they are there.
    required = {name: context.pop(name, None) for name in rules.REQUIRED}
    optional = {name: context.pop(name, None) for name in rules.OPTIONAL}
    return CloudEvent(**required, **optional, extensions=context, data=payload, limits=limits)


def _members(cloudevent: CloudEvent) -> dict[str, object]:
    match cloudevent.data:
        case bytes() as data:
            return {**cloudevent.context(), "data_base64": _to_base64(data)}
        case data if data is UNSET:
            return cloudevent.context()
        case data:
            return {**cloudevent.context(), "data": data}

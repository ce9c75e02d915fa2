"""CloudEvents 1.0 in their JSON format: one event in structured mode, or a batch."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET

from tamis.errors import CloudEventError, EventError, LimitError
from tamis.events import places
from tamis.events.event import Event, EventLimits
from tamis.events.json_text import check_finite, dump_json, kind_of_json, parse_json
from tamis.events.values import RejectedValue, brief, parse_rfc3339

# --- URIs (RFC 3986) -----------------------------------------------------------------------


# Every repetition is possessive (`++`, `*+`): it never gives back what it took, and need not,
# because what follows starts with a character it cannot take. So matching is linear.
_PLAIN: Final = r"A-Za-z0-9\-._~!$&'()*+,;="
_ESCAPE: Final = r"%[0-9A-Fa-f]{2}"
_PATH: Final = rf"(?:[{_PLAIN}:@/]++|{_ESCAPE})*+"
_HOST: Final = rf"(?:\[[0-9A-Za-z:.]++\]|(?:[{_PLAIN}]++|{_ESCAPE})*+)"
_AUTHORITY: Final = rf"(?:(?:[{_PLAIN}:]++|{_ESCAPE})*+@)?{_HOST}(?::[0-9]*)?"
_WITH_AUTHORITY: Final = rf"//{_AUTHORITY}(?:/{_PATH})?"
_QUERY: Final = rf"(?:\?(?:[{_PLAIN}:@/?]++|{_ESCAPE})*+)?"
_FRAGMENT: Final = rf"(?:#(?:[{_PLAIN}:@/?]++|{_ESCAPE})*+)?"

_URI: Final = re.compile(
    rf"[A-Za-z][A-Za-z0-9+.\-]*+:(?:{_WITH_AUTHORITY}|(?!//){_PATH}){_QUERY}{_FRAGMENT}"
)
# A colon in the first segment would make it a scheme.
_RELATIVE: Final = re.compile(
    rf"(?:{_WITH_AUTHORITY}|/(?!/){_PATH}|(?:(?:[{_PLAIN}@]++|{_ESCAPE})++(?:/{_PATH})?)?)"
    rf"{_QUERY}{_FRAGMENT}"
)


def is_uri(text: str) -> bool:
    """Return whether `text` is a URI: with a scheme, and perhaps a fragment.

    >>> is_uri("urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66"), is_uri("/sensors/17")
    (True, False)
    """
    return _URI.fullmatch(text) is not None


def is_uri_reference(text: str) -> bool:
    """Return whether `text` is a URI, or one relative to another.

    >>> is_uri_reference("/sensors/17"), is_uri_reference("/sensors/no 17")
    (True, False)
    """
    return is_uri(text) or _RELATIVE.fullmatch(text) is not None


# --- what the specification allows in context attributes and data --------------------------


INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1

REQUIRED: Final = ("id", "source", "type")
OPTIONAL: Final = ("subject", "time", "datacontenttype", "dataschema")
# Names that extensions may not use.
RESERVED: Final = frozenset({*REQUIRED, *OPTIONAL, "specversion", "data"})

_NAME: Final = re.compile(r"[a-z0-9]+")

# Control characters, and what Unicode calls noncharacters: a block of 32, and the last two code
# points of each of the 17 planes. Surrogates are refused as in every other text.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)

_TOKEN: Final = r"[A-Za-z0-9!#$%&'*+\-.^_`{|}~]+"  # noqa: S105 - the token of RFC 2045
_MEDIA_TYPE: Final = re.compile(
    rf'({_TOKEN})/({_TOKEN})(?:[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|"[^"\\]*"))*'
)


def check_version(version: object) -> None:
    """Refuse any version of the specification but 1.0."""
    if version is None:
        raise CloudEventError("it is missing, and every CloudEvent has one", place="specversion")
    if version != "1.0":
        raise CloudEventError(f"it is {brief(version)}, and Tamis knows '1.0'", place="specversion")


def check_context(context: Mapping[str, object]) -> None:
    """Refuse set context attributes that violate the specification."""
    for name in REQUIRED:
        if name not in context:
            raise CloudEventError("it is missing, and every CloudEvent has one", place=name)
    for name, value in context.items():
        reason = _CHECKS.get(name, _check_extension)(value)
        if reason:
            raise CloudEventError(reason, place=name)


def check_extension_name(name: object) -> None:
    """Refuse a name that the specification does not allow for an extension."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        place = places.path([str(name)])
        raise CloudEventError(
            "the name of an attribute has only lower-case letters a-z and digits", place=place
        )
    if name in RESERVED:
        raise CloudEventError("an extension cannot have this name, it is reserved", place=name)


def check_data(data: object, datacontenttype: str | None) -> None:
    """Refuse structured data under a content type that is not JSON."""
    if not isinstance(data, str | bytes) and not is_json(datacontenttype):
        raise CloudEventError(
            f"data of content type {brief(datacontenttype)} is a text or bytes; "
            "only JSON content has other values",
            place="data",
        )


def is_json(datacontenttype: str | None) -> bool:
    """Return whether a content type declares JSON; none at all does.

    >>> is_json("application/geo+json; charset=utf-8"), is_json("text/xml"), is_json(None)
    (True, False, True)
    """
    if datacontenttype is None:
        return True
    found = _MEDIA_TYPE.fullmatch(datacontenttype)
    return found is not None and f"+{found[2].lower()}".endswith("+json")


# Each check returns what is wrong with a value, or nothing.


def _check_text(value: object) -> str:
    if not isinstance(value, str):
        return f"it is a text, not of type {type(value).__name__!r}"
    found = _FORBIDDEN.search(value)
    if found:
        return (
            f"it has the character U+{ord(found[0]):04X} at {found.start() + 1}, which CloudEvents "
            "does not allow in an attribute"
        )
    return ""


def _check_filled_text(value: object) -> str:
    return "it is empty" if value == "" else _check_text(value)


def _check_source(value: object) -> str:
    return _check_filled_text(value) or _unless(is_uri_reference, value, "a URI reference")


def _check_dataschema(value: object) -> str:
    # The specification's text excludes a fragment, its JSON Schema does not, and people use one.
    return _check_filled_text(value) or _unless(is_uri, value, "a URI with a scheme")


def _check_datacontenttype(value: object) -> str:
    return _check_text(value) or _unless(_MEDIA_TYPE.fullmatch, value, "a media type")


def _check_time(value: object) -> str:
    return "" if isinstance(value, datetime) else "it is a datetime with a time zone"


def _check_extension(value: object) -> str:
    if isinstance(value, bool):
        return ""
    if isinstance(value, int):
        fits = INT32_MIN <= value <= INT32_MAX
        return (
            "" if fits else f"the integer {brief(value)} does not fit in 32 bits; send it as text"
        )
    if isinstance(value, str):
        return _check_text(value)
    return f"an extension is a boolean, an integer or a text, not of type {type(value).__name__!r}"


def _unless(accepts: Callable[[str], object], value: object, what: str) -> str:
    return "" if accepts(str(value)) else f"{str(value)[:60]!r} is not {what}"


_CHECKS: Final[dict[str, Callable[[object], str]]] = {
    "id": _check_filled_text,
    "source": _check_source,
    "type": _check_filled_text,
    "subject": _check_filled_text,
    "time": _check_time,
    "datacontenttype": _check_datacontenttype,
    "dataschema": _check_dataschema,
}


# --- events --------------------------------------------------------------------------------


Extension = bool | int | str


@dataclass(frozen=True, kw_only=True)
class CloudEvent:
    """A valid CloudEvent: one that violates the specification cannot be constructed.

    `data` is any JSON value (None is an explicit null), text of another content type, or bytes;
    UNSET means that there is none.

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
            check_extension_name(name)
        # A copy, so that the caller cannot change a checked event.
        set_ = {name: value for name, value in self.extensions.items() if value is not None}
        object.__setattr__(self, "extensions", set_)
        context = self.context()
        check_context(context)
        if self.data is not UNSET:
            check_data(self.data, self.datacontenttype)
        object.__setattr__(self, "_event", _event(context, self.data, limits or EventLimits()))

    def __hash__(self) -> int:
        # By the specification these two identify an event.
        return hash((self.source, self.id))

    def event(self) -> Event:
        """Return the context attributes under their names, and those of the data under `data`.

        Bytes give no attributes.
        """
        return self._event

    def context(self) -> dict[str, object]:
        """Return the context attributes that are set, extensions included."""
        named = {name: getattr(self, name) for name in (*REQUIRED, *OPTIONAL)}
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
        event = Event.of_data({**context, **visible}, limits)
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
    check_version(context.pop("specversion", None))
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
        raise CloudEventError(
            "it is given beside 'data', and only one is allowed", place="data_base64"
        )
    return _from_base64(encoded)


def _from_base64(text: object) -> bytes:
    try:
        data = binascii.a2b_base64(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        data = b""
    # Python's decoder skips what it does not understand, even in strict mode.
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
    # The constructor checks types, and that required attributes are there.
    required = {name: context.pop(name, None) for name in REQUIRED}
    optional = {name: context.pop(name, None) for name in OPTIONAL}
    return CloudEvent(**required, **optional, extensions=context, data=payload, limits=limits)


def _members(cloudevent: CloudEvent) -> dict[str, object]:
    match cloudevent.data:
        case bytes() as data:
            return {**cloudevent.context(), "data_base64": _to_base64(data)}
        case data if data is UNSET:
            return cloudevent.context()
        case data:
            return {**cloudevent.context(), "data": data}

"""Tamis: content-based publish/subscribe. Find, for every event, all the filters it satisfies."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tamis.diagrams import (
    Answer,
    Comparison,
    Relationship,
    Space,
    compare,
    covers,
    equivalent,
    intersects,
    is_always,
    is_never,
)
from tamis.errors import (
    AddressError,
    CloudEventError,
    DisconnectedError,
    EventError,
    FilterError,
    FilterSyntaxError,
    FilterTypeError,
    JSONError,
    LimitError,
    RefusedError,
    SchemaError,
    SubscriptionEndedError,
    TamisError,
)
from tamis.events import (
    Attribute,
    Bits,
    CloudEvent,
    Event,
    EventLimits,
    Kind,
    Schema,
    Type,
    attribute,
    decode_cloudevent,
    decode_cloudevent_lines,
    decode_cloudevents,
    decode_json,
    decode_json_lines,
    decode_schema,
    encode_cloudevent,
    encode_cloudevents,
    encode_json,
)
from tamis.filters import FALSE, TRUE, Filter, FilterLimits, Mode, all_of, any_of, attr
from tamis.filters.simplify import simplify
from tamis.languages import parse
from tamis.matching import Engine, Matches, Subscription

if TYPE_CHECKING:
    from tamis.broker.local import LocalBus, open_bus, open_bus_sync
    from tamis.client import Bus, Message, Missed, Receipt, SyncBus, connect, connect_sync

__all__ = [
    "FALSE",
    "TRUE",
    "AddressError",
    "Answer",
    "Attribute",
    "Bits",
    "Bus",
    "CloudEvent",
    "CloudEventError",
    "Comparison",
    "DisconnectedError",
    "Engine",
    "Event",
    "EventError",
    "EventLimits",
    "Filter",
    "FilterError",
    "FilterLimits",
    "FilterSyntaxError",
    "FilterTypeError",
    "JSONError",
    "Kind",
    "LimitError",
    "LocalBus",
    "Matches",
    "Message",
    "Missed",
    "Mode",
    "Receipt",
    "RefusedError",
    "Relationship",
    "Schema",
    "SchemaError",
    "Space",
    "Subscription",
    "SubscriptionEndedError",
    "SyncBus",
    "TamisError",
    "Type",
    "all_of",
    "any_of",
    "attr",
    "attribute",
    "compare",
    "connect",
    "connect_sync",
    "covers",
    "decode_cloudevent",
    "decode_cloudevent_lines",
    "decode_cloudevents",
    "decode_json",
    "decode_json_lines",
    "decode_schema",
    "encode_cloudevent",
    "encode_cloudevents",
    "encode_json",
    "equivalent",
    "intersects",
    "is_always",
    "is_never",
    "open_bus",
    "open_bus_sync",
    "parse",
    "simplify",
]

# The network takes a while to load; whoever matches by themselves needs none of it.
_LATER = {
    "LocalBus": "tamis.broker.local",
    "open_bus": "tamis.broker.local",
    "open_bus_sync": "tamis.broker.local",
    "Bus": "tamis.client",
    "Message": "tamis.client",
    "Missed": "tamis.client",
    "Receipt": "tamis.client",
    "SyncBus": "tamis.client",
    "connect": "tamis.client",
    "connect_sync": "tamis.client",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_LATER]

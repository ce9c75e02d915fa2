"""Events: what an attribute may hold, the schema, one event, and its forms on the wire."""

from tamis.events.cloudevents import (
    CloudEvent,
    decode_cloudevent,
    decode_cloudevents,
    encode_cloudevent,
    encode_cloudevents,
)
from tamis.events.event import Event, EventLimits
from tamis.events.json_lines import (
    DecodedLine,
    RejectedLine,
    decode_cloudevent_lines,
    decode_json_lines,
    read_lines,
)
from tamis.events.json_text import decode_json, decode_schema, encode_json, schema_of
from tamis.events.kinds import Kind, Type, Value
from tamis.events.schema import Attribute, Schema, attribute
from tamis.events.values import Bits

__all__ = [
    "Attribute",
    "Bits",
    "CloudEvent",
    "DecodedLine",
    "Event",
    "EventLimits",
    "Kind",
    "RejectedLine",
    "Schema",
    "Type",
    "Value",
    "attribute",
    "decode_cloudevent",
    "decode_cloudevent_lines",
    "decode_cloudevents",
    "decode_json",
    "decode_json_lines",
    "decode_schema",
    "encode_cloudevent",
    "encode_cloudevents",
    "encode_json",
    "read_lines",
    "schema_of",
]

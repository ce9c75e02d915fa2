"""Events as those get them who may see them, or a part of them."""

from __future__ import annotations

import msgspec

from tamis.access import Rights
from tamis.broker.publish.event_cache import StoredEvent
from tamis.broker.publish.payloads import Payload
from tamis.filters import Filter
from tamis.protocol import Delivery


def visible_data(filter_: Filter, rights: Rights, payload: Payload) -> bytes | None:
    """Return the text of an event without what its reader may not see; None if that is all.

    Rights may have changed since it was matched, so that not even its having matched the filter
    may be told.
    """
    if not rights.hides_anything:
        return payload.text
    sight = rights.sight(payload.source)
    if sight is None or not sight.covers(filter_.attributes()):
        return None
    if sight.is_whole:
        return payload.text
    return msgspec.json.encode(sight.document(msgspec.json.decode(payload.text)))


def delivery_of(stored: StoredEvent, data: bytes, attempt: int = 1) -> Delivery:
    """Return an event as it is sent."""
    return Delivery(
        sequence=stored.sequence,
        time=stored.time,
        publisher=stored.publisher,
        data=msgspec.Raw(data),
        attempt=attempt,
        format=stored.payload.format,
    )

"""What a subscriber may see of an event."""

from __future__ import annotations

import msgspec

from tamis.access import Rights
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.publish.event_cache import StoredEvent
from tamis.broker.publish.payloads import Payload
from tamis.filters import Filter


def is_visible(subscription: ActiveSubscription, rights: Rights, stored: StoredEvent) -> bool:
    """Return whether rights show anything of an event, by the filter that found it."""
    filter_ = subscription.filter_at(stored.sequence)
    return visible_data(filter_, rights, stored.payload) is not None


def visible_data(filter_: Filter, rights: Rights, payload: Payload) -> bytes | None:
    """Return the text of an event without what its reader may not see; None if that is all.

    Rights may have changed since the event was matched. Then not even the fact that it matched may
    be revealed.
    """
    if not rights.hides_anything:
        return payload.text
    sight = rights.sight(payload.source)
    # Of a document a reader sees all or nothing.
    if sight is None or not sight.covers(filter_.attributes()):
        return None
    if sight.is_whole:
        return payload.text
    return msgspec.json.encode(sight.document(msgspec.json.decode(payload.text)))

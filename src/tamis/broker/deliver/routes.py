"""Links and routes: what goes to a neighbouring broker waits in one queue, fed by many filters.

A link is a durable subscription that matches nothing by itself. Its routes are the filters that the
neighbour has forwarded, each with a number of its own in the engine. An event that matches any of
them waits for the link once.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tamis.access import Principal, Rights
from tamis.broker.deliver.queues import DiskQueue
from tamis.broker.deliver.subscriptions import RIGHTS, ActiveSubscription, Extra, data_digest
from tamis.broker.operations.logs import get_logger
from tamis.broker.publish.event_cache import StoredEvent
from tamis.errors import TamisError
from tamis.filters import FALSE, Filter
from tamis.storage import StoredSubscription

LOG: Final = get_logger("tamis.broker")

LINK_OWNER: Final = "\tpeer:"
"""Begins the owner of a link's subscription; no principal's name has a tabulator."""


def is_link(stored: StoredSubscription) -> bool:
    """Return whether a stored subscription is that of a link."""
    return stored.owner.startswith(LINK_OWNER)


class LinkSubscription(ActiveSubscription):
    """The queue of a link, and the routes that feed it."""

    __slots__ = ("connections", "failed_connection", "refused", "routes")

    def __init__(self, stored: StoredSubscription, rights: Rights, queue: DiskQueue) -> None:
        super().__init__(stored, FALSE, rights, queue)
        self.routes: dict[str, Route] = {}
        """By digest."""
        self.refused = 0
        """How many events of the neighbour could not be stored here, since the broker started."""
        self.connections = 0
        """How often the link was opened since the broker started."""
        self.failed_connection = -1
        """The last of these times on which events could not be stored; -1: none."""

    @property
    def peer(self) -> str:
        """Return the id of the neighbour."""
        return self.stored.name

    @property
    def owner(self) -> Principal:
        """Return the principal of the link's credential, by whose rights events pass."""
        extra = Extra.of(self.stored)
        return Principal(extra.principal, extra.roles)


class Route:
    """A filter that a neighbour has forwarded; there may be very many."""

    __slots__ = ("digest", "filter", "link", "mark", "number")

    def __init__(self, number: int, digest_: str, filter_: Filter, link: LinkSubscription) -> None:
        self.number = number
        """As of a subscription, in the engine."""
        self.digest = digest_
        """Names the filter on the link."""
        self.filter = filter_
        """In mode `sql`."""
        self.link = link
        self.mark = b""
        """A digest of what the engine compiled; empty: nothing."""

    def admits(self, stored: StoredEvent) -> bool:
        """Return whether the link's rights show an event that the engine found for the route."""
        payload = stored.payload
        try:
            return self.link.rights.admits(payload.source, payload.event, self.filter)
        except TamisError:
            LOG.exception("an event cannot be shown to a peer", sequence=stored.sequence)
            return False

    def mark_by(self, rights: Rights) -> bytes:
        """Return a digest of everything that the compiled route depends on."""
        return data_digest([RIGHTS, "route", self.digest, rights.digest])


def link_row(
    peer: str, principal: Principal, *, created_at: float, start: int
) -> StoredSubscription:
    """Return what is stored of a new link."""
    return StoredSubscription(
        owner=f"{LINK_OWNER}{peer}",
        name=peer,
        filter="false",
        language="tamis",
        mode="sql",
        created_at=created_at,
        start=start,
        overflow="wait",
        durable=True,
        max_attempts=0,
        extra=link_extra(Extra(), principal).text(),
    )


def link_extra(extra: Extra, principal: Principal) -> Extra:
    """Return the further properties of a link with another credential."""
    return msgspec.structs.replace(extra, roles=principal.roles, principal=principal.name)

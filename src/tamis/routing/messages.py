"""What the routers of two peers send each other over their link, in order.

When a connection begins, each side sends a `Greeting` and its `Holdings`, in parts: what it still
has of the other from before. The other answers with the difference, and from then on sends changes
as they occur. Messages are lost only with their connection, and the next one begins in the same
way; so nothing depends on what the last one carried.

These are plain data (msgspec structs with a tag), to be put into frames as they are. Limits on the
size of a frame are those of the connection: `MAX_CHANGE_BYTES` and `MAX_DIGESTS` bound what a
router puts into one message, except for a single filter that is larger.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

MAX_CHANGE_BYTES: Final = 256 * 1024
"""Of the filters in one message, as JSON."""
MAX_DIGESTS: Final = 5_000
"""In one message; also of brokers."""


class LinkMessage(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="message",
    tag=str.lower,
):
    """The base of all messages."""


class BrokerEntry(msgspec.Struct, frozen=True, array_like=True):
    """A broker of the overlay, as somebody on the other side of it sees it."""

    id: str
    parent: str
    """Its neighbour on the way to it."""
    generation: int
    """Of the link between the two."""
    name: str = ""


class Greeting(LinkMessage, frozen=True):
    """The first message of a connection: who is there, and which brokers are behind it."""

    name: str
    """Of the sender, for people."""
    generation: int
    """Of the link, as far as the sender knows it; the larger one counts."""
    brokers: tuple[BrokerEntry, ...] = ()


class Holdings(LinkMessage, frozen=True):
    """Digests of the filters and advertisements that the sender has of the receiver."""

    filters: tuple[str, ...] = ()
    advertisements: tuple[str, ...] = ()
    is_last: bool = True
    """No further part follows."""


class FilterChanges(LinkMessage, frozen=True):
    """Filters to forward events for, and digests of those that are no longer wanted.

    Both together are one change: no event falls between them.
    """

    add: tuple[list[Any], ...] = ()
    """Structures of filters (`tamis.filters.structure`)."""
    remove: tuple[str, ...] = ()


class AdvertisementChanges(LinkMessage, frozen=True):
    """What may be published behind the sender, and what no longer is."""

    add: tuple[list[Any], ...] = ()
    remove: tuple[str, ...] = ()


class BrokerChanges(LinkMessage, frozen=True):
    """Brokers that have come behind the sender or changed, and ids of those that have gone."""

    add: tuple[BrokerEntry, ...] = ()
    remove: tuple[str, ...] = ()


class Letter(LinkMessage, frozen=True):
    """A message from one broker to another, passed on from peer to peer.

    It follows the filters that were forwarded before it on the same way. A letter is lost if a link
    on its way is down.
    """

    source: str
    target: str
    ref: int
    """The source's number of it, which the answer repeats."""
    body: msgspec.Raw
    is_answer: bool = False
    drains: bool = False
    """Whether each broker on the way keeps it until the next one has all events before it."""


class LinkEnd(LinkMessage, frozen=True):
    """The last message of a link that does not come back: forget it."""

    reason: str


RouterMessage = (
    Greeting | Holdings | FilterChanges | AdvertisementChanges | BrokerChanges | Letter | LinkEnd
)
"""Any message of a router: the type to decode."""

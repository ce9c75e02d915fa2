"""What a router wants done, in order."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tamis.filters import Filter
from tamis.routing.messages import Letter, LinkMessage


class Instruction(msgspec.Struct, frozen=True):
    """The base of all instructions."""


class SendMessage(Instruction, frozen=True):
    """Send a message to the router of a peer; drop it if the connection has ended meanwhile."""

    peer: str
    message: LinkMessage


class ChangeRoutes(Instruction, frozen=True):
    """Change for which filters events go to a peer, all at one point of the log.

    The routes of a link are durable: after a restart `Router.restore` gets them back.
    """

    peer: str
    add: Mapping[str, Filter]
    """By digest."""
    remove: tuple[str, ...]


class ChangeAdvertisements(Instruction, frozen=True):
    """Keep in mind what a peer has advertised, durably, and forget what it has withdrawn.

    `Router.restore` gets these back, too. A broker that ignores advertisements need not store them.
    """

    peer: str
    add: Mapping[str, Filter]
    remove: tuple[str, ...]


class AwaitDrained(Instruction, frozen=True):
    """Report `LinkDrained` once a peer has stored all events that are due to it now.

    These are the events that are in the log now, also those that have not been matched yet. An
    advertisement may not be withdrawn before: its withdrawal would overtake them, and the routes
    that they take on the other side would be gone. The report of a ticket counts for earlier ones,
    too.
    """

    peer: str
    ticket: int


class WantedChanged(Instruction, frozen=True):
    """Notify a client whether anybody asks for what it advertised; at first, nobody does."""

    advertisement: str
    """The id of the local advertisement."""
    is_wanted: bool


class TakeLetter(Instruction, frozen=True):
    """A letter has arrived here."""

    peer: str
    """Who passed it on."""
    letter: Letter


class RefuseLink(Instruction, frozen=True):
    """End the connection to a peer, and tell it and the log why.

    What is stored of a link that was known before stays. One that was not known leaves nothing. The
    message before this instruction, if there is one, should still reach the peer.
    """

    peer: str
    reason: str


class ForgetLink(Instruction, frozen=True):
    """Remove a link for good, with its connection, its routes and the events that wait for it."""

    peer: str
    reason: str

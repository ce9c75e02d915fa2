"""Inputs to a broker's router, in order."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tamis.filters import Filter
from tamis.routing.messages import Letter, LinkMessage


class RouterInput(msgspec.Struct, frozen=True):
    """The base of all inputs."""


class LocalFilterAdded(RouterInput, frozen=True):
    """A client of this broker subscribes; a filter of the same id is replaced, in one change.

    The filter is one of mode `sql`: see `tamis.access.joining.in_sql_mode`.
    """

    id: str
    filter: Filter


class LocalFilterRemoved(RouterInput, frozen=True):
    """A client of this broker no longer subscribes."""

    id: str


class LocalAdvertisementAdded(RouterInput, frozen=True):
    """A client of this broker says what it will publish; one of the same id is replaced."""

    id: str
    filter: Filter


class LocalAdvertisementRemoved(RouterInput, frozen=True):
    """A client of this broker will publish no more of what it advertised."""

    id: str


class LinkOpened(RouterInput, frozen=True):
    """A connection to a peer begins: its first one, or another of a link that is known.

    Messages of an earlier connection must not be handed in any more.
    """

    peer: str
    """The id of the broker on the other side."""
    name: str = ""
    """What people call it, as far as that is known before it greets."""


class LinkClosed(RouterInput, frozen=True):
    """The connection to a peer is lost. The link stays: its routes collect events."""

    peer: str


class LinkRemoved(RouterInput, frozen=True):
    """Somebody removed the link to a peer for good."""

    peer: str


class RoutesFound(RouterInput, frozen=True):
    """A change of a peer's routes failed: the filters that are in force, by digest."""

    peer: str
    routes: Mapping[str, Filter]


class MessageReceived(RouterInput, frozen=True):
    """The router of a peer has sent a message over the present connection."""

    peer: str
    message: LinkMessage


class LetterGiven(RouterInput, frozen=True):
    """This broker has a letter for another."""

    letter: Letter


class LinkDrained(RouterInput, frozen=True):
    """What `AwaitDrained` asked for: the peer has stored the events that were then due to it."""

    peer: str
    ticket: int

"""How many connections a server holds, and for whom.

A connection belongs to a stranger until a client on it is authenticated. Strangers have at most
half of all connections. When they have them all, a newcomer takes the place of the oldest stranger
of the address that has most of them: a client that says at once who it is gets in, however many
others are silent. From then on only its own limits apply.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final


class ConnectionAdmission:
    """All connections of a server, from the first byte of their handshake."""

    def __init__(self, most: int) -> None:
        """Hold at most this many connections."""
        self._most: Final = most
        self._known: set[ConnectionTicket] = set()
        self._strangers: defaultdict[str, dict[ConnectionTicket, None]] = defaultdict(dict)
        """By address, the oldest first."""
        self._stranger_count = 0

    def __len__(self) -> int:
        return len(self._known) + self._stranger_count

    def enter(self, transport: asyncio.Transport) -> ConnectionTicket | None:
        """Return a ticket for a newcomer; None if those who are known fill all places."""
        if self._stranger_count >= max(1, self._most // 2) or len(self) >= self._most:
            if not self._stranger_count:
                return None
            self._dismiss_oldest()
        ticket = ConnectionTicket(self, transport)
        self._strangers[ticket.address][ticket] = None
        self._stranger_count += 1
        return ticket

    def make_known(self, ticket: ConnectionTicket) -> None:
        """Note that the client of a connection is authenticated."""
        if self._forget_stranger(ticket):
            self._known.add(ticket)

    def leave(self, ticket: ConnectionTicket) -> None:
        """Note that a connection is closed."""
        if not self._forget_stranger(ticket):
            self._known.discard(ticket)

    def _forget_stranger(self, ticket: ConnectionTicket) -> bool:
        same_address = self._strangers.get(ticket.address, {})
        if ticket not in same_address:
            return False
        del same_address[ticket]
        if not same_address:
            del self._strangers[ticket.address]
        self._stranger_count -= 1
        return True

    def _dismiss_oldest(self) -> None:
        busiest = max(self._strangers.values(), key=len)
        oldest = next(iter(busiest))
        self._forget_stranger(oldest)
        oldest.dismiss()


class ConnectionTicket:
    """The place of one connection among all."""

    def __init__(self, admission: ConnectionAdmission, transport: asyncio.Transport) -> None:
        self._admission = admission
        self.transport = transport
        self.dismiss = transport.abort
        """Ends the connection at once, in favour of another."""
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""

    def make_known(self) -> None:
        """Note that the client is authenticated."""
        self._admission.make_known(self)

    def leave(self) -> None:
        """Give the place back."""
        self._admission.leave(self)

"""The dialler: keeps the link to one address connected."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.peers.link import PeerLink
from tamis.client.connection import Backoff
from tamis.client.transport import Transport, parse_address, websocket_dial
from tamis.errors import DisconnectedError, RefusedError, TamisError
from tamis.protocol import Code
from tamis.protocol.peering import LINK_PATH

LOG: Final = get_logger("tamis.peers")

FIRST_RETRY_SECONDS: Final = 0.1
# A connection that lasted this long was good, so the next pause is short again.
SECONDS_TO_TRUST: Final = 1.0


class PeerTarget(NamedTuple):
    """A broker to dial, and what it is told and allowed."""

    url: str
    made_by: str
    """`settings`, or `command`."""
    token: str | None = None
    token_file: Path | None = None
    role: str | None = None
    ca: Path | None = None

    def read_token(self) -> str | None:
        """Return the token for the other broker, as it is now."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise RefusedError(
                Code.UNAUTHENTICATED, f"the token in {self.token_file} cannot be read: {error}"
            ) from None

    def tls(self) -> ssl.SSLContext | None:
        """Return what certificates to trust; None: the system's."""
        if self.ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise DisconnectedError(
                f"there are no certificates in {self.ca}: {error.strerror or error}"
            ) from None


class Dialler:
    """Dials one address again and again, and holds the connection while it lasts."""

    def __init__(
        self,
        target: PeerTarget,
        hold: Callable[[Transport, Dialler], Awaitable[TamisError]],
        settings: BrokerSettings,
        supervisor: Supervisor,
    ) -> None:
        """Make a dialler; `hold` returns why a connection has ended."""
        self.target = target
        self.problem = "not reached yet"
        """Why there is no connection; empty while there is one."""
        self.peer = ""
        """The id of the broker that answered last."""
        self._hold = hold
        self._settings = settings
        self._supervisor = supervisor
        self._backoff = Backoff(FIRST_RETRY_SECONDS, settings.peer_retry)
        self._is_retired = False
        self._link: PeerLink | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to dial."""
        self._task = self._supervisor.restart("dialler", self.run)

    def retire(self) -> None:
        """Dial no more once the present connection ends."""
        self._is_retired = True

    def stop(self) -> None:
        """Dial no more; a connection that was made ends."""
        if self._task is not None:
            self._task.cancel()

    def note_connected(self, link: PeerLink) -> None:
        """Note that a peer has answered and is linked."""
        self._link, self.peer, self.problem = link, link.peer, ""

    async def run(self) -> None:
        """Dial until cancelled."""
        now = asyncio.get_running_loop().time
        while not self._is_retired:
            # The peer may dial as well, and its connection may be the one that counts.
            while self._link is not None and self._link.connection is not None:
                self.problem = ""
                await self._link.connection.ended.wait()
            began = now()
            problem = str(await self._connect())
            if problem != self.problem:
                # Once, however often the same happens.
                LOG.warning("no link", url=self.target.url, reason=problem)
            self.problem = problem
            if now() - began > SECONDS_TO_TRUST + self._settings.peer_timeout:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next())

    async def _connect(self) -> TamisError:
        """Dial once; return why there is no connection, or none any more."""
        target = self.target
        try:
            dial = websocket_dial(
                parse_address(target.url),
                timeout=self._settings.peer_timeout,
                tls=target.tls(),
                path=LINK_PATH,
                token=target.read_token(),
                largest_frame=self._settings.largest_frame,
            )
            transport = await dial()
        except TamisError as error:
            return error
        try:
            return await self._hold(transport, self)
        finally:
            # A peer that does not answer would keep the next attempt waiting.
            self._supervisor.start("closing a link", transport.close())

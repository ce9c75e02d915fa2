"""A broker's log as a job reads it: by places, and over again if need be."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator, Sequence
from typing import Final

from tamis.client.address import parse_address
from tamis.client.http import HTTPManagement
from tamis.errors import DisconnectedError, RefusedError, SparkError
from tamis.protocol import Delivery
from tamis.protocol.codes import WORTH_A_RETRY
from tamis.protocol.views import HistoryView
from tamis.spark.connectors.broker_options import Settings

_BETWEEN_TRIES: Final = 0.5
_SECONDS_OF_A_REQUEST: Final = 30.0


class BrokerLog:
    """The events of a broker's log that match a filter."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._broker = HTTPManagement(
            parse_address(settings.url),
            settings.token,
            timeout=min(_SECONDS_OF_A_REQUEST, settings.patience),
            tls=tls_of(settings),
        )

    def place(self, text: str) -> int:
        """Return the sequence that is meant by `latest`, `earliest`, a sequence or a time."""
        start = int(text) if text.isdigit() else text
        return self._read(start, start).end

    def pieces(self, start: int, end: int) -> Iterator[Sequence[Delivery]]:
        """Yield what matches from one place up to but without another, in order."""
        while start < end:
            piece = self._read(start, end)
            if piece.events:
                yield piece.events
            if piece.next >= piece.end:
                return
            start = piece.next

    def _read(self, start: int | str, end: int | str) -> HistoryView:
        """Read a piece, however often that takes while there is patience."""
        settings, until = self._settings, time.monotonic() + self._settings.patience
        while True:
            try:
                return asyncio.run(
                    self._broker.history(
                        settings.filter,
                        language=settings.language,
                        mode=settings.mode,
                        start=start,
                        end=end,
                    )
                )
            except RefusedError as error:
                if error.code not in WORTH_A_RETRY or time.monotonic() > until:
                    raise SparkError(f"the broker at {settings.url} refuses: {error}") from None
            except DisconnectedError as error:
                if time.monotonic() > until:
                    raise SparkError(str(error)) from None
            time.sleep(_BETWEEN_TRIES)


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """Return what certificates are checked by; None: by those of the system."""
    return None if settings.ca is None else ssl.create_default_context(cafile=settings.ca)

"""Advertisements without `await`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tamis.client.advertisement import Advertisement
from tamis.client.sync_queries import CoroutineRunner


class SyncAdvertisement:
    """What a client will publish; made by `SyncBus.advertise`."""

    def __init__(self, thread: CoroutineRunner, advertisement: Advertisement) -> None:
        self._thread = thread
        self._advertisement = advertisement

    @property
    def filter(self) -> str:
        """Return what is advertised."""
        return self._advertisement.filter

    @property
    def wanted(self) -> bool | None:
        """Return whether anybody asks for any of it; None: unknown."""
        return self._advertisement.wanted

    @property
    def quenched(self) -> int:
        """Return how many events were not sent because nobody wanted them."""
        return self._advertisement.quenched

    @property
    def is_closed(self) -> bool:
        """Return whether it is no longer advertised."""
        return self._advertisement.is_closed

    def wait_until(self, *, wanted: bool) -> None:
        """Return when it is known to be wanted, or unwanted; raise the error that ends it."""
        self._thread.call(self._advertisement.wait_until(wanted=wanted))

    def close(self) -> None:
        """Advertise it no longer."""
        self._thread.call(self._advertisement.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._advertisement).replace("<", "<Sync", 1)

"""What synchronous buses and consumers copy, from tools/generate_sync.py."""
# ruff: noqa: A002 - these are the names of the asynchronous bus

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from tamis.client.bus import Bus
from tamis.client.consumer import Consumer
from tamis.client.messages import Publishable
from tamis.client.options import Lifetime
from tamis.filters import Filter, Mode
from tamis.protocol.management import ManagementCall, NewSubscription
from tamis.protocol.views import Creation, DeadLetterView, Receipt, SubscriptionView, Trial

T = TypeVar("T")


class SyncMethods(ABC):
    """Methods of `Bus` without `await`."""

    @property
    @abstractmethod
    def _async_bus(self) -> Bus: ...

    @abstractmethod
    def _wait(self, ask: Callable[[Bus], Coroutine[Any, Any, T]]) -> T: ...

    @property
    def publisher(self) -> str:
        """Return the name under which events are published."""
        return self._async_bus.publisher

    @property
    def sequence(self) -> int:
        """Return the number of the next event."""
        return self._async_bus.sequence

    @property
    def principal(self) -> str:
        """Return the name under which the broker knows this client."""
        return self._async_bus.principal

    @property
    def is_connected(self) -> bool:
        """Return whether there is a connection now."""
        return self._async_bus.is_connected

    def flush(self) -> None:
        """Wait until all publications and all acknowledgements are on the broker's disk.

        Raises `DisconnectedError` if the connection was lost before the acknowledgements were: the
        broker then sends their events again.
        """
        self._wait(lambda bus: bus.flush())

    def publish(self, event: Publishable, *, sequence: int | None = None) -> Receipt:
        """Publish an event, and return when it is on the broker's disk.

        If the connection is lost, wait for the next one and send the event again; the broker
        stores it once. Events are numbered consecutively; `sequence` skips to a higher number.
        """
        return self._wait(lambda bus: bus.publish(event, sequence=sequence))

    def call(self, call: ManagementCall[T]) -> T:
        """Make any management call, such as `bus.call(ListTokens())`.

        `tamis.protocol.management` lists them all.
        """
        return self._wait(lambda bus: bus.call(call))

    def subscriptions(self) -> list[SubscriptionView]:
        """Return your subscriptions, connected or not."""
        return self._wait(lambda bus: bus.subscriptions())

    def subscription(self, id: str) -> SubscriptionView:
        """Return one of your subscriptions; raise `RefusedError` if there is none."""
        return self._wait(lambda bus: bus.subscription(id))

    def create_subscriptions(
        self, subscriptions: Iterable[NewSubscription | Mapping[str, Any]]
    ) -> list[Creation]:
        """Create many durable subscriptions that nobody reads yet; return a result for each.

        All of them are checked before the first is sent: `OptionError` says which is wrong.

        >>> from tamis.protocol.management import NewSubscription
        >>> new = [NewSubscription(id=f"watch-{n}", filter=f"price < {n}") for n in range(3)]
        >>> results = await bus.create_subscriptions(new)  # doctest: +SKIP
        """
        return self._wait(lambda bus: bus.create_subscriptions(subscriptions))

    def renew(self, id: str, lifetime: Lifetime) -> SubscriptionView:
        """Set when a subscription expires, counted from now; None: never."""
        return self._wait(lambda bus: bus.renew(id, lifetime))

    def update(
        self,
        id: str,
        filter: str | Filter,
        *,
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> SubscriptionView:
        """Replace the filter of a durable subscription; the events that wait for it stay.

        Events published before the call are matched by the old filter. `filter_from` of the result
        is the first event that the new one holds for.

        >>> (await bus.update("laptop-7", "price < 4")).filter_from  # doctest: +SKIP
        1207
        """
        return self._wait(lambda bus: bus.update(id, filter, language=language, mode=mode))

    def delete(self, id: str) -> None:
        """Delete a subscription and the events that wait for it."""
        self._wait(lambda bus: bus.delete(id))

    def dead_letters(self, id: str, *, after: int = 0, limit: int = 100) -> list[DeadLetterView]:
        """Return the dead letters of a subscription that follow a sequence."""
        return self._wait(lambda bus: bus.dead_letters(id, after=after, limit=limit))

    def requeue(self, id: str, sequences: Iterable[int]) -> int:
        """Send dead letters again, as if they had never been sent; return how many."""
        return self._wait(lambda bus: bus.requeue(id, sequences))

    def delete_dead_letters(self, id: str, sequences: Iterable[int]) -> int:
        """Delete dead letters; return how many there were."""
        return self._wait(lambda bus: bus.delete_dead_letters(id, sequences))

    def try_filter(
        self,
        filter: str | Filter,
        events: Iterable[Publishable],
        *,
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> list[Trial]:
        """Return which sample events a filter matches, without subscribing."""
        return self._wait(lambda bus: bus.try_filter(filter, events, language=language, mode=mode))

    def explain(
        self,
        event: Publishable,
        *,
        id: str | None = None,
        filter: str | Filter | None = None,
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> str:
        """Explain why a sample event matches a subscription or a filter, or why not."""
        return self._wait(
            lambda bus: bus.explain(event, id=id, filter=filter, language=language, mode=mode)
        )

    def wanted(self, event: Publishable) -> bool:
        """Return whether anybody would get an event if it were published now."""
        return self._wait(lambda bus: bus.wanted(event))

    def status(self) -> dict[str, Any]:
        """Return the broker's state and its main counters; for administrators."""
        return self._wait(lambda bus: bus.status())


class SyncConsumerProperties:
    """Properties of `Consumer`."""

    _consumer: Consumer

    @property
    def id(self) -> str | None:
        """Return the subscription's id; for a durable subscription, the name you gave it."""
        return self._consumer.id

    @property
    def filter(self) -> str:
        """Return the filter."""
        return self._consumer.filter

    @property
    def durable(self) -> str | None:
        """Return the name of a durable subscription, None for any other."""
        return self._consumer.durable

    @property
    def expires_at(self) -> float | None:
        """Return when the subscription ends unless it is renewed, in seconds since 1970."""
        return self._consumer.expires_at

    @property
    def missed(self) -> int:
        """Return how many events are known to be missing."""
        return self._consumer.missed

    @property
    def acknowledges_automatically(self) -> bool:
        """Return whether asking for the next event acknowledges the last."""
        return self._consumer.acknowledges_automatically

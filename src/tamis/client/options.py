"""The options of clients and subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple, TypedDict

import msgspec

from tamis.filters import Mode
from tamis.protocol.frames import SlowPolicy

WINDOW_EVENTS: Final = 256
PUBLISH_WINDOW_EVENTS: Final = 5_000

Token = str | Callable[[], str | Awaitable[str]] | None
"""A token, or a function that returns one for every connection."""
Lifetime = float | timedelta | None
"""Seconds; None: no limit."""


class ConnectOptions(TypedDict, total=False):
    """The options of a client, all of them optional."""

    token: Token
    """A token, or a function, asynchronous or not, that returns one for every connection."""
    publisher: str | None
    """A name for publications that outlives this process; it requires `sequence`."""
    sequence: int | None
    """The number of the next event under that name. The broker ignores a number it has seen."""
    timeout: float | None
    """Seconds to wait for an answer; None: no limit."""
    reconnect: bool
    """Whether to reconnect when the connection is lost; True by default."""
    window: int
    """How many events of a subscription may wait in this process."""
    publish_window: int
    """How many published events may wait for their acknowledgement before `publish` waits."""
    patient: bool
    """Whether to publish again, rather than raise, when the broker refuses an event because it is
    overloaded or full; False by default."""


class ClientOptions(NamedTuple):
    """The options of a client with their defaults."""

    token: Token = None
    publisher: str | None = None
    sequence: int | None = None
    timeout: float | None = 30.0
    reconnect: bool = True
    window: int = WINDOW_EVENTS
    publish_window: int = PUBLISH_WINDOW_EVENTS
    patient: bool = False


class Missed(msgspec.Struct, frozen=True):
    """Events that a subscription missed."""

    count: int | None
    """None: unknown."""
    reason: str
    """`slow`: the subscriber was too slow; `retention`: the broker kept them no longer;
    `disconnected`."""


class SubscribeOptions(TypedDict, total=False):
    """The options of a subscription, all of them optional."""

    durable: str | None
    """A name under which the broker keeps the subscription and its events while nobody is
    connected."""
    acknowledge: Literal["auto", "manual"]
    """`auto`: an event of a durable subscription is acknowledged when you ask for the next one, any
    other when it is sent. `manual`: by `event.ack()`."""
    start: int | str | datetime
    """`latest` (the default), `earliest`, a sequence, or a time."""
    lifetime: Lifetime
    """Seconds, or a timedelta, until it expires, counted from the latest connection."""
    language: str
    mode: Mode | str | None
    policy: SlowPolicy
    """What happens to events while the subscriber is slow: `wait` (the default) on the broker's
    disk, `drop` the oldest, or `disconnect`, which ends the subscription."""
    max_attempts: int
    """How often an event is sent before it becomes a dead letter; 0: the broker's setting."""
    window: int
    """How many events may wait in this process."""
    on_missed: Callable[[Missed], object] | None
    """Called when events are missed; without it, a warning is logged."""


class ConsumerOptions(NamedTuple):
    """A filter and the options of a subscription, complete."""

    filter: str
    language: str
    mode: str | None
    durable: str | None
    lifetime: float | None
    start: int | str
    policy: SlowPolicy
    acknowledge: Literal["auto", "manual"]
    max_attempts: int
    window: int
    on_missed: Callable[[Missed], object] | None

    @classmethod
    def of(cls, filter_: str, window: int, options: SubscribeOptions) -> ConsumerOptions:
        """Return the request with defaults for the missing options."""
        window = options.get("window", window)
        if window < 1:
            raise ValueError(f"window is {window}; it must be at least 1 event")
        return cls(
            filter=filter_,
            language=options.get("language", "tamis"),
            mode=options.get("mode"),
            durable=options.get("durable"),
            lifetime=seconds(options.get("lifetime")),
            start=position(options.get("start", "latest")),
            policy=options.get("policy", "wait"),
            acknowledge=options.get("acknowledge", "auto"),
            max_attempts=options.get("max_attempts", 0),
            window=window,
            on_missed=options.get("on_missed"),
        )

    @property
    def is_stored(self) -> bool:
        """Return whether events wait on the broker's disk, so that it can start in the past."""
        return self.policy == "wait"

    @property
    def settles(self) -> bool:
        """Return whether events are acknowledged one by one, rather than when they are sent."""
        return self.durable is not None or self.acknowledge == "manual"


def position(moment: int | str | datetime) -> int | str:
    """Return a position in the log in the form that brokers take."""
    return moment.astimezone().isoformat() if isinstance(moment, datetime) else moment


def seconds(lifetime: Lifetime) -> float | None:
    """Return a lifetime in seconds.

    >>> seconds(timedelta(hours=1))
    3600.0
    """
    return lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime

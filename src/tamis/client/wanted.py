"""What a subscriber asks for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple, TypedDict

import msgspec

from tamis.client.management import Lifetime, instant, seconds
from tamis.filters import Mode
from tamis.protocol.frames import Policy


class Missed(msgspec.Struct, frozen=True):
    """Events that a subscription did not get."""

    count: int | None
    """None: nobody knows."""
    reason: str
    """`slow`: the subscriber was; `retention`: they were not kept so long; `disconnected`."""


class SubscribeOptions(TypedDict, total=False):
    """How a subscription is to be; every option can be left out."""

    durable: str | None
    """A name, under which the broker keeps it and its events while nobody is connected."""
    acknowledge: Literal["auto", "manual"]
    """`auto`: an event of a durable subscription is acknowledged when the next one is asked for,
    any other when it is sent. `manual`: by `event.ack()`."""
    start: int | str | datetime
    """`latest` (the default), `earliest`, a sequence, or a time."""
    lifetime: Lifetime
    """Seconds, or a timedelta, until it expires, counted anew at every connection."""
    language: str
    mode: Mode | str | None
    policy: Policy
    """What becomes of events while the subscriber is slow: `wait` (the default) on the broker's
    disk, `drop` the oldest, or `disconnect`, which ends the subscription."""
    max_attempts: int
    """How often an event is sent before it goes to the dead letters; 0: as the broker is set."""
    window: int
    """How many events may wait in this process."""
    on_missed: Callable[[Missed], object] | None
    """Called when events do not come; without it, that is logged."""


class Wanted(NamedTuple):
    """A filter with its options, complete."""

    filter: str
    language: str
    mode: str | None
    durable: str | None
    lifetime: float | None
    start: int | str
    policy: Policy
    acknowledge: Literal["auto", "manual"]
    max_attempts: int
    window: int
    on_missed: Callable[[Missed], object] | None

    @classmethod
    def of(cls, filter_: str, window: int, options: SubscribeOptions) -> Wanted:
        """Return what was asked for, with defaults for the rest."""
        window = options.get("window", window)
        if window < 1:
            raise ValueError(f"a window of {window} events lets none come; it is at least 1")
        return cls(
            filter=filter_,
            language=options.get("language", "tamis"),
            mode=options.get("mode"),
            durable=options.get("durable"),
            lifetime=seconds(options.get("lifetime")),
            start=instant(options.get("start", "latest")),
            policy=options.get("policy", "wait"),
            acknowledge=options.get("acknowledge", "auto"),
            max_attempts=options.get("max_attempts", 0),
            window=window,
            on_missed=options.get("on_missed"),
        )

    @property
    def waits(self) -> bool:
        """Tell whether events wait on the broker's disk, so that it can be begun in the past."""
        return self.policy == "wait"

    @property
    def settles(self) -> bool:
        """Tell whether events are acknowledged one by one, rather than when they are sent."""
        return self.durable is not None or self.acknowledge == "manual"

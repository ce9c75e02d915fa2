"""What a broker tells of publications, subscriptions, dead letters and tokens."""

from __future__ import annotations

import msgspec

from tamis.protocol.delivery import Delivery


class Receipt(msgspec.Struct, frozen=True):
    """What came of a publication."""

    count: int
    """The events that were given."""
    duplicates: int = 0
    """Those of them that the broker had stored before."""
    first: int | None = None
    """The place in the broker's log of the first that was new."""

    def __add__(self, other: Receipt) -> Receipt:
        first = other.first if self.first is None else self.first
        return Receipt(self.count + other.count, self.duplicates + other.duplicates, first)


class SubscriptionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subscription as its owner sees it."""

    id: str
    filter: str
    language: str
    mode: str
    durable: bool
    policy: str
    created_at: float
    connected: bool
    pending: int
    in_flight: int
    dropped: int
    dead: int
    max_attempts: int
    start: int
    """The first event that it is for, by its place in the log."""
    expires_at: float | None = None


class HistoryView(msgspec.Struct, frozen=True):
    """A piece of the past: what was found of it, and where to go on."""

    events: list[Delivery]
    next: int
    """The first event that was not looked at."""
    end: int
    """Where the past ends, or what was asked for of it: when `next` is there, that is all."""


class DeadLetterView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that was given up, as the subscriber may see it."""

    sequence: int
    time: float
    died_at: float
    publisher: str
    attempts: int
    reason: str
    data: msgspec.Raw
    format: str = "json"


class Trial(msgspec.Struct, frozen=True):
    """What a filter says of a sample event; None where the event cannot be read."""

    matches: bool | None
    error: str = ""


class TokenView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a token; the token itself is shown only once."""

    id: str
    principal: str
    roles: list[str]
    created_at: float
    expires_at: float | None = None
    note: str = ""


class IssuedTokenView(msgspec.Struct, frozen=True):
    """A new token: its text, which is shown this once, and what is known of it."""

    text: str
    token: TokenView

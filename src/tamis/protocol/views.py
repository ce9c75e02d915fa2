"""What a broker returns: receipts, subscriptions, dead letters, history, tokens."""

from __future__ import annotations

import msgspec

from tamis.protocol.frames import Delivery


class Receipt(msgspec.Struct, frozen=True):
    """The outcome of a publication."""

    count: int
    """The number of events in it."""
    duplicates: int = 0
    """How many of them the broker had stored before."""
    first: int | None = None
    """The position in the broker's log of the first new one."""

    def __add__(self, other: Receipt) -> Receipt:
        first = other.first if self.first is None else self.first
        return Receipt(self.count + other.count, self.duplicates + other.duplicates, first)


class SubscriptionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subscription as its owner sees it."""

    id: str
    filter: str
    """Empty for a credential that may not mention its attributes."""
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
    """The sequence of the first event it covers."""
    expires_at: float | None = None
    suspended_from: int = 0
    """The first event that was not matched, because its filter takes too long; 0: none."""
    filter_from: int = 0
    """The first event that its present filter holds for; 0: it has had no other."""


class SubscriptionList(msgspec.Struct):
    """A page of subscriptions, by id."""

    subscriptions: list[SubscriptionView]
    next: str | None
    """The `after` of the next page; null: this is the last."""


class HistoryView(msgspec.Struct, frozen=True):
    """A page of past events, and where the next page starts."""

    events: list[Delivery]
    next: int
    """The first event that was not searched."""
    end: int
    """Where the search ends; once `next` is equal, it is complete."""
    damaged: int = 0
    """How many of the events searched are damaged, and so could not be matched."""
    invalid: int = 0
    """How many could not be matched because the schema or the limits have changed since."""


class Creation(msgspec.Struct, omit_defaults=True):
    """What became of one of many subscriptions to create."""

    id: str
    """Its name; empty if it has none and was refused."""
    resumed: bool = False
    """Whether there was one with this name and the same filter."""
    code: str | None = None
    """Why it was refused; null: it is in force."""
    message: str | None = None
    """The refusal as a sentence."""


class DeadLetterView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that failed after too many attempts, as the subscriber may see it."""

    sequence: int
    time: float
    died_at: float
    publisher: str
    attempts: int
    reason: str
    data: msgspec.Raw
    format: str = "json"

    def __repr__(self) -> str:
        fields = msgspec.structs.asdict(self) | {"data": bytes(self.data)}
        return f"DeadLetterView({', '.join(f'{name}={v!r}' for name, v in fields.items())})"


class Trial(msgspec.Struct, frozen=True):
    """Whether a filter matches a sample event; None if the event is not valid."""

    matches: bool | None
    error: str = ""


class TokenView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token's metadata; the token itself is shown only when it is issued."""

    id: str
    principal: str
    roles: list[str]
    created_at: float
    expires_at: float | None = None
    note: str = ""


class IssuedTokenView(msgspec.Struct, frozen=True):
    """A new token: its text, shown only this once, and its metadata."""

    text: str
    token: TokenView


class AuditEntryView(msgspec.Struct):
    """An administrative act."""

    number: int
    time: float
    principal: str
    act: str
    detail: str

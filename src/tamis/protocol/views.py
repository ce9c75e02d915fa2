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
    quenched: int = 0
    """How many more events were not sent, because nobody wants them."""

    def __add__(self, other: Receipt) -> Receipt:
        return Receipt(
            self.count + other.count,
            self.duplicates + other.duplicates,
            other.first if self.first is None else self.first,
            self.quenched + other.quenched,
        )


class MemberView(msgspec.Struct, frozen=True):
    """A member of a group that is connected now."""

    id: str
    """What it calls itself; empty: nothing."""
    connected_at: float
    in_flight: int
    """How many events it has not acknowledged."""
    credit: int
    """How many more it may be sent."""


class SubscriptionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subscription as its owner sees it."""

    id: str
    filter: str
    """Empty for a credential that may not mention its attributes."""
    language: str
    mode: str
    durable: bool
    overflow: str
    created_at: float
    connected: bool
    pending: int
    in_flight: int
    dropped: int
    dead: int
    max_attempts: int
    start: int
    """The sequence of the first event it covers."""
    residue: int
    """Events that its filter let through, and its query or tests of elements did not, since the
    broker started."""
    expires_at: float | None = None
    suspended_from: int = 0
    """The first event that was not matched, because its filter takes too long; 0: none."""
    filter_from: int = 0
    """The first event that its present filter holds for; 0: it has had no other."""
    group: bool = False
    """Whether a group shares it: each event goes to one of the members."""
    ordering_key: str = ""
    """The attribute whose value says which events of a group are handled in order."""
    members: list[MemberView] = []
    """The members of a group that are connected."""
    matched_to: int = 0
    """The first event that was not matched for it yet, for example by a replay; 0: all were."""
    log_end: int = 0
    """While some were not, the first event that the broker does not have."""


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


class PeerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One broker's side of a link, with what has passed it since the broker started."""

    broker: str
    """The peer's id."""
    name: str = ""
    connected: bool = False
    url: str = ""
    """Where this broker dials the peer; empty: the peer dials."""
    made_by: str = "peer"
    """How the link came about: by the `settings`, a `command`, or the `peer`, which dials."""
    problem: str = ""
    """Why there is no connection."""
    routes: int = 0
    """Filters that the peer has forwarded: events that match one go over the link."""
    forwarded: int = 0
    """Filters forwarded to the peer, in force now."""
    suppressed: int = 0
    """Filters not forwarded, because a forwarded one covers them."""
    unadvertised: int = 0
    """Filters not forwarded, because nothing that the peer advertises intersects them."""
    advertisements: int = 0
    """Advertisements that the peer has forwarded."""
    waiting: int = 0
    """Events that wait until the peer has stored them."""
    sent: int = 0
    """Events sent to the peer."""
    stopped: int = 0
    """Events that matched no route of the peer, and so stayed here."""
    received: int = 0
    """Events that came from the peer."""
    duplicates: int = 0
    """Events from the peer that were stored already."""
    refused: int = 0
    """Events from the peer that its role may not publish, or that are not valid here."""
    queries_sent: int = 0
    queries_pruned: int = 0
    """Queries that were not sent to the peer, because nothing there can answer them."""


class BrokerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A broker of the overlay, with its links."""

    id: str
    name: str = ""
    subscriptions: int = 0
    published: int = 0
    """Events stored since it started, wherever they were published."""
    links: list[PeerView] = []


class TopologyView(msgspec.Struct, frozen=True):
    """The overlay, as far as its brokers answered."""

    broker: str
    """The id of the broker that was asked."""
    brokers: list[BrokerView]
    """The broker that was asked is the first."""
    missing: list[str] = []
    """Brokers that are linked, but did not answer in time; their names, or ids."""

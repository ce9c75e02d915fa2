"""Active subscriptions, and their index by number and by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from math import isinf
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tamis.access import Principal, Rights
from tamis.broker.deliver.memory_queue import MemoryQueue
from tamis.broker.deliver.queues import DiskQueue
from tamis.broker.operations.logs import get_logger
from tamis.broker.publish.event_cache import StoredEvent
from tamis.errors import TamisError
from tamis.filters import Filter
from tamis.filters.limits import NO_LIMITS
from tamis.languages import QUERY_LANGUAGES
from tamis.languages.exactness import is_approximated, read_filter
from tamis.ports import RandomBytes
from tamis.protocol.views import SubscriptionView
from tamis.storage import StoredSubscription

LOG: Final = get_logger("tamis.broker")

if TYPE_CHECKING:
    from tamis.broker.deliver.attachments import Attachment
    from tamis.broker.deliver.routes import LinkSubscription, Route


# Changes when rights are compiled in another way, so that what is compiled is compiled again.
RIGHTS: Final = "for every value"
# Subscriptions that have moved away, of which the former home remembers where they are.
MAX_DEPARTED: Final = 10_000


class FormerFilter(msgspec.Struct, frozen=True):
    """A filter that a subscription had before another one, and up to which event."""

    below: int
    """The first event that it no longer holds for."""
    filter: str
    language: str
    mode: str


class Arrival(msgspec.Struct, frozen=True, omit_defaults=True):
    """The move of a subscription to this broker."""

    id: str
    home: str
    """The broker that it comes from."""
    since: int
    """The first event here that may be its own."""
    received: int = 0
    """The position of the last event that was handed over."""
    is_over: bool = False
    """Whether it is matched here; then only its former home does not know yet."""


class Departure(msgspec.Struct, frozen=True):
    """The move of a subscription to another broker."""

    id: str
    target: str
    """The broker that it goes to."""
    cut: dict[str, int]
    """What this broker hands over: by origin, the last event."""


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields of a stored subscription that have no column of their own."""

    roles: tuple[str, ...] = ()
    """The roles of all credentials that have used it."""
    replay_from: int = 0
    """The replay resumes here and ends at the subscription's start; 0: there is none."""
    since: int = 0
    """The first event of the past that it gets; 0: none."""
    suspended_from: int = 0
    """The first event that was not matched, because its filter takes too long; 0: none."""
    filter_from: int = 0
    """The first event that its present filter holds for; 0: it has had no other."""
    former: tuple[FormerFilter, ...] = ()
    """Its earlier filters, the oldest first, of which events may wait."""
    principal: str = ""
    """Of a link: the principal of its credential."""
    arrival: Arrival | None = None
    departure: Departure | None = None
    cut: dict[str, int] = {}
    """By origin, the last event that it got from its former home."""
    moves: int = 0
    """How often it has moved to another broker."""
    group: bool = False
    """Whether a group shares it: each event goes to one of the members."""
    ordering_key: str = ""
    """The attribute of a group whose value says which events are handled in order; empty: none."""

    @classmethod
    def of(cls, stored: StoredSubscription) -> Extra:
        """Decode the fields of a stored subscription."""
        return msgspec.json.decode(stored.extra, type=cls)

    def text(self) -> str:
        """Return the fields as JSON."""
        return msgspec.json.encode(self).decode()


class ActiveSubscription:
    """A subscription in force, with its delivery queue."""

    # There may be millions.
    __slots__ = (
        "_changing",
        "_filter",
        "arrival",
        "attachments",
        "cut",
        "departure",
        "dropped",
        "former",
        "has_ended",
        "is_checked",
        "is_suspended",
        "mark",
        "queue",
        "renewals",
        "residue",
        "rights",
        "stored",
        "suspended_from",
        "untold",
    )

    def __init__(
        self,
        stored: StoredSubscription,
        filter_: Filter | None,
        rights: Rights,
        queue: DiskQueue | MemoryQueue,
    ) -> None:
        """Make a subscription; without `filter_` its text is parsed on first use."""
        self.stored = stored
        self._filter = filter_
        self.rights = rights
        """What the credentials that have used it may see together: it is matched by these."""
        self.queue = queue
        self.attachments: tuple[Attachment, ...] = ()
        """Where it is being sent to: at most one connection, or the members of a group."""
        self.dropped = 0
        """How many events it has lost."""
        self.residue = 0
        """How many events that the engine found did not satisfy its filter, since the start."""
        self.untold: dict[str, int] = {}
        """How many of them, by reason, the subscriber does not know of."""
        self.mark = b""
        """A digest of what the engine compiled; empty: nothing."""
        self.is_suspended = False
        """Whether the current policy refuses it: nothing is matched or sent."""
        self.renewals = 0
        """How many requests to renew it are on their way: it does not expire before they end."""
        self.has_ended = False
        """Whether it was deleted, or has expired and was purged."""
        extra = Extra.of(stored)
        self.former = extra.former
        self.is_checked = self._is_approximated()
        """Whether the engine may find too much for one of its filters."""
        self.suspended_from = extra.suspended_from
        """The first event that was not matched, because its filter takes too long; 0: none."""
        queue.is_ending = bool(extra.suspended_from)
        self.arrival = extra.arrival
        self.departure = extra.departure
        self.cut = extra.cut
        """By origin, the last event that its former home has handed over or delivered."""
        self._changing = Lock()

    @property
    def filter(self) -> Filter:
        """Return the subscriber's own filter, without those of its roles."""
        if self._filter is None:
            self._filter = read_filter(self.stored.filter, self.stored.language, NO_LIMITS)
        return self._filter

    def filter_at(self, sequence: int) -> Filter:
        """Return the filter that holds for an event: an earlier one for those before a change."""
        former = self.former_at(sequence) if self.former else None
        return self.filter if former is None else _parsed(former.filter, former.language)

    def _is_approximated(self) -> bool:
        """Return whether some filter is a query, or tests elements; few texts look so."""
        stored = self.stored
        languages = {stored.language, *(one.language for one in self.former)}
        if not languages.isdisjoint(QUERY_LANGUAGES):
            return True
        if "[" in stored.filter and is_approximated(self.filter):
            return True
        return any("[" in one.filter for one in self.former)

    def left_to_check(self, sequence: int) -> tuple[Filter, str] | None:
        """Return the filter and mode that an event must satisfy exactly; None: it does."""
        former = self.former_at(sequence) if self.former else None
        filter_ = self.filter_at(sequence)
        if not is_approximated(filter_):
            return None
        return filter_, self.stored.mode if former is None else former.mode

    def former_at(self, sequence: int) -> FormerFilter | None:
        """Return the earlier filter that holds for an event; None: its present one does."""
        return next((one for one in self.former if sequence < one.below), None)

    @property
    def number(self) -> int:
        """Return its number in the state store and the engine."""
        return self.stored.number

    @property
    def key(self) -> tuple[str, str]:
        """Return the owner and the name, a unique key."""
        return self.stored.owner, self.stored.name

    @property
    def owner(self) -> Principal:
        """Return its owner, with the roles of all credentials that have used it."""
        return owner_of(self.stored)

    @property
    def is_arriving(self) -> bool:
        """Return whether its former home still hands over what waits."""
        return self.arrival is not None and not self.arrival.is_over

    @property
    def is_moving(self) -> bool:
        """Return whether it is on its way here or elsewhere: nothing is matched or sent."""
        return self.departure is not None or self.is_arriving

    def is_due(self, stored: StoredEvent, here: str) -> bool:
        """Return whether it gets an event by matching: its former home has not handed it over."""
        if stored.recipient is not None:
            return False
        if not self.cut:
            return True
        origin = stored.origin
        if origin is None:
            return stored.sequence > self.cut.get(here, 0)
        return origin.sequence > self.cut.get(origin.broker, 0)

    def admits(self, stored: StoredEvent) -> bool:
        """Return whether its rights show an event that the engine found for it."""
        payload = stored.payload
        try:
            filter_ = self.filter_at(stored.sequence)
            return self.rights.admits(payload.source, payload.event, filter_)
        except TamisError:
            # Nobody knows what it would show, and the events behind it must not wait for that.
            LOG.exception("an event cannot be shown", sequence=stored.sequence)
            return False

    def shows_all_to(self, rights: Rights) -> bool:
        """Return whether these rights show all events that are matched for it.

        Otherwise, not even the number of its events may be revealed.
        """
        return not rights.hides_anything or {*self.rights.roles} <= {*rights.roles}

    def has_only_roles_of(self, principal: Principal) -> bool:
        """Return whether a credential has the roles of all credentials that have used it."""
        return {*self.owner.roles} <= {*principal.roles}

    def shows_filter_to(self, principal: Principal, rights: Rights) -> bool:
        """Return whether a credential may read its filter: it may use it, or has all its roles."""
        return (
            not rights.hides_anything
            or self.has_only_roles_of(principal)
            or rights.may_mention(self.filter.attributes())
        )

    def lose(self, events: int, reason: str, told: int = 0) -> None:
        """Count events that were lost; the subscriber knows of some of them."""
        self.dropped += events
        if events > told:
            self.keep_unreported({reason: events - told})

    def keep_unreported(self, losses: Mapping[str, int]) -> None:
        """Keep losses, by reason, that could not be reported to the subscriber."""
        for reason, count in losses.items():
            self.untold[reason] = self.untold.get(reason, 0) + count

    def grant(self, rights: Rights) -> None:
        """Set new rights, which hold for sending at once and for matching later.

        A filter that is not parsed yet would take too long to check here; until the subscription is
        matched by its new rights, nothing is sent.
        """
        self.rights = rights
        self.is_suspended = self._filter is None or not rights.may_mention(
            self._filter.attributes()
        )
        self.queue.forget_readers()

    def change(self, **columns: Any) -> None:
        """Change columns in memory; for any thread."""
        with self._changing:
            self.stored = msgspec.structs.replace(self.stored, **columns)

    def replace_filter(
        self,
        filter_: Filter,
        columns_of: Callable[[StoredSubscription], dict[str, Any]],
        write: Callable[..., object],
    ) -> None:
        """Write the columns that change with another filter, then change them in memory."""
        # A replay writes how far it has come, and must not be set back.
        with self._changing:
            columns = columns_of(self.stored)
            write(self.number, **columns)
            stored = msgspec.structs.replace(self.stored, **columns)
            # Before the filter: whoever looks meanwhile finds the one that was in force.
            self.former = Extra.of(stored).former
            # Before that: what comes of it must be checked from the first event on.
            self.is_checked = self.is_checked or is_approximated(filter_)
            self._filter, self.stored = filter_, stored

    def suspend(self, sequence: int) -> None:
        """Note in memory that it is not matched from an event on."""
        self.change_extra(lambda _: None, suspended_from=sequence)
        self.suspended_from = sequence
        self.queue.is_ending = True
        self.mark = b""

    def change_extra(self, write: Callable[[str], object], **changes: Any) -> None:
        """Write extra fields, then change them in memory; for any thread."""
        with self._changing:
            text = msgspec.structs.replace(Extra.of(self.stored), **changes).text()
            write(text)
            self.stored = msgspec.structs.replace(self.stored, extra=text)

    @property
    def suspension(self) -> str:
        """Return the sentence that its subscriber gets while it is suspended."""
        first = self.suspended_from
        again = "subscribe again to have it matched from there on, or delete it and subscribe"
        if not self.stored.durable:
            again = "subscribe"
        return (
            f"suspended from event {first} on: its filter, with the other filters of its owner, "
            f"takes too long; {again} with a simpler filter and start={first}"
        )

    def view(self, pending: int, dead: int) -> SubscriptionView:
        """Return the view that its owner gets."""
        stored, extra = self.stored, Extra.of(self.stored)
        return SubscriptionView(
            id=stored.name,
            filter=stored.filter,
            language=stored.language,
            mode=stored.mode,
            durable=stored.durable,
            overflow=stored.overflow,
            created_at=stored.created_at,
            connected=bool(self.attachments),
            pending=pending,
            in_flight=len(self.queue.in_flight),
            dropped=self.dropped,
            dead=dead,
            max_attempts=stored.max_attempts,
            start=extra.since or stored.start,
            expires_at=None if isinf(stored.expires_at) else stored.expires_at,
            suspended_from=self.suspended_from,
            filter_from=extra.filter_from,
            residue=self.residue,
            group=extra.group,
            ordering_key=extra.ordering_key,
            members=[one.view() for one in self.attachments] if extra.group else [],
        )


class SubscriptionIndex:
    """All active subscriptions of a broker; the matcher's thread changes it, any may read it."""

    def __init__(self) -> None:
        self.by_number: dict[int, ActiveSubscription] = {}
        self.by_key: dict[tuple[str, str], ActiveSubscription] = {}
        self._owned: dict[str, dict[int, ActiveSubscription]] = {}
        self.owners = 0
        """How many principals have subscriptions."""
        self.routes: dict[int, Route] = {}
        """The filters of neighbouring brokers, by number."""
        self.links: dict[str, LinkSubscription] = {}
        """The links to them, by their ids; they are among the subscriptions, too."""
        self.moved: dict[int, ActiveSubscription] = {}
        """Those that came from another broker, which may have handed over what is matched here."""
        self.departed: dict[tuple[str, str], str] = {}
        """The last ones that have moved away, by owner and name, and to which broker."""
        self.note_change: Callable[[int], object] = lambda _: None
        """Called with the number of each subscription that comes, goes or is matched otherwise."""
        self._changing = Lock()

    def __len__(self) -> int:
        return len(self.by_number)

    def __iter__(self) -> Iterator[ActiveSubscription]:
        with self._changing:
            return iter([*self.by_number.values()])

    def add(self, subscription: ActiveSubscription) -> None:
        """Add a subscription."""
        self.add_all([subscription])

    def add_all(self, subscriptions: Iterable[ActiveSubscription]) -> None:
        """Add subscriptions."""
        with self._changing:
            for subscription in subscriptions:
                stored = subscription.stored
                self.by_number[stored.number] = subscription
                self.by_key[stored.owner, stored.name] = subscription
                self.departed.pop((stored.owner, stored.name), None)
                self._owned.setdefault(stored.owner, {})[stored.number] = subscription
                if subscription.cut:
                    self.moved[stored.number] = subscription
                self.note_change(stored.number)
            self.owners = len(self._owned)

    def remove(self, subscription: ActiveSubscription) -> None:
        """Remove a subscription."""
        with self._changing:
            if self.by_number.pop(subscription.number, None) is None:
                return
            del self.by_key[subscription.key]
            self.moved.pop(subscription.number, None)
            owner = subscription.stored.owner
            del self._owned[owner][subscription.number]
            if not self._owned[owner]:
                del self._owned[owner]
            self.owners = len(self._owned)
            self.note_change(subscription.number)

    def note_departed(self, subscription: ActiveSubscription, target: str) -> None:
        """Remember where a subscription is now, for those who still ask here."""
        with self._changing:
            self.departed[subscription.key] = target
            if len(self.departed) > MAX_DEPARTED:
                del self.departed[next(iter(self.departed))]

    def get(self, number: int) -> ActiveSubscription | None:
        """Return the subscription with a number."""
        return self.by_number.get(number)

    def find(self, owner: str, name: str) -> ActiveSubscription | None:
        """Return the subscription of an owner with a name."""
        return self.by_key.get((owner, name))

    def share_of(self, owner: str) -> float:
        """Return the part of all subscriptions that an owner has."""
        return len(self._owned.get(owner, ())) / max(1, len(self.by_number))

    def owned_by(self, owner: str) -> list[ActiveSubscription]:
        """Return the subscriptions of a principal."""
        with self._changing:
            return [*self._owned.get(owner, {}).values()]

    def count_of(self, owner: str) -> int:
        """Return the number of subscriptions of a principal."""
        return len(self._owned.get(owner, {}))


@lru_cache(maxsize=64)
def _parsed(text: str, language: str) -> Filter:
    """Return an earlier filter, which was within the limits when it was given."""
    return read_filter(text, language, NO_LIMITS)


def owner_of(stored: StoredSubscription) -> Principal:
    """Return the owner, with the roles of all credentials that have used the subscription."""
    return Principal(stored.owner, Extra.of(stored).roles)


def mark_of(stored: StoredSubscription, rights: Rights) -> bytes:
    """Return a digest of everything that a compiled subscription depends on."""
    return data_digest(
        [RIGHTS, stored.filter, stored.language, stored.mode, stored.expires_at, rights.digest]
    )


def data_digest(of: object) -> bytes:
    """Return a digest of plain data."""
    return blake2b(msgspec.msgpack.encode(of), digest_size=16).digest()


def new_name(random: RandomBytes) -> str:
    """Return a random name for a subscription without one."""
    return f"sub-{random(8).hex()}"

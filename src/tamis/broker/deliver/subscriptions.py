"""Active subscriptions, by number and by name."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from math import isinf
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from tamis.access import Principal, Rights
from tamis.broker.deliver.queues import DiskQueue, MemoryQueue
from tamis.filters import Filter
from tamis.languages import parse
from tamis.protocol.views import SubscriptionView
from tamis.storage import StoredSubscription

if TYPE_CHECKING:
    from tamis.broker.deliver.notifier import Attachment


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
    """Properties of a subscription that the state stores beside its columns."""

    roles: tuple[str, ...] = ()
    """The roles of its owner when last seen."""
    replay_from: int = 0
    """The log from here up to the start of the subscription is still to be searched; 0 if not."""
    since: int = 0
    """The first past event that it applies to; 0 if there is none."""

    @classmethod
    def of(cls, stored: StoredSubscription) -> Extra:
        """Return the stored properties."""
        return msgspec.json.decode(stored.extra, type=cls)

    def text(self) -> str:
        """Return the properties in stored form."""
        return msgspec.json.encode(self).decode()


class ActiveSubscription:
    """One subscription, with its delivery queue."""

    # There may be very many.
    __slots__ = (
        "_changing",
        "_filter",
        "attachment",
        "dropped",
        "is_suspended",
        "mark",
        "queue",
        "rights",
        "stored",
    )

    def __init__(
        self,
        stored: StoredSubscription,
        filter_: Filter | None,
        rights: Rights,
        queue: DiskQueue | MemoryQueue,
    ) -> None:
        """Create it from stored data; the filter is parsed when needed unless given."""
        self.stored = stored
        self._filter = filter_
        self.rights = rights
        """What its owner may see."""
        self.queue = queue
        self.attachment: Attachment | None = None
        self.dropped = 0
        """Events dropped since the broker was started."""
        self.mark = b""
        """A digest of its state in the engine; empty if it is not there."""
        self.is_suspended = False
        """Whether the current policy refuses it: nothing is matched or sent."""
        self._changing = Lock()

    @property
    def filter(self) -> Filter:
        """Return the filter of the user."""
        if self._filter is None:
            self._filter = parse(self.stored.filter, self.stored.language)
        return self._filter

    @property
    def number(self) -> int:
        """Return its number inside the broker."""
        return self.stored.number

    @property
    def key(self) -> tuple[str, str]:
        """Return the owner and the name, which identify it."""
        return self.stored.owner, self.stored.name

    @property
    def owner(self) -> Principal:
        """Return the owner, with the roles of its last user."""
        return owner_of(self.stored)

    def grant(self, rights: Rights) -> None:
        """Set what its owner may see from now on; this takes effect on sending before matching.

        Parsing the filters of very many subscriptions would take too long; such a subscription is
        not sent until it is matched by its new rights.
        """
        self.rights = rights
        self.is_suspended = self._filter is None or not rights.may_mention(
            self._filter.attributes()
        )
        self.queue.wake()

    def change(self, **columns: Any) -> None:
        """Replace the stored row; may be called from any thread."""
        with self._changing:
            self.stored = msgspec.structs.replace(self.stored, **columns)

    def change_extra(self, write: Callable[[str], None], **changes: Any) -> None:
        """Replace the stored properties, once they are written; from any thread."""
        with self._changing:
            text = msgspec.structs.replace(Extra.of(self.stored), **changes).text()
            write(text)
            self.stored = msgspec.structs.replace(self.stored, extra=text)

    def view(self, pending: int, dead: int) -> SubscriptionView:
        """Return it as shown to its owner."""
        stored = self.stored
        return SubscriptionView(
            id=stored.name,
            filter=stored.filter,
            language=stored.language,
            mode=stored.mode,
            durable=stored.durable,
            policy=stored.policy,
            created_at=stored.created_at,
            connected=self.attachment is not None,
            pending=pending,
            in_flight=len(self.queue.in_flight),
            dropped=self.dropped,
            dead=dead,
            max_attempts=stored.max_attempts,
            start=Extra.of(stored).since or stored.start,
            expires_at=None if isinf(stored.expires_at) else stored.expires_at,
        )


class SubscriptionIndex:
    """All subscriptions of a broker."""

    def __init__(self) -> None:
        self.by_number: dict[int, ActiveSubscription] = {}
        """Never replaced; read by the thread of the matcher."""
        self.by_key: dict[tuple[str, str], ActiveSubscription] = {}
        self._owned: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.by_number)

    def __iter__(self) -> Iterator[ActiveSubscription]:
        return iter([*self.by_number.values()])

    def add(self, subscription: ActiveSubscription) -> None:
        """Add a subscription."""
        self.by_number[subscription.number] = subscription
        self.by_key[subscription.key] = subscription
        self._owned[subscription.stored.owner] += 1

    def remove(self, subscription: ActiveSubscription) -> None:
        """Remove a subscription."""
        if self.by_number.pop(subscription.number, None) is not None:
            del self.by_key[subscription.key]
            self._owned[subscription.stored.owner] -= 1

    def get(self, number: int) -> ActiveSubscription | None:
        """Return the subscription with a number."""
        return self.by_number.get(number)

    def find(self, owner: str, name: str) -> ActiveSubscription | None:
        """Return the subscription with this owner and name."""
        return self.by_key.get((owner, name))

    def owned_by(self, owner: str) -> list[ActiveSubscription]:
        """Return the subscriptions of a principal."""
        return [one for one in self.by_number.values() if one.stored.owner == owner]

    def count_of(self, owner: str) -> int:
        """Return the number of subscriptions of a principal."""
        return self._owned[owner]


def owner_of(stored: StoredSubscription) -> Principal:
    """Return the owner of a subscription, with the roles of its last user."""
    return Principal(stored.owner, Extra.of(stored).roles)


def mark_of(stored: StoredSubscription, rights: Rights) -> bytes:
    """Return a digest of everything a subscription is compiled from."""
    return digest([stored.filter, stored.language, stored.mode, stored.expires_at, rights.digest])


def digest(of: object) -> bytes:
    """Return a digest of plain data."""
    return blake2b(msgspec.msgpack.encode(of), digest_size=16).digest()


def new_name() -> str:
    """Return a name for a subscription without one."""
    return f"sub-{secrets.token_hex(8)}"

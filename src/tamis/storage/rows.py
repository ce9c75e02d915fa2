"""What the rows of the state say."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

NEVER: Final = math.inf
"""The time of what does not come: when something expires that lasts."""


class StoredSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as it is kept; its number is given when it is added, and to no other."""

    number: int = 0
    owner: str
    name: str
    filter: str
    language: str
    mode: str
    created_at: float
    expires_at: float = NEVER
    start: int
    """Only events of this sequence and later ones are for it."""
    policy: str
    durable: bool
    max_attempts: int
    extra: str = "{}"
    """Whatever else there is to know about it, as JSON."""


class Pending(NamedTuple):
    """An event that waits for a subscriber."""

    sequence: int
    attempts: int
    due: float
    """Not to be sent before; 0 for an event that was never sent."""


class Retry(NamedTuple):
    """An event that is to be sent once more."""

    number: int
    sequence: int
    attempts: int
    due: float


class DeadLetter(NamedTuple):
    """An event that was given up, with all of it: the log may forget it before anyone looks."""

    number: int
    sequence: int
    died_at: float
    attempts: int
    reason: str
    time: float
    publisher: str
    publisher_sequence: int
    format: int
    payload: bytes


class StoredToken(NamedTuple):
    """A token, of which only the hash is known."""

    hash: bytes
    principal: str
    created_at: float
    expires_at: float = NEVER
    revoked_at: float = NEVER
    label: str = ""


class AuditEntry(NamedTuple):
    """An administrative act."""

    number: int
    time: float
    principal: str
    act: str
    detail: str


class DamagedRow(NamedTuple):
    """Something in the state that is not what was written; it is left out."""

    table: str
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.table}{f', {self.key}' if self.key else ''}: {self.reason}"

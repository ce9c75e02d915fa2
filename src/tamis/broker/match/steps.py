"""What the matcher finds in one step, before it is offered and written."""

from __future__ import annotations

from typing import NamedTuple

from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.match.changes import ChangeResult
from tamis.broker.match.deferred import HeldEvent
from tamis.storage import DeferredMatches


class MatchRows(NamedTuple):
    """What the state has to store of some matches, all or nothing."""

    pending: list[tuple[int, int]]
    """Numbers of subscriptions, and sequences."""
    deferred: list[DeferredMatches]
    extras: dict[int, str]
    """Further properties of subscriptions that are suspended, or move here."""
    attempts: dict[int, dict[int, int]]
    """How often events were sent before, by number and sequence."""


class MatcherStep(NamedTuple):
    """What a step of the matcher has done and found."""

    changes: list[ChangeResult]
    matches: dict[ActiveSubscription, list[int]]
    """The sequences of the events that each subscription gets."""
    deferred: list[DeferredMatches]
    """Matches that become pending later."""
    held: dict[tuple[str, int], HeldEvent]
    """Events whose publishers wait for that, by principal and sequence."""
    unwritten: list[MatchRows]
    """What could not be written, or is to be written after it is sent."""
    unmatched: dict[int, str]
    """Sequences of events that cannot be matched, and why."""
    reached: dict[str, tuple[int, int]]
    """How many events of each principal were matched, and how many subscriptions they reached."""
    suspended: list[ActiveSubscription]
    """Subscriptions that could not be matched within the budget."""
    attempts: dict[int, dict[int, int]]
    """Of those that events were handed to: how often each was sent before."""
    costs: dict[str, float]
    """The processor time that principals have to pay for."""
    last: int
    """The sequence of the last event."""


class NotAheadError(Exception):
    """Events cannot be matched before they are stored: subscriptions would change by it."""

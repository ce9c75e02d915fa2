"""What the log must be: every acknowledged publication, once, whole and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from simulation.model import LogEntry, LogModel, PublicationModel, SimulatedEvent
from tamis.broker import Broker
from tamis.broker.operations.health import OUTCOME_UNKNOWN
from tamis.errors import RefusedError
from tamis.protocol import Refused
from tamis.storage import Record

if TYPE_CHECKING:
    from simulation.world import World

PASSING = frozenset(
    {"out_of_order", "too_many", "storage_full", "unavailable", "conflict", "unauthenticated"}
)
"""Refusals that a well-behaved client may meet at any time."""


class LogChecker:
    """Knows what was published, and what of it is stored."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violations: list[str] = []
        self.log = LogModel()
        self.events: dict[int, SimulatedEvent] = {}
        self.publications: dict[int, PublicationModel] = {}
        """The publication of each event, by its id."""

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def fail(self, message: str) -> None:
        """Note a broken promise."""
        self.world.trace("checker", "VIOLATION", message)
        self.violations.append(f"{self.now:.3f} s: {message}")

    def publishing(self, publication: PublicationModel) -> None:
        """Note a publication that is sent for the first time."""
        for event in publication.events:
            self.events[event.id] = event
            self.publications[event.id] = publication

    def _read_new(self, broker: Broker) -> None:
        log = broker.store.log
        while self.log.next < log.next_sequence:
            for record in log.read(self.log.next, 1000):
                self._append(record)

    def _append(self, record: Record) -> None:
        event = self._event_of(record)
        if event is None:
            return
        if event.id in self.log.by_event:
            self.fail(
                f"event {event.id} is stored twice: {self.log.by_event[event.id]} and "
                f"{record.sequence}"
            )
        publication = self.publications[event.id]
        if publication.is_refused:
            self.fail(f"event {event.id} was refused and is stored as {record.sequence}")
        if publication.sequence:
            last = self.log.numbers.get(record.publisher, 0)
            if record.publisher_sequence != last + 1:
                self.fail(
                    f"number {record.publisher_sequence} of {record.publisher} follows {last} in "
                    "the log"
                )
            self.log.numbers[record.publisher] = record.publisher_sequence
        if record.sequence != self.log.next:
            self.fail(f"{record.sequence} follows {self.log.next - 1} in the log")
        self.log.add(LogEntry(record.sequence, event, self.now))

    def _event_of(self, record: Record) -> SimulatedEvent | None:
        document = msgspec.json.decode(record.payload)
        event = self.events.get(document.get("id"))
        if event is None or event.document != document:
            self.fail(f"nobody published {document} of sequence {record.sequence}")
            return None
        return event

    def published(self, publication: PublicationModel, duplicates: int, first: int | None) -> None:
        """Check a receipt that is about to be sent."""
        publication.is_acknowledged = True
        missing = [one.id for one in publication.events if one.id not in self.log.by_event]
        if missing:
            self.fail(f"events {missing} are acknowledged and not in the log")
        elif first is not None:
            place = publication.events[duplicates].id
            if self.log.by_event[place] != first:
                self.fail(f"event {place} is told to be {first}: {self.log.by_event[place]}")

    def event_in(self, text: msgspec.Raw) -> int:
        """Return the id of an event that was published."""
        return int(msgspec.json.decode(bytes(text))["id"])

    def publication_refused(self, publication: PublicationModel, refusal: Refused) -> None:
        """Note that the broker did not store a publication."""
        if refusal.code not in PASSING:
            self.fail(f"a publication is refused: {refusal.code}, {refusal.message}")
        if not publication.sequence and refusal.message != OUTCOME_UNKNOWN:
            publication.is_refused = True
            stored = [one.id for one in publication.events if one.id in self.log.by_event]
            if stored:
                self.fail(f"events {stored} are refused, and stored: {refusal.message}")

    def request_refused(self, publication: PublicationModel, error: RefusedError) -> None:
        """Note that a publication by request was refused."""
        refusal = Refused(code=error.code, message=str(error))
        self.publication_refused(publication, refusal)

    def _check_whole(self) -> None:
        """Check that what was being stored at the end is there as a whole or not at all."""
        seen = {id(one): one for one in self.publications.values()}
        for publication in seen.values():
            stored = [one.id in self.log.by_event for one in publication.events]
            if any(stored) and not all(stored):
                self.fail(f"a part of the publication of {publication.events[0].id} is stored")

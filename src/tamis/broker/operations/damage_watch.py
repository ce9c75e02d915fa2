"""Damage of the files: looked for beside the work, logged, and shown."""

from __future__ import annotations

from typing import Final

from tamis.broker.operations.health import Health
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.metrics import Metrics
from tamis.ports import Clock, Executor
from tamis.storage import Damage, DamagedRow, Storage

LOG: Final = get_logger("tamis.broker")

# Reading this much takes a few hundredths of a core.
VERIFIED_BYTES_PER_SECOND: Final = 4 * 1024 * 1024
# After the whole log has been read, it is read again once this time has passed.
PAUSE_SECONDS: Final = 24 * 3600.0
DAMAGED_LOG: Final = "the log is damaged"
DAMAGED_STATE: Final = "the state is damaged"


class DamageWatch:
    """Verifies the log slice by slice, and reports what is damaged, however it was found."""

    def __init__(
        self, store: Storage, health: Health, metrics: Metrics, clock: Clock, executor: Executor
    ) -> None:
        self._store = store
        self._health = health
        self._clock = clock
        self._executor = executor
        self._position = 0
        self._finished_at: float | None = None
        self._looked_at = clock.monotonic()
        self._places: set[Damage] = set()
        self._rows: set[DamagedRow] = set()
        register, state = store.log.damage, store.state
        metrics.watch("lost_events", "Events lost by damage", lambda: register.lost_events)
        metrics.watch("damaged_places", "Damaged places", lambda: len(register.places))
        metrics.watch("damaged_rows", "Damaged rows of the state", lambda: len(state.damaged))

    async def look(self) -> None:
        """Verify some more of the log, and report what was found since the last time."""
        now = self._clock.monotonic()
        passed, self._looked_at = now - self._looked_at, now
        if self._finished_at is not None and now - self._finished_at >= PAUSE_SECONDS:
            self.begin_again()
        log = self._store.log
        if self._position < log.next_sequence:
            # A pause of the whole process is not made up for.
            size = int(VERIFIED_BYTES_PER_SECOND * min(passed, 1.0)) + 1
            first = max(self._position, log.first_sequence)
            self._position = await self._executor.run(log.verify_some, first, size)
        elif self._finished_at is None:
            self._finished_at = now
        self.report()

    def begin_again(self) -> None:
        """Verify the log from its beginning."""
        self._position, self._finished_at = 0, None

    def report(self) -> None:
        """Log damage that was not logged, and show how much there is."""
        register, rows = self._store.log.damage, self._store.state.damaged
        places = register.places
        for damage in places:
            if damage not in self._places:
                LOG.warning(DAMAGED_LOG, where=str(damage), lost_events=len(damage.lost))
        for row in rows:
            if row not in self._rows:
                LOG.warning(DAMAGED_STATE, where=str(row))
        if len(places) > len(self._places):
            why = f"{register.lost_events:,} events are lost, in {len(places):,} places"
            self._health.warn(DAMAGED_LOG, f"{why}; the first: {places[0]}")
        if len(rows) > len(self._rows):
            self._health.warn(DAMAGED_STATE, f"{len(rows):,} rows; the first: {rows[0]}")
        self._places.update(places)
        self._rows.update(rows)

    def status(self) -> dict[str, int]:
        """Return what is damaged, and how far the log was verified."""
        register, recovery = self._store.log.damage, self._store.recovery
        return {
            "lost_events": register.lost_events,
            "places": len(register.places),
            "rows": len(self._store.state.damaged),
            "lost_changes": recovery.lost_changes,
            "verified_up_to": max(0, self._position - 1),
        }

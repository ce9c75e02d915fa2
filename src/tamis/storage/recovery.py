"""What opening a store found, for programs and for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tamis.storage.records import Damage
from tamis.storage.rows import DamagedRow


class Recovery(NamedTuple):
    """What opening a store found; `str()` of it is sentences for a person."""

    seconds: float
    first_sequence: int
    next_sequence: int
    matched_up_to: int
    cut_bytes: int
    """What was being written when the process ended, and was never acknowledged."""
    damaged: tuple[Damage, ...]
    damaged_rows: tuple[DamagedRow, ...]
    lost_changes: int
    """Changes of the state that were promised to last and are not there."""

    @property
    def is_clean(self) -> bool:
        """Return whether nothing that was acknowledged is damaged or lost."""
        return not (self.damaged or self.damaged_rows or self.lost_changes)

    def __str__(self) -> str:
        return "\n".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        events = self.next_sequence - self.first_sequence
        behind = self.next_sequence - 1 - self.matched_up_to
        yield f"Opened in {self.seconds:.2f} s: {events:,} events, {behind:,} of them to match."
        if self.cut_bytes:
            yield (
                "The last append was cut short by the end of the process: "
                f"{self.cut_bytes:,} bytes that were not acknowledged are gone."
            )
        for damage in self.damaged:
            yield f"Damaged: log, {damage}."
        for row in self.damaged_rows:
            yield f"Damaged: state, {row}."
        if self.lost_changes:
            yield (
                f"Lost: the last {self.lost_changes:,} changes of subscriptions, tokens and audit. "
                "The state is as it was before them; was state.db-wal removed?"
            )

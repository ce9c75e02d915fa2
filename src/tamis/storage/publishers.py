"""What is known of a publisher: the numbers it has used, and checksums of its latest events."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

Gaps = tuple[tuple[int, int], ...]
"""Ranges of numbers, each from the first to the one after the last."""

MAX_GAPS: Final = 100
MAX_CHECKSUMS: Final = 1_000


class PublisherTail(NamedTuple):
    """The numbers of a publisher up to the last one stored."""

    last: int = 0
    """The last number stored; 0 if none is."""
    gaps: Gaps = ()
    """Numbers below it that are not stored, or of which nobody knows any more."""
    time: float = 0.0
    """When the last one was stored."""
    recent: array[int] = array("q")
    """The latest numbers stored, up to the last; after a restart, those in the end of the log."""
    checksums: array[int] = array("I")
    """The CRC-32 of the events with these numbers: of the payload, beginning with the format."""

    def append(self, first: int, checksums: array[int], time: float) -> PublisherTail:
        """Return the tail after more events; numbers before `first` may be left out."""
        gaps = self.gaps
        if first > self.last + 1:
            gaps = _fewer((*gaps, (self.last + 1, first)))
        last = first + len(checksums) - 1
        recent = self.recent + array("q", range(first, last + 1))
        known = self.checksums + checksums
        return PublisherTail(last, gaps, time, recent[-MAX_CHECKSUMS:], known[-MAX_CHECKSUMS:])

    def missing(self, numbers: range) -> int | None:
        """Return the first of some numbers that is in a gap."""
        found = [
            max(start, numbers.start) for start, stop in self.gaps if _meets(numbers, start, stop)
        ]
        return min(found, default=None)

    def differing(self, first: int, checksums: array[int]) -> int | None:
        """Return the first of some numbers whose event is stored with other content."""
        for number, checksum in enumerate(checksums, start=first):
            place = bisect_left(self.recent, number)
            is_known = place < len(self.recent) and self.recent[place] == number
            if is_known and self.checksums[place] != checksum:
                return number
        return None


def _meets(numbers: range, start: int, stop: int) -> bool:
    return numbers.start < stop and start < numbers.stop


def _fewer(gaps: Gaps) -> Gaps:
    """Join the two oldest gaps if there are too many, with what is stored between them.

    A number there is refused when it is sent again, which loses nothing.
    """
    if len(gaps) <= MAX_GAPS:
        return gaps
    (start, _), (_, stop), *rest = gaps
    return ((start, stop), *rest)


def print_gaps(gaps: Gaps) -> str:
    """Return gaps as text.

    >>> print_gaps(((1, 10), (13, 20)))
    '1-9,13-19'
    """
    return ",".join(f"{start}-{stop - 1}" for start, stop in gaps)


def parse_gaps(text: str) -> Gaps:
    """Return gaps from text.

    >>> parse_gaps("1-9,13-19")
    ((1, 10), (13, 20))
    """
    pairs = (part.split("-") for part in text.split(",") if part)
    return tuple((int(first), int(last) + 1) for first, last in pairs)

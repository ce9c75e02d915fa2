"""History: the events in the log that match a filter, page by page, without a subscription."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate, takewhile
from typing import Final, NamedTuple

import msgspec

from tamis.access import JOINED_LIMITS, FilterInMode, Rights
from tamis.broker.deliver.exact_checks import is_satisfied
from tamis.broker.deliver.visibility import visible_data
from tamis.broker.operations.fair_executor import Slices
from tamis.broker.publish.event_cache import EventCache, StoredEvent
from tamis.errors import LimitError, RefusedError
from tamis.events import Schema
from tamis.filters import Filter, Mode
from tamis.matching import Engine
from tamis.protocol import Code, Delivery
from tamis.protocol.views import HistoryView
from tamis.storage import EventLog, Record

# A request searches this many events, however few it finds: if the end of a page depended on their
# size, it would reveal how large the hidden events are.
EVENTS_PER_SEARCH: Final = 1_000
EVENTS_PER_SLICE: Final = 20
# Large events may take patterns long, so there are few of them in a slice.
BYTES_PER_SLICE: Final = 64 * 1024
# A page may exceed this by one event.
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
# The clock of a client that starts now may be ahead.
CLOCK_TOLERANCE_SECONDS: Final = 60.0
MAX_PLAIN_CHARACTERS: Final = 2_000
MAX_PLAIN_BYTES: Final = 8 * 1024
_ID: Final = 1
_NAMED_PLACES: Final = ("latest", "earliest")


class HistoryQuery(NamedTuple):
    """A filter, and the range of the log to search: from `start` up to but without `end`."""

    filter: Filter
    mode: Mode
    start: int
    end: int
    limit: int


class History:
    """Searches the log within the rights of a principal; for any thread."""

    def __init__(
        self, log: EventLog, event_cache: EventCache, schema: Schema | None, mode: Mode
    ) -> None:
        self._log = log
        self._event_cache = event_cache
        self._schema = schema
        self._mode = mode

    def read(self, wanted: HistoryQuery, rights: Rights) -> Slices[HistoryView]:
        """Return a page of events and where the next page starts; at `end` there is none."""
        end = min(wanted.end, self._log.next_sequence)
        start = first = max(wanted.start, self._log.kept_from)
        stop = min(end, start + EVENTS_PER_SEARCH)
        alone = LoneFilter(rights.effective(wanted.filter, wanted.mode), self._schema, self._mode)
        found: list[Delivery] = []
        invalid: list[int] = []
        size = 0
        while start < stop:
            yield
            records = self._log.read(start, min(EVENTS_PER_SLICE, stop - start))
            records = first_slice([one for one in records if one.sequence < stop])
            if not records:
                break
            start = records[-1].sequence + 1
            decoded = self._event_cache.decode_records(records)
            invalid += [record.sequence for record in decoded.invalid]
            for stored in decoded.events:
                yield
                # What was handed over is in the history of its origin.
                if stored.recipient is not None or not alone.matches(stored):
                    continue
                try:
                    if not is_satisfied(wanted.filter, wanted.mode, stored.payload):
                        continue
                except LimitError:
                    # Nobody knows whether it does: evaluating the query takes too long.
                    invalid.append(stored.sequence)
                    continue
                data = visible_data(wanted.filter, rights, stored.payload)
                if data is None:
                    continue
                if len(found) == wanted.limit or size > MAX_PAGE_BYTES:
                    return self._page(found, invalid, range(first, stored.sequence), end)
                found.append(_delivery(stored, data))
                size += len(data)
        return self._page(found, invalid, range(first, stop), end)

    def _page(
        self, found: list[Delivery], invalid: Sequence[int], searched: range, end: int
    ) -> HistoryView:
        first, stop = searched.start, searched.stop
        damaged = self._log.damage.lost_in(first, stop)
        return HistoryView(found, stop, end, damaged, sum(one < stop for one in invalid))


def _delivery(stored: StoredEvent, data: bytes) -> Delivery:
    return Delivery(
        sequence=stored.sequence,
        time=stored.time,
        publisher=stored.publisher,
        data=msgspec.Raw(data),
        format=stored.payload.format,
    )


class LoneFilter:
    """A filter that one event after another is matched against.

    Compiling takes longer than a small filter saves on some thousand small events. A large filter
    on a large event would take seconds otherwise.
    """

    def __init__(self, reading: FilterInMode, schema: Schema | None, mode: Mode) -> None:
        self._engine = Engine(schema, mode, limits=JOINED_LIMITS)
        self._engine.add(_ID, reading.filter, mode=reading.mode)
        self._is_compiled = len(str(reading.filter)) > MAX_PLAIN_CHARACTERS
        if self._is_compiled:
            self._engine.compact()

    def matches(self, stored: StoredEvent) -> bool:
        """Return whether an event satisfies the filter."""
        if not self._is_compiled and len(stored.payload.text) > MAX_PLAIN_BYTES:
            self._engine.compact()
            self._is_compiled = True
        return bool(self._engine.match(stored.payload.event))


def first_slice(records: Sequence[Record]) -> list[Record]:
    """Return the first of some records, as many as may be searched before others have a turn."""
    sizes = accumulate(len(record.payload) for record in records)
    count = sum(1 for _ in takewhile(BYTES_PER_SLICE.__ge__, sizes))
    return [*records[: max(1, count)]]


def sequence_at(log: EventLog, text: int | str) -> int:
    """Return the sequence that `latest`, `earliest`, a sequence or a time stands for."""
    if text == "latest":
        return log.next_sequence
    if text == "earliest":
        return log.kept_from
    if isinstance(text, str):
        return log.sequence_at(_moment(text))
    return max(text, log.kept_from)


def require_past(log: EventLog, start: int | str, now: float) -> None:
    """Refuse a start in the future, for which nothing would wait."""
    if isinstance(start, int):
        if start > log.next_sequence:
            raise _wrong_start(
                f"the start, sequence {start:,}, is in the future: the next event is "
                f"{log.next_sequence:,}"
            )
    elif start not in _NAMED_PLACES and _moment(start) > now + CLOCK_TOLERANCE_SECONDS:
        raise _wrong_start(f"the start, {start:.60}, is in the future by the broker's clock")


def require_start(start: int | str) -> None:
    """Refuse what is neither a sequence, a named place nor a time."""
    if isinstance(start, str) and start not in _NAMED_PLACES:
        _moment(start)


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise RefusedError(
            Code.BAD_REQUEST,
            f"{text!r:.60} is not a start; use 'latest', 'earliest', a sequence, or a time such as "
            "2026-01-31T12:00:00Z",
        ) from None
    if moment.tzinfo is None:
        raise RefusedError(
            Code.BAD_REQUEST,
            f"the time {text:.60} has no time zone; add Z for UTC, or an offset such as +01:00",
        )
    return moment.timestamp()


def _wrong_start(reason: str) -> RefusedError:
    # The request is right, but not yet.
    return RefusedError(Code.CONFLICT, f"{reason}; use 'latest' for new events")

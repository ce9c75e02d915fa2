"""Everything except events, in SQLite.

Subscriptions, tokens and administrative acts are on disk when the call returns. Matches and the
outcomes of deliveries are committed without waiting for the disk: after a power failure the state
is slightly older, and from there the log is matched again and events are delivered again.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tamis.errors import StorageError
from tamis.storage.administration import AdministrationTables
from tamis.storage.state_base import (
    change_rows,
    count_rows,
    delete_rows,
    insert_rows,
)
from tamis.storage.tables import (
    DEAD_LETTERS,
    DEFERRED,
    DROPPED,
    PENDING,
    PUBLISHERS,
    ROUTES,
    SUBSCRIPTIONS,
    Counters,
    DeadLetter,
    DeadLetterUsage,
    DeferredMatches,
    DroppedEvents,
    Pending,
    PublisherTail,
    Retry,
    Row,
    StoredRoute,
    StoredSubscription,
    WrittenMatches,
    parse_gaps,
    print_gaps,
)

_ONE: Final = "number = ? AND sequence = ?"
_DELETE_PENDING: Final = f"DELETE FROM {PENDING.name} WHERE {_ONE}"  # noqa: S608
_ONE_DEFERRED: Final = "owner = ? AND sequence = ? AND part = ?"
_MAY_LACK: Final = (
    "SELECT number FROM subscriptions WHERE owner = ? AND start <= ? AND NOT EXISTS "
    "(SELECT 1 FROM pending WHERE pending.number = subscriptions.number AND sequence = ?)"
)
# Roughly what a dead letter takes beside its payload.
_LETTER_BYTES: Final = 200
_NOTE_ATTEMPT: Final = f"UPDATE {PENDING.name} SET attempts = ?, due = ?, crc = ? WHERE {_ONE}"  # noqa: S608


class StateStore(AdministrationTables):
    """Subscriptions, pending events, dead letters, publishers, tokens, audit log.

    All methods may be called from any thread. One thread writes at a time; readers do not wait for
    it.
    """

    # --- subscriptions -----------------------------------------------------------------------

    def add_subscription(self, subscription: StoredSubscription) -> int:
        """Add a subscription and return its number; its owner has no other of that name."""
        return self.add_subscriptions([subscription])[0]

    def reserve_numbers(self, count: int) -> range:
        """Return numbers for subscriptions to be added later; no other gets one of them."""
        with self._writing:
            first = max(self._counters.last_number, self._last_reserved) + 1
            self._last_reserved = first + count - 1
        return range(first, first + count)

    def add_subscriptions(self, subscriptions: Sequence[StoredSubscription]) -> list[int]:
        """Add all subscriptions or none; return their numbers, as reserved or new."""
        with self._change(lasting=True) as (connection, counters, added, _):
            first = max(counters.last_number, self._last_reserved) + 1
            numbers = [one.number or first + place for place, one in enumerate(subscriptions)]
            self._insert(connection, numbers, subscriptions)
            counters.last_number = max([counters.last_number, *numbers])
            counters.subscriptions += len(numbers)
            added.update(numbers)
        return numbers

    def _insert(
        self,
        connection: sqlite3.Connection,
        numbers: Sequence[int],
        subscriptions: Sequence[StoredSubscription],
    ) -> None:
        before, columns = connection.total_changes, map(msgspec.structs.astuple, subscriptions)
        rows = ((number, *row[1:]) for number, row in zip(numbers, columns, strict=True))
        try:
            connection.executemany(SUBSCRIPTIONS.insert, SUBSCRIPTIONS.rows(rows))
        except sqlite3.IntegrityError:
            known = subscriptions[connection.total_changes - before]
            raise StorageError(
                self._path, f"{known.owner} already has a subscription named {known.name}"
            ) from None

    def remove_subscription(self, number: int) -> bool:
        """Remove a subscription, its pending events and dead letters; False if there is none."""
        return self.remove_subscriptions([number]) == 1

    def remove_subscriptions(self, numbers: Iterable[int]) -> int:
        """Remove subscriptions with everything that belongs to them; return their number."""
        with self._change(lasting=True) as (connection, counters, _, removed):
            removed.update(numbers)
            keys = [(number,) for number in removed]
            gone = {
                table: delete_rows(connection, table, "number = ?", keys)
                for table in (SUBSCRIPTIONS, PENDING, DEAD_LETTERS, DROPPED)
            }
            counters.subscriptions -= gone[SUBSCRIPTIONS]
            counters.pending -= gone[PENDING]
            counters.dead_letters -= gone[DEAD_LETTERS]
            counters.dropped -= gone[DROPPED]
            if counters.routes:
                counters.routes -= delete_rows(connection, ROUTES, "link = ?", keys)
        return gone[SUBSCRIPTIONS]

    def renew_subscription(self, number: int, expires_at: float) -> bool:
        """Set the expiry of a subscription; False if there is none."""
        with self._change(lasting=True) as (connection, *_):
            return self._alter(connection, number, expires_at=expires_at)

    def change_extra(self, number: int, extra: str) -> bool:
        """Set the further properties of a subscription; False if there is none."""
        with self._change(lasting=True) as (connection, *_):
            return self._alter(connection, number, extra=extra)

    def alter_subscription(self, number: int, **columns: Any) -> bool:
        """Set columns of a subscription, all or none; False if there is none."""
        with self._change(lasting=True) as (connection, *_):
            return self._alter(connection, number, **columns)

    def _alter(self, connection: sqlite3.Connection, number: int, **changes: Any) -> bool:
        rows = connection.execute(f"{SUBSCRIPTIONS.select} WHERE number = ?", (number,))
        found = [_subscription(row) for row in self._whole(SUBSCRIPTIONS, rows)]
        for subscription in found:
            altered = msgspec.structs.replace(subscription, **changes)
            row = SUBSCRIPTIONS.row(msgspec.structs.astuple(altered))
            connection.execute(SUBSCRIPTIONS.replace, row)
        return bool(found)

    def subscriptions(self) -> list[StoredSubscription]:
        """Return all subscriptions by number; report and skip damaged ones."""
        rows = self._rows(f"{SUBSCRIPTIONS.select} ORDER BY number")
        return [_subscription(row) for row in self._whole(SUBSCRIPTIONS, rows)]

    # --- the overlay -------------------------------------------------------------------------

    @property
    def broker_id(self) -> str:
        """Return the broker's id; empty if it has none yet."""
        return self._counters.broker_id

    def name_broker(self, broker_id: str) -> None:
        """Give the broker its id, for good."""
        with self._change(lasting=True) as (_, counters, *_):
            counters.broker_id = broker_id

    def routes(self) -> list[StoredRoute]:
        """Return all routes by number; report and skip damaged ones."""
        rows = self._rows(f"{ROUTES.select} ORDER BY number")
        return [StoredRoute(*row[:-1]) for row in self._whole(ROUTES, rows)]

    def change_routes(self, added: Sequence[StoredRoute], removed: Iterable[int]) -> None:
        """Add routes, with numbers that were reserved, and remove others, all or none."""
        with self._change(lasting=True) as (connection, counters, *_):
            gone = delete_rows(connection, ROUTES, "number = ?", [(one,) for one in removed])
            counters.routes += insert_rows(connection, ROUTES, added) - gone
            counters.last_number = max(counters.last_number, *(one.number for one in added), 0)

    @property
    def seen_at(self) -> float:
        """Return when the broker was certainly there; 0: the times of the log tell."""
        return self._counters.seen_at

    def note_seen(self, time: float) -> None:
        """Note when the broker was certainly there, if the times of the log do not tell; else 0."""
        with self._change(lasting=True) as (_, counters, *_):
            counters.seen_at = time

    # --- matching ----------------------------------------------------------------------------

    @property
    def matched_up_to(self) -> int:
        """Return the last sequence whose matches are stored."""
        return self._counters.matched_up_to

    def publishers(self) -> dict[str, PublisherTail]:
        """Return what is known of each publisher, at least as of `matched_up_to`."""
        rows = self._whole(PUBLISHERS, self._rows(PUBLISHERS.select))
        return {
            name: PublisherTail(sequence, parse_gaps(gaps), time)
            for name, sequence, gaps, time, _ in rows
        }

    def commit_matches(
        self,
        matched_up_to: int,
        pending: Iterable[tuple[int, int]],
        publishers: Mapping[str, PublisherTail],
        extras: Mapping[int, str] = MappingProxyType({}),
        deferred: Sequence[DeferredMatches] = (),
        *,
        dropped: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
        attempts: Mapping[int, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        """Store the (number, sequence) pairs found in the log up to a sequence, all or none.

        Pairs of removed subscriptions are dropped. `extras` are further properties, by number, that
        changed with these matches. `deferred` are matches that `write_deferred` makes pending.
        `dropped` counts events that nobody can match, by reason and number. `attempts` says how
        often events were sent before, elsewhere, by number and sequence.
        """
        with self._change(lasting=False) as (connection, counters, *_):
            numbers = self._numbers
            # One event may have very many rows, and they need no conversion.
            new = ((*pair, 0, 0.0) for pair in pending if pair[0] in numbers)
            rows = PENDING.rows(new, are_exact=True)
            counters.pending += max(0, connection.executemany(PENDING.insert_new, rows).rowcount)
            for number, sent in attempts.items():
                again = PENDING.rows((number, sequence, n, 0.0) for sequence, n in sent.items())
                connection.executemany(_NOTE_ATTEMPT, [(*row[2:], *row[:2]) for row in again])
            if deferred:
                # Damage may have left a row of an event to come.
                keys = [one[:3] for one in deferred]
                counters.deferred -= delete_rows(connection, DEFERRED, _ONE_DEFERRED, keys)
                counters.deferred += insert_rows(connection, DEFERRED, deferred)
            tails = PUBLISHERS.rows(
                (name, tail.last, print_gaps(tail.gaps) if tail.gaps else "", tail.time)
                for name, tail in publishers.items()
            )
            connection.executemany(PUBLISHERS.replace, tails)
            for number, extra in extras.items():
                self._alter(connection, number, extra=extra)
            for reason, events in dropped.items():
                self._add_dropped(connection, counters, reason, events)
            counters.matched_up_to = max(counters.matched_up_to, matched_up_to)

    def deferred(self) -> list[DeferredMatches]:
        """Return the deferred matches in order; report and skip damaged ones."""
        rows = self._rows(f"{DEFERRED.select} ORDER BY sequence, owner, part")
        return [DeferredMatches(*row[:-1]) for row in self._whole(DEFERRED, rows)]

    def deferred_owners(self) -> list[str]:
        """Return the owners of all deferred matches, damaged or not."""
        return [owner for (owner,) in self._rows("SELECT DISTINCT owner FROM deferred")]

    def write_deferred(self, owner: str, up_to: int, most: int) -> WrittenMatches:
        """Make the first deferred matches of an owner pending: at least one row, if there is one.

        Those are its matches up to a sequence, about this many. Damaged ones count as dropped.
        """
        rows: list[Row] = []
        damaged: list[Row] = []
        pairs: list[tuple[int, int]] = []
        with self._change(lasting=False) as (connection, counters, *_):
            stored = connection.execute(
                f"{DEFERRED.select} WHERE owner = ? AND sequence <= ? ORDER BY sequence, part",
                (owner, up_to),
            )
            for row in stored:
                if not self._whole(DEFERRED, [row]):
                    damaged.append(row)
                    continue
                matches = DeferredMatches(*row[:-1])
                rows.append(row[:3])
                pairs += [(number, matches.sequence) for number in matches.subscriptions()]
                if len(pairs) >= most:
                    break
            stored.close()
            counters.deferred -= delete_rows(connection, DEFERRED, _ONE_DEFERRED, rows)
            there = [(*pair, 0, 0.0) for pair in pairs if pair[0] in self._numbers]
            new = PENDING.rows(there, are_exact=True)
            counters.pending += change_rows(connection, PENDING.insert_new, new)
            return WrittenMatches(pairs, self._drop_deferred(connection, counters, damaged))

    def _drop_deferred(
        self, connection: sqlite3.Connection, counters: Counters, damaged: Sequence[Row]
    ) -> dict[int, int]:
        lost: Counter[int] = Counter()
        for row in damaged:
            gone = delete_rows(connection, DEFERRED, _ONE_DEFERRED, [row[:3]])
            counters.deferred -= gone
            # What stays must not be counted again and again.
            if gone:
                lost.update(self._concerned(connection, row))
        self._add_dropped(connection, counters, "damage", lost)
        return lost

    def _concerned(self, connection: sqlite3.Connection, row: Row) -> set[int]:
        """Return the subscriptions that a row with deferred matches is for.

        If it is damaged, these are all of its owner that may have got the event, except those of
        which it is known that they have it. The index has its key, too, which is therefore right.
        """
        matches = DeferredMatches(*row[:-1])
        if self._whole(DEFERRED, [row]):
            return self._numbers.intersection(matches.subscriptions())
        key = (matches.owner, matches.sequence)
        found = {number for (number,) in connection.execute(_MAY_LACK, (*key, matches.sequence))}
        others = f"{DEFERRED.select} WHERE owner = ? AND sequence = ?"
        for other in self._whole(DEFERRED, connection.execute(others, key)):
            found.difference_update(DeferredMatches(*other[:-1]).subscriptions())
        return found

    def forget_publishers(self, idle: Mapping[str, float]) -> None:
        """Forget names, unless something was published under one after the time given."""
        with self._change(lasting=False) as (connection, *_):
            connection.executemany(
                "DELETE FROM publishers WHERE name = ? AND time <= ?", idle.items()
            )

    def commit_replay(
        self, number: int, sequences: Iterable[int], lost: Mapping[str, int], extra: str
    ) -> None:
        """Store past events of one subscription, with the position the search has reached.

        Events that could not be matched are counted as dropped, by reason.
        """
        # Others wait while the state changes, so checksums are computed before.
        rows = [*PENDING.rows((number, sequence, 0, 0.0) for sequence in sequences)]
        with self._change(lasting=False) as (connection, counters, *_):
            if self._alter(connection, number, extra=extra):
                counters.pending += change_rows(connection, PENDING.insert_new, rows)
                for reason, count in lost.items():
                    self._add_dropped(connection, counters, reason, {number: count})

    # --- delivery ----------------------------------------------------------------------------

    def pending(self, number: int, after_sequence: int, now: float, limit: int) -> list[Pending]:
        """Return the events due for a subscription, in order, after a sequence."""
        rows = self._rows(
            f"{PENDING.select} WHERE number = ? AND sequence > ? AND due <= ? "
            "ORDER BY sequence LIMIT ?",
            (number, after_sequence, now, limit),
        )
        return [Pending(*row[1:-1]) for row in self._whole(PENDING, rows)]

    def pending_among(
        self,
        number: int,
        sequences: Sequence[int],
        up_to: int,
        *,
        after: int,
        limit: int,
        received: bool = False,
    ) -> list[int]:
        """Return pending events of a subscription, in order: those listed, and all up to one.

        With `received`, only those that were sent, and nobody has rejected.
        """
        found = self._rows(
            "SELECT sequence FROM pending WHERE number = ? AND sequence > ? AND (sequence <= ? "
            "OR sequence IN (SELECT value FROM json_each(?))) "
            "AND (attempts > 0 AND due = 0 OR NOT ?) ORDER BY sequence LIMIT ?",
            (number, after, up_to, msgspec.json.encode(sequences).decode(), received, limit),
        )
        return [sequence for (sequence,) in found]

    def oldest_event(self, number: int) -> int | None:
        """Return the first event that a subscription has pending, or as a dead letter."""
        [(pending,)] = self._rows("SELECT min(sequence) FROM pending WHERE number = ?", (number,))
        [(dead,)] = self._rows("SELECT min(sequence) FROM dead_letters WHERE number = ?", (number,))
        return min((one for one in (pending, dead) if one is not None), default=None)

    def pending_count(self, number: int) -> int:
        """Return the number of pending events of a subscription."""
        with self._database.reading() as connection:
            return count_rows(connection, PENDING, "number = ?", number)

    def settle(
        self,
        *,
        acknowledged: Iterable[tuple[int, int]] = (),
        retries: Iterable[Retry] = (),
        dead: Iterable[DeadLetter] = (),
        lost: Iterable[tuple[int, int, str]] = (),
    ) -> list[DroppedEvents]:
        """Write the outcomes of deliveries, all or nothing; pairs are (number, sequence).

        A retry that is due at 0 was sent, and has no outcome yet. Events that are `lost` for a
        reason are dropped; return how many each subscription lost by this. Outcomes for
        subscriptions that no longer exist are ignored.
        """
        with self._change(lasting=False) as (connection, counters, *_):
            settled = connection.executemany(_DELETE_PENDING, acknowledged).rowcount
            counters.pending -= max(0, settled)
            if dead:
                self._write_dead_letters(connection, counters, dead)
            # What retention has dropped meanwhile stays away.
            rows = PENDING.rows(retries)
            connection.executemany(_NOTE_ATTEMPT, [(*row[2:], *row[:2]) for row in rows])
            return self._lose(connection, counters, lost) if lost else []

    def _lose(
        self,
        connection: sqlite3.Connection,
        counters: Counters,
        lost: Iterable[tuple[int, int, str]],
    ) -> list[DroppedEvents]:
        gone = Counter(
            (number, reason)
            for number, sequence, reason in lost
            if connection.execute(_DELETE_PENDING, (number, sequence)).rowcount > 0
        )
        counters.pending -= gone.total()
        for (number, reason), count in gone.items():
            self._add_dropped(connection, counters, reason, {number: count})
        return [DroppedEvents(*key, count) for key, count in gone.items()]

    def _write_dead_letters(
        self, connection: sqlite3.Connection, counters: Counters, dead: Iterable[DeadLetter]
    ) -> None:
        rows = {row[:2]: row for row in dead if row.number in self._numbers}
        counters.pending -= change_rows(connection, _DELETE_PENDING, rows)
        counters.dead_letters -= delete_rows(connection, DEAD_LETTERS, _ONE, rows)
        counters.dead_letters += insert_rows(connection, DEAD_LETTERS, rows.values())

    # --- dropped events ----------------------------------------------------------------------

    def drop_pending_below(self, sequence: int) -> dict[int, int]:
        """Drop pending events that the log no longer has; return counts by number."""
        return self.drop_pending(range(sequence), "retention")

    def drop_pending(self, sequences: range, reason: str) -> dict[int, int]:
        """Drop pending events of a range of sequences, and count them as dropped for a reason.

        Return counts by number.
        """
        between = "sequence >= ? AND sequence < ?"
        bounds = (sequences.start, sequences.stop)
        with self._change(lasting=False) as (connection, counters, *_):
            found = connection.execute(
                f"SELECT number, count(*) FROM pending WHERE {between} GROUP BY number",  # noqa: S608
                bounds,
            )
            dropped = Counter(dict(found.fetchall()))
            counters.pending -= delete_rows(connection, PENDING, between, [bounds])
            if counters.deferred:
                rows = connection.execute(f"{DEFERRED.select} WHERE {between}", bounds)
                for row in rows.fetchall():
                    dropped.update(self._concerned(connection, row))
                counters.deferred -= delete_rows(connection, DEFERRED, between, [bounds])
            self._add_dropped(connection, counters, reason, dropped)
        return dropped

    def add_dropped(self, reason: str, events: Mapping[int, int]) -> None:
        """Count events that subscriptions, by number, will not get."""
        with self._change(lasting=False) as (connection, counters, *_):
            self._add_dropped(connection, counters, reason, events)

    def dropped(self) -> list[DroppedEvents]:
        """Return what each subscription did not get, and of how much of that it knows."""
        return [
            DroppedEvents(*row[:-1]) for row in self._whole(DROPPED, self._rows(DROPPED.select))
        ]

    def note_reported(self, told: Iterable[DroppedEvents]) -> None:
        """Note that subscribers know of dropped events: of `told` more for each reason."""
        with self._change(lasting=False) as (connection, *_):
            for row in told:
                known = self._dropped(connection, row.number, row.reason)
                if known is not None:
                    changed = known._replace(told=min(known.events, known.told + row.told))
                    connection.execute(DROPPED.replace, DROPPED.row(changed))

    def _add_dropped(
        self,
        connection: sqlite3.Connection,
        counters: Counters,
        reason: str,
        events: Mapping[int, int],
    ) -> None:
        for number, count in events.items():
            if number not in self._numbers:
                continue
            before = self._dropped(connection, number, reason) or DroppedEvents(number, reason, 0)
            row = before._replace(events=before.events + count)
            key = "number = ? AND reason = ?"
            counters.dropped -= delete_rows(connection, DROPPED, key, [(number, reason)])
            counters.dropped += insert_rows(connection, DROPPED, [row])

    def _dropped(
        self, connection: sqlite3.Connection, number: int, reason: str
    ) -> DroppedEvents | None:
        one = f"{DROPPED.select} WHERE number = ? AND reason = ?"
        rows = self._whole(DROPPED, connection.execute(one, (number, reason)).fetchall())
        return DroppedEvents(*rows[0][:-1]) if rows else None

    # --- dead letters ------------------------------------------------------------------------

    def dead_letters(self, number: int, after_sequence: int, limit: int) -> list[DeadLetter]:
        """Return the dead letters of a subscription, in order, after a sequence."""
        rows = self._rows(
            f"{DEAD_LETTERS.select} WHERE number = ? AND sequence > ? ORDER BY sequence LIMIT ?",
            (number, after_sequence, limit),
        )
        return [DeadLetter(*row[:-1]) for row in self._whole(DEAD_LETTERS, rows)]

    def dead_letter_count(self, number: int) -> int:
        """Return the number of dead letters of a subscription."""
        with self._database.reading() as connection:
            return count_rows(connection, DEAD_LETTERS, "number = ?", number)

    def dead_letter_usage(self, number: int | None = None) -> list[DeadLetterUsage]:
        """Return how many dead letters subscriptions have, and of what size; or those of one."""
        one = "" if number is None else "WHERE number = ?"
        question = (
            f"SELECT number, count(*), sum(length(payload) + {_LETTER_BYTES}) FROM dead_letters "  # noqa: S608
            f"{one} GROUP BY number"
        )
        found = self._rows(question, () if number is None else (number,))
        return [DeadLetterUsage(*row) for row in found]

    def drop_dead_letters(self, number: int, reason: str, *, letters: int, bytes_: int) -> int:
        """Drop a subscription's oldest dead letters: at least this many, of at least this size.

        They count as dropped events. Return how many they are.
        """
        oldest = (
            f"SELECT sequence, length(payload) + {_LETTER_BYTES} FROM dead_letters "  # noqa: S608
            "WHERE number = ? ORDER BY died_at, sequence"
        )
        with self._change(lasting=False) as (connection, counters, *_):
            keys: list[tuple[int, int]] = []
            size = 0
            for sequence, length in connection.execute(oldest, (number,)).fetchall():
                if len(keys) >= letters and size >= bytes_:
                    break
                keys.append((number, sequence))
                size += length
            counters.dead_letters -= delete_rows(connection, DEAD_LETTERS, _ONE, keys)
            if keys:
                self._add_dropped(connection, counters, reason, {number: len(keys)})
        return len(keys)

    def delete_dead_letters(self, number: int, sequences: Iterable[int]) -> int:
        """Delete dead letters of a subscription; return how many."""
        keys = [(number, sequence) for sequence in sequences]
        with self._change(lasting=True) as (connection, counters, *_):
            gone = delete_rows(connection, DEAD_LETTERS, _ONE, keys)
            counters.dead_letters -= gone
        return gone

    def requeue(self, number: int, sequences: Iterable[int], *, oldest: int) -> list[int]:
        """Make dead letters pending again, as if they had never been sent; return which.

        Those below `oldest`, the first sequence that the log still has, stay.
        """
        one = f"{DEAD_LETTERS.select} WHERE {_ONE}"
        with self._change(lasting=True) as (connection, counters, *_):
            keys = ((number, sequence) for sequence in sequences if sequence >= oldest)
            rows = (row for key in keys for row in connection.execute(one, key).fetchall())
            found = [row[:2] for row in self._whole(DEAD_LETTERS, rows)]
            counters.dead_letters -= delete_rows(connection, DEAD_LETTERS, _ONE, found)
            gone = delete_rows(connection, PENDING, _ONE, found)
            again = insert_rows(connection, PENDING, ((*pair, 0, 0.0) for pair in found))
            counters.pending += again - gone
        return [sequence for _, sequence in found]


def _subscription(row: Row) -> StoredSubscription:
    fields = dict(zip(SUBSCRIPTIONS.columns, row, strict=False))
    return StoredSubscription(**fields | {"durable": bool(fields["durable"])})

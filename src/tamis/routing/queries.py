"""The query router: queries go where data was advertised, and answers come back the same way.

Each broker of an acyclic overlay has one. It knows no clock, no network and no thread: a method
tells it what has happened, and returns what is to be done. A query is asked of the sources here and
of the peers behind which there is data that it may concern, never of others. Whoever asks gives
credit for rows, so that a slow reader holds up nobody but its own sources. A query ends when all
have answered, when it has rows enough, when its time is over, or when nobody waits for it any more;
whatever the end, everyone who still works on it is told.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec

from tamis.errors import TamisError
from tamis.filters import Filter, FilterLimits
from tamis.filters.structure import from_structure, to_structure
from tamis.routing.aggregates import Aggregate
from tamis.routing.data_advertisements import DataAdvertisement, DataAdvertisements
from tamis.routing.query_messages import (
    MAX_ROWS_PER_MESSAGE,
    MAX_SENTENCE_CHARACTERS,
    AskSource,
    CreditSource,
    DataAdvertised,
    DataHeld,
    DataWithdrawn,
    DeliverRows,
    FinishQuery,
    QueryAsked,
    QueryCancelled,
    QueryCredit,
    QueryDone,
    QueryInstruction,
    QueryMessage,
    QueryRows,
    RefusePeer,
    RowSight,
    SendToPeer,
    StopSource,
)
from tamis.routing.running_query import (
    ANY_PEER,
    LinkCounts,
    PeerTerms,
    QueryBounds,
    QueryTarget,
    RunningQuery,
    objects_of,
    row_identity,
)

BATCH_BYTES: Final = 64 * 1024
"""About as much is passed on at once."""
FINISHED_QUERY_SECONDS: Final = 10.0
"""How long rows wait for a slow reader, at the least, after the last source has answered."""
HOP_SHARE: Final = 0.1
MAX_HOP_SECONDS: Final = 0.5
"""What a broker keeps of the time for itself, so that a late answer below it is not one above."""

LATE: Final = "it did not answer in time"
LOST: Final = "the link to it was lost"
DOWN: Final = "there is no connection to it"
TOO_MANY_QUERIES: Final = "it has too many queries to answer"
ABOUT_HIDDEN: Final = "the role of the link hides attributes that the query mentions"
GONE: Final = "it went away"
GREEDY: Final = "it sent more than it was allowed to"


class QueryRouter:
    """Routes the queries of one broker; see the module."""

    def __init__(
        self,
        name: str,
        bounds: QueryBounds | None = None,
        advertisements: DataAdvertisements | None = None,
    ) -> None:
        self._name = name
        self._bounds = bounds or QueryBounds()
        self._filter_limits = FilterLimits()
        self._now = 0.0
        self._last_number = 0
        self.advertisements: Final = advertisements or DataAdvertisements()
        self._source_names: dict[int, str] = {}
        self._peers: dict[str, PeerTerms] = {}
        """The peers that are connected."""
        self._titles: dict[str, str] = {}
        """What peers are called, connected or not."""
        self._queries: dict[int, RunningQuery] = {}
        self._asked: dict[tuple[str, int], int] = {}
        """Our numbers of the queries that peers ask, by peer and its number."""
        self._counts: dict[str, LinkCounts] = {}
        self._todo: list[QueryInstruction] = []

    # --- properties ------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Return whether there is neither data nor a query: nothing to remember."""
        return not self._queries and not self._asked and self.advertisements.is_empty

    @property
    def next_deadline(self) -> float | None:
        """Return when `time_passed` is to be called at the latest, None if it need not be."""
        return min((query.deadline for query in self._queries.values()), default=None)

    def counts(self, peer: str) -> LinkCounts:
        """Return what has passed a link."""
        return self._counts.get(peer, LinkCounts())

    # --- time and links --------------------------------------------------------------------------

    def time_passed(self, now: float) -> list[QueryInstruction]:
        """Note the time, in seconds since any moment, and end queries that are late."""
        self._now = now
        for query in [*self._queries.values()]:
            if query.deadline > now:
                continue
            if query.is_closing:
                # Whoever reads it was given time enough.
                query.cut = True
                query.waiting.clear()
            else:
                for target in query.windows:
                    query.note_missing(self._name_of(target), LATE)
                self._close(query)
            self._pass_on(query)
        return self._done()

    def link_opened(self, peer: str, terms: PeerTerms = ANY_PEER) -> list[QueryInstruction]:
        """Begin to talk with a peer."""
        self._lose(peer, LOST)
        self._peers[peer] = terms
        self._titles[peer] = terms.title or peer
        self._send(peer, DataHeld(digests=self.advertisements.received_from(peer)))
        return self._done()

    def link_closed(self, peer: str) -> list[QueryInstruction]:
        """Note that a peer cannot be reached; what it has advertised is still there."""
        self._lose(peer, LOST)
        return self._done()

    def link_removed(self, peer: str) -> list[QueryInstruction]:
        """Forget a peer and all that is behind it."""
        self._lose(peer, LOST)
        self.advertisements.forget(peer)
        self._counts.pop(peer, None)
        self._titles.pop(peer, None)
        self._advertise()
        return self._done()

    def _lose(self, peer: str, reason: str) -> None:
        self._peers.pop(peer, None)
        self.advertisements.close(peer)
        for key in [key for key in self._asked if key[0] == peer]:
            self._drop(self._queries[self._asked[key]])
        self._miss(QueryTarget(peer=peer), reason)

    # --- sources ---------------------------------------------------------------------------------

    def source_added(
        self, source: int, name: str, advertisement: DataAdvertisement
    ) -> list[QueryInstruction]:
        """Advertise the data of a source here, in place of what it advertised before."""
        self._source_names[source] = name
        self.advertisements.put(source, advertisement)
        self._advertise()
        return self._done()

    def source_removed(self, source: int) -> list[QueryInstruction]:
        """Forget a source."""
        self._miss(QueryTarget(source=source), GONE)
        self._source_names.pop(source, None)
        self.advertisements.remove(source)
        self._advertise()
        return self._done()

    def source_rows(
        self, source: int, query: int, rows: list[bytes], *, skipped: int = 0
    ) -> list[QueryInstruction]:
        """Take rows of a source, which all match the query; `skipped` bytes of others did not."""
        found = self._queries.get(query)
        if found is not None:
            self._take(found, QueryTarget(source=source), rows, skipped)
        return self._done()

    def source_finished(self, source: int, query: int, problem: str = "") -> list[QueryInstruction]:
        """Note that a source has no more rows, or why it cannot go on."""
        found, target = self._queries.get(query), QueryTarget(source=source)
        if found is not None and target in found.windows:
            if problem:
                found.note_missing(self._name_of(target), problem)
            else:
                found.note_answered(self._name_of(target))
            self._finish_target(found, target)
        return self._done()

    # --- queries of this broker ------------------------------------------------------------------

    def ask(
        self,
        filter_: Filter,
        *,
        seconds: float,
        credit: int,
        limit: int | None = None,
        aggregate: Aggregate | None = None,
        sight: RowSight | None = None,
    ) -> tuple[int, list[QueryInstruction]]:
        """Begin a query for somebody here; return its number, and what is to be done."""
        query = self._begin(
            filter_,
            aggregate=aggregate,
            limit=limit,
            seconds=seconds,
            sight=sight,
            credit=credit,
            asker=None,
        )
        return query.number, self._done()

    def credit(self, query: int, bytes_: int) -> list[QueryInstruction]:
        """Grant whoever asked here so many more bytes of rows."""
        found = self._queries.get(query)
        if found is not None and found.asker is None:
            found.credit += bytes_
            self._pass_on(found)
        return self._done()

    def cancel(self, query: int) -> list[QueryInstruction]:
        """End a query that nobody here waits for any longer."""
        found = self._queries.get(query)
        if found is not None and found.asker is None:
            self._drop(found)
        return self._done()

    # --- messages --------------------------------------------------------------------------------

    def filter_to_check(self, peer: str, number: int) -> Filter | None:
        """Return what the rows of a peer must match; None: whoever asked for them checks that."""
        query = self._answering(peer, number)
        is_passed_on = query is not None and query.asker is not None and query.state is None
        return None if query is None or is_passed_on else query.filter

    def receive(
        self, peer: str, message: QueryMessage, *, skipped: int = 0, problem: str = ""
    ) -> list[QueryInstruction]:
        """Take a message of a connected peer.

        Of its rows, `skipped` bytes were left out because they do not match; after a `problem` with
        them it is asked no more.
        """
        if peer not in self._peers:
            return []
        try:
            if isinstance(message, QueryRows):
                self._take_from_peer(peer, message, skipped, problem)
            else:
                self._receive(peer, message)
        except (TamisError, ValueError, msgspec.MsgspecError) as error:
            kind = type(message).__name__
            self._todo.append(RefusePeer(peer, f"its message {kind} is not valid: {error}"))
        return self._done()

    def relate(self, message: DataAdvertised | QueryAsked) -> Generator[None, None, None]:
        """Compare the filter of a message, in any thread, with what is known."""
        yield
        try:
            filter_ = from_structure(message.filter, self._filter_limits)
        except (TamisError, ValueError, msgspec.MsgspecError):
            # It is refused when it is received.
            return
        if isinstance(message, QueryAsked):
            yield from self.advertisements.relate(filter_)
        else:
            new = DataAdvertisement.of(filter_, many=message.many)
            yield from self.advertisements.compare(new)

    def _receive(self, peer: str, message: QueryMessage) -> None:
        match message:
            case DataHeld(digests=digests):
                self.advertisements.open(peer, digests, self._peers[peer].without_hidden)
                self._advertise()
            case DataAdvertised():
                self._note_advertised(peer, message)
            case DataWithdrawn(digest=digest):
                self.advertisements.withdraw(peer, digest)
                self._advertise()
            case QueryAsked():
                self._begin_for_peer(peer, message)
            case QueryCredit(query=number, bytes=size):
                query = self._asked_by(peer, number)
                if query is not None:
                    query.credit += size
                    self._pass_on(query)
            case QueryDone():
                self._finish_peer(peer, message)
            case QueryCancelled(query=number):
                query = self._asked_by(peer, number)
                if query is not None:
                    self._drop(query)

    def _note_advertised(self, peer: str, message: DataAdvertised) -> None:
        filter_ = from_structure(message.filter, self._filter_limits)
        advertisement = DataAdvertisement.of(filter_, many=message.many)
        if advertisement.digest != message.digest:
            raise ValueError(f"{message.digest!r:.80} is not the digest of the filter")
        held = self.advertisements.received_from(peer)
        if len(held) >= self._bounds.advertisements_per_peer and message.digest not in held:
            raise ValueError(f"it advertises more than {len(held):,} kinds of data")
        self.advertisements.receive(peer, advertisement)
        self._advertise()

    def _begin_for_peer(self, peer: str, message: QueryAsked) -> None:
        key = peer, message.query
        if key in self._asked:
            raise ValueError(f"query {message.query} was asked before")
        if not 0 <= message.seconds < float("inf"):
            raise ValueError(f"{message.seconds} is not a time to wait")
        if sum(asker == peer for asker, _ in self._asked) >= self._bounds.queries_per_peer:
            self._refuse(peer, message, TOO_MANY_QUERIES)
            return
        filter_ = from_structure(message.filter, self._filter_limits)
        aggregate = None if message.aggregate is None else message.aggregate.check()
        sight, may_ask = self._peers[peer].sight, self._peers[peer].may_ask
        if not may_ask(filter_):
            self._refuse(peer, message, ABOUT_HIDDEN)
            return
        self._begin(
            filter_,
            aggregate=aggregate,
            limit=message.limit,
            seconds=message.seconds,
            sight=None if sight is None else sight(filter_),
            credit=message.credit,
            asker=key,
        )

    def _refuse(self, peer: str, asked: QueryAsked, reason: str) -> None:
        self._send(peer, QueryDone(query=asked.query, missing={self._name: reason}))

    def _take_from_peer(self, peer: str, answer: QueryRows, skipped: int, problem: str) -> None:
        query, target = self._answering(peer, answer.query), QueryTarget(peer=peer)
        if query is None:
            return
        rows, most = objects_of(answer.rows), self._bounds.largest_row
        self._count(peer, rows_passed=len(rows))
        largest = max(map(len, rows), default=0)
        if largest > most:
            # Whoever asked us may not take it, and would take us for the one at fault.
            by = self._name or "a broker"
            rows, problem = [], f"it sent a row of {largest:,} bytes; {by} takes {most:,}"
        self._take(query, target, rows, skipped)
        if problem and target in query.windows:
            self._stop(query, target)
            query.note_missing(self._name_of(target), problem[:MAX_SENTENCE_CHARACTERS])
            self._finish_target(query, target)

    def _finish_peer(self, peer: str, message: QueryDone) -> None:
        query, target = self._answering(peer, message.query), QueryTarget(peer=peer)
        if query is None:
            return
        for name in message.answered:
            query.note_answered(name)
        for name, reason in message.missing.items():
            query.note_missing(name, reason)
        query.note_unnamed(message.unnamed)
        query.cut |= message.cut
        if message.state is not None and query.state is not None:
            query.state.merge(message.state)
        self._finish_target(query, target)

    def _answering(self, peer: str, number: int) -> RunningQuery | None:
        """Return a query of ours that a peer still answers; it may have ended meanwhile."""
        query = self._queries.get(number)
        return query if query is not None and QueryTarget(peer=peer) in query.windows else None

    def _asked_by(self, peer: str, number: int) -> RunningQuery | None:
        ours = self._asked.get((peer, number))
        return None if ours is None else self._queries[ours]

    # --- a query from its beginning to its end ---------------------------------------------------

    def _begin(
        self,
        filter_: Filter,
        *,
        aggregate: Aggregate | None,
        limit: int | None,
        seconds: float,
        sight: RowSight | None,
        credit: int,
        asker: tuple[str, int] | None,
    ) -> RunningQuery:
        self._last_number += 1
        deadline = self._now + min(seconds, self._bounds.most_seconds)
        is_distinct = aggregate is not None and aggregate.is_streamed
        most = self._bounds.most_distinct if is_distinct else self._bounds.most_rows
        query = RunningQuery(
            number=self._last_number,
            filter_=filter_,
            aggregate=aggregate,
            limit=most if limit is None else min(limit, most),
            deadline=deadline,
            sight=sight,
            credit=credit,
            asker=asker,
        )
        if is_distinct:
            query.seen = set()
        elif aggregate is not None:
            query.state = aggregate.state()
        self._queries[query.number] = query
        if asker is not None:
            self._asked[asker] = query.number
        self._ask_targets(query, limit)
        self._pass_on(query)
        return query

    def _ask_targets(self, query: RunningQuery, limit: int | None) -> None:
        sources = self.advertisements.sources_for(query.filter)
        from_peer = None if query.asker is None else query.asker[0]
        concerned = [p for p in self.advertisements.peers_for(query.filter) if p != from_peer]
        for peer in self._peers:
            if peer != from_peer and peer not in concerned:
                self._count(peer, queries_pruned=1)
        peers = [peer for peer in concerned if peer in self._peers]
        for peer in concerned:
            if peer not in self._peers:
                query.note_missing(self._titles.get(peer, peer), DOWN)
        shared = self._bounds.window // max(1, len(sources) + len(peers))
        query.window = max(self._bounds.least_window, shared)
        for source in sources:
            query.windows[QueryTarget(source=source)] = query.window
            self._todo.append(AskSource(source, query.number, query.filter, query.window))
        for peer in peers:
            query.windows[QueryTarget(peer=peer)] = query.window
            self._ask_peer(query, peer, limit)

    def _ask_peer(self, query: RunningQuery, peer: str, limit: int | None) -> None:
        # Whoever may not see every row must have them all here: what it may not see does not count.
        is_whole = query.sight is None
        left = query.deadline - self._now
        self._count(peer, queries_passed=1)
        self._send(
            peer,
            QueryAsked(
                query=query.number,
                filter=to_structure(query.filter),
                seconds=left - min(MAX_HOP_SECONDS, left * HOP_SHARE),
                credit=query.window,
                limit=limit if is_whole and query.state is None else None,
                aggregate=query.aggregate if is_whole else None,
            ),
        )

    def _take(
        self, query: RunningQuery, target: QueryTarget, rows: list[bytes], skipped: int = 0
    ) -> None:
        """Take rows of a source or peer."""
        if target not in query.windows or query.is_closing:
            return
        query.windows[target] -= sum(map(len, rows)) + skipped
        query.owed[target] = query.owed.get(target, 0) + skipped
        if query.windows[target] < -self._bounds.overdraft:
            self._stop(query, target)
            query.note_missing(self._name_of(target), GREEDY)
            self._finish_target(query, target)
            return
        for row in rows:
            self._accept(query, target, row)
            if query.accepted == query.limit:
                query.cut = True
                self._close(query)
                break
        self._pass_on(query)

    def _accept(self, query: RunningQuery, target: QueryTarget, row: bytes) -> None:
        visible = row if query.sight is None else query.sight(row)
        if visible is not None and query.state is not None:
            query.state.add(visible)
        elif visible is not None and not self._is_known(query, visible):
            query.accepted += 1
            query.waiting.append((target, visible))
            # Credit is for what came, not for what is left of it.
            query.owed[target] = query.owed.get(target, 0) + len(row) - len(visible)
            return
        query.owed[target] = query.owed.get(target, 0) + len(row)

    def _is_known(self, query: RunningQuery, row: bytes) -> bool:
        if query.seen is None:
            return False
        key = row_identity(row)
        if key in query.seen:
            return True
        query.seen.add(key)
        return False

    def _pass_on(self, query: RunningQuery) -> None:
        """Pass on the rows for which there is credit; end the query after its last row."""
        if not query.windows and not query.is_closing:
            self._close(query)
        most = MAX_ROWS_PER_MESSAGE
        while query.waiting and query.credit > 0:
            rows, size = list[bytes](), 0
            while query.waiting and min(query.credit, BATCH_BYTES) > size and len(rows) < most:
                target, row = query.waiting.popleft()
                rows.append(row)
                size += len(row)
                query.owed[target] = query.owed.get(target, 0) + len(row)
            query.credit -= size
            self._deliver(query, rows)
        self._pay(query)
        if query.is_closing and not query.waiting:
            self._report(query)

    def _deliver(self, query: RunningQuery, rows: list[bytes]) -> None:
        if query.asker is None:
            self._todo.append(DeliverRows(query.number, rows))
        else:
            peer, number = query.asker
            raw = [msgspec.Raw(row) for row in rows]
            self._send(peer, QueryRows(query=number, rows=raw))

    def _pay(self, query: RunningQuery) -> None:
        """Give new credit to those of whom much was taken."""
        for target, owed in query.owed.items():
            if target not in query.windows or owed < query.window // 4:
                continue
            query.windows[target] += owed
            query.owed[target] = 0
            if target.peer:
                self._send(target.peer, QueryCredit(query=query.number, bytes=owed))
            else:
                self._todo.append(CreditSource(target.source, query.number, owed))

    def _finish_target(self, query: RunningQuery, target: QueryTarget) -> None:
        query.windows.pop(target, None)
        self._pass_on(query)

    def _miss(self, target: QueryTarget, reason: str) -> None:
        """Go on without a source or peer."""
        for query in [*self._queries.values()]:
            if target in query.windows:
                query.note_missing(self._name_of(target), reason)
                self._finish_target(query, target)

    def _close(self, query: RunningQuery) -> None:
        """Stop everybody who still answers; what waits is passed on, for a limited time."""
        for target in [*query.windows]:
            self._stop(query, target)
        query.windows.clear()
        query.is_closing = True
        query.deadline = max(query.deadline, self._now + FINISHED_QUERY_SECONDS)
        if query.state is not None and query.asker is None:
            query.waiting.extend((QueryTarget(), row) for row in query.state.rows())
            query.cut |= query.state.is_cut
            query.state = None

    def _stop(self, query: RunningQuery, target: QueryTarget) -> None:
        if target.peer in self._peers:
            self._send(target.peer, QueryCancelled(query=query.number))
        elif target.source in self._source_names:
            self._todo.append(StopSource(target.source, query.number))

    def _drop(self, query: RunningQuery) -> None:
        """End a query whose asker has gone."""
        for target in query.windows:
            self._stop(query, target)
        self._forget(query)

    def _report(self, query: RunningQuery) -> None:
        self._forget(query)
        report = query.report()
        if query.asker is None:
            self._todo.append(FinishQuery(query.number, report))
            return
        peer, number = query.asker
        state = None if query.state is None else query.state.frame()
        self._send(
            peer,
            QueryDone(
                query=number,
                answered=[*report.answered],
                missing=report.missing,
                unnamed=report.unnamed,
                cut=report.cut,
                state=state,
            ),
        )

    def _forget(self, query: RunningQuery) -> None:
        self._queries.pop(query.number, None)
        if query.asker is not None:
            self._asked.pop(query.asker, None)

    # --- helpers ---------------------------------------------------------------------------------

    def _advertise(self) -> None:
        """Send every connected peer what has changed: first what is new, then what is gone."""
        for peer in self.advertisements.connected:
            added, removed = self.advertisements.changes(peer)
            for one in added:
                structure = to_structure(one.filter)
                message = DataAdvertised(digest=one.digest, filter=structure, many=one.many)
                self._send(peer, message)
            for digest in removed:
                self._send(peer, DataWithdrawn(digest=digest))

    def _name_of(self, target: QueryTarget) -> str:
        if target.peer:
            return self._titles.get(target.peer, target.peer)
        return self._source_names[target.source]

    def _send(self, peer: str, message: QueryMessage) -> None:
        self._todo.append(SendToPeer(peer, message))

    def _count(self, peer: str, **more: int) -> None:
        counts = self.counts(peer)
        added = {name: getattr(counts, name) + count for name, count in more.items()}
        self._counts[peer] = counts._replace(**added)

    def _done(self) -> list[QueryInstruction]:
        todo, self._todo = self._todo, []
        return todo

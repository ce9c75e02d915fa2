"""The client's end of a query: its rows as they come, and from whom they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec

from tamis.client import option_checks as checks
from tamis.errors import DisconnectedError, OptionError, TamisError
from tamis.filters import Filter
from tamis.languages.constraints import constraint_filter
from tamis.protocol.frames import QueryRequest
from tamis.protocol.management import MAX_NUMBER
from tamis.protocol.queries import CancelQuery, Query, Querying, QueryMore, ResultEnd, ResultRows
from tamis.routing.aggregates import Aggregate
from tamis.units import Duration

WINDOW_BYTES: Final = 1024 * 1024
"""Of rows that may wait in this process."""
# What the broker may need beyond the time of the query itself.
_SECONDS_BEYOND: Final = 15.0

ResultRow = dict[str, Any]
"""A row of an answer: a JSON object."""
Queryable = str | Filter | Mapping[str, object]
"""A filter as text or a `Filter`, or a message that holds constraints."""


class QueryOptions(NamedTuple):
    """A query and its options, checked."""

    filter: str
    language: str
    timeout: float
    limit: int | None
    aggregate: str

    @classmethod
    def of(
        cls,
        wanted: Queryable,
        timeout: Duration,
        limit: int | None,
        aggregate: str | Aggregate | None,
        language: str,
    ) -> QueryOptions:
        """Return the options of a query; refuse what cannot be used."""
        if isinstance(wanted, Mapping):
            wanted = constraint_filter(wanted)
        seconds = checks.check_duration("timeout", timeout)
        if seconds is None:
            raise OptionError("timeout", "is None; a query needs a time after which it ends")
        if limit is not None:
            checks.check_integer("limit", limit, 1, MAX_NUMBER)
        if aggregate is not None and not isinstance(aggregate, Aggregate):
            aggregate = Aggregate.parse(aggregate)
        is_text = isinstance(wanted, str)
        return cls(
            filter=checks.check_filter(wanted),
            language=checks.check_language(language) if is_text else "tamis",
            timeout=seconds,
            limit=limit,
            aggregate="" if aggregate is None else str(aggregate),
        )


class QueryRegistry(Protocol):
    """The part of a bus that a query needs."""

    def start_query(self, result: QueryResult) -> None:
        """Send the query."""

    def send_query(self, frame: QueryRequest) -> None:
        """Send a frame, if there is a connection."""

    def end_query(self, result: QueryResult) -> None:
        """Forget a query."""


class QueryResult:
    """The rows that answer a query, in the order in which they come; made by `Bus.query`.

    Once they have all come, it knows which sources have answered and which are missing. Leaving the
    loop early ends the query.
    """

    def __init__(self, registry: QueryRegistry, options: QueryOptions) -> None:
        self._registry = registry
        self._options = options
        self._id = ""
        self._rows: deque[msgspec.Raw] = deque()
        self._taken = 0
        """Bytes of rows for which the broker has no new credit yet."""
        self._has_news = asyncio.Event()
        self._has_begun = False
        self._end: ResultEnd | None = None
        self._error: TamisError | None = None

    # --- how it ended ----------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Return whether all rows that will come have come."""
        return self._end is not None

    @property
    def is_complete(self) -> bool:
        """Return whether it is over, every source has answered, and no row was left out."""
        end = self._end
        return end is not None and not (end.missing or end.unnamed or end.cut)

    @property
    def answered(self) -> tuple[str, ...]:
        """Return the sources that have answered in full; empty until it is over."""
        return () if self._end is None else tuple(self._end.answered)

    @property
    def missing(self) -> dict[str, str]:
        """Return the sources that have not, each with the reason; empty until it is over.

        A broker stands for all the sources behind it.
        """
        return {} if self._end is None else dict(self._end.missing)

    @property
    def unnamed(self) -> int:
        """Return how many more sources there are than are named."""
        return 0 if self._end is None else self._end.unnamed

    @property
    def cut(self) -> bool:
        """Return whether rows were left out, because of the limit or of the broker's bounds."""
        return self._end is not None and self._end.cut

    @property
    def hint(self) -> str:
        """Return what may be wrong with a query to which no row was the answer; usually empty."""
        return "" if self._end is None else self._end.hint

    def __repr__(self) -> str:
        filter_ = self._options.filter
        if self._end is None:
            state = "running" if self._has_begun else "not begun"
        else:
            missing = len(self._end.missing) + self._end.unnamed
            state = f"{len(self._end.answered)} answered, {missing} missing"
        return f"<QueryResult {filter_!r:.80}, {state}>"

    # --- rows ------------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncGenerator[ResultRow, None]:
        # A generator, since Python closes one that a loop leaves early.
        try:
            while (row := await self._next()) is not None:
                yield row
        finally:
            self.close()

    async def take(self, limit: int) -> list[ResultRow]:
        """Return the rows that have come, waiting for the first; none once it is over."""
        checks.check_integer("limit", limit, 1, MAX_NUMBER)
        rows: list[ResultRow] = []
        while (not rows or self._rows) and len(rows) < limit:
            row = await self._next()
            if row is None:
                break
            rows.append(row)
        return rows

    async def all(self) -> list[ResultRow]:
        """Return all rows, once they have come."""
        return [row async for row in self]

    async def value(self) -> Any:
        """Return the count, sum, minimum or maximum that an aggregate asks for."""
        rows = await self.all()
        if len(rows) != 1 or len(rows[0]) != 1:
            raise DisconnectedError("the answer is not a single value: ask for count, sum X, …")
        [found] = rows[0].values()
        return found

    async def _next(self) -> ResultRow | None:
        self._begin()
        try:
            # The broker ends the query in time; this is for a broker that has gone silent.
            async with asyncio.timeout(self._options.timeout + _SECONDS_BEYOND):
                while not self._rows and self._end is None and self._error is None:
                    self._has_news.clear()
                    await self._has_news.wait()
        except TimeoutError:
            raise DisconnectedError("the broker did not answer the query in time") from None
        if self._rows:
            return self._take()
        if self._error is not None:
            raise self._error
        return None

    def _take(self) -> ResultRow:
        raw = self._rows.popleft()
        self._taken += len(memoryview(raw))
        if self._taken >= WINDOW_BYTES // 4 and self._end is None:
            self._registry.send_query(QueryMore(query=self._id, bytes=self._taken))
            self._taken = 0
        row: ResultRow = msgspec.json.decode(raw)
        return row

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._registry.start_query(self)

    def close(self) -> None:
        """End the query, if it still runs; the sources that work on it are told."""
        if self._has_begun and self._end is None and self._error is None:
            if self._id:
                self._registry.send_query(CancelQuery(query=self._id))
            self._error = DisconnectedError("the query was closed")
            self._has_news.set()
        self._registry.end_query(self)

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- for the connection ----------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Return the broker's id of the query; empty until it has begun."""
        return self._id

    @property
    def is_closed(self) -> bool:
        """Return whether nobody waits for rows."""
        return self._error is not None

    def request(self, ref: int) -> Query:
        """Return the frame that begins it."""
        options = self._options
        return Query(
            ref=ref,
            filter=options.filter,
            language=options.language,
            timeout=options.timeout,
            limit=options.limit,
            aggregate=options.aggregate,
            credit=WINDOW_BYTES,
        )

    def began(self, reply: Querying) -> None:
        """Note the id."""
        self._id = reply.query

    def rows_came(self, reply: ResultRows) -> None:
        """Keep rows until they are asked for."""
        self._rows.extend(reply.rows)
        self._has_news.set()

    def ended(self, reply: ResultEnd) -> None:
        """Note that no more rows come."""
        self._end = reply
        self._has_news.set()

    def fail(self, error: TamisError) -> None:
        """End with an error, after the rows that have come."""
        if self._end is None and self._error is None:
            self._error = error
            self._has_news.set()

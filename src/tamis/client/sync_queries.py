"""Queries and data sources without `await`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from tamis.client.data_source import DataSource
from tamis.client.query_results import QueryResult, ResultRow
from tamis.filters import Filter

T = TypeVar("T")

# Fetched from the other thread together: each crossing costs more than a row.
_ROWS_PER_FETCH: Final = 64


class CoroutineRunner(Protocol):
    """Runs coroutines in another thread."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop soon."""


class SyncQueryResult:
    """The rows that answer a query: `for row in bus.query("price < 5")`."""

    def __init__(self, thread: CoroutineRunner, result: QueryResult) -> None:
        self._thread = thread
        self._result = result

    def __iter__(self) -> Iterator[ResultRow]:
        try:
            while rows := self._thread.call(self._fetch()):
                yield from rows
        finally:
            self.close()

    async def _fetch(self) -> list[ResultRow]:
        return await self._result.take(_ROWS_PER_FETCH)

    def all(self) -> list[ResultRow]:
        """Return all rows, once they have come."""
        return self._thread.call(self._result.all())

    def value(self) -> Any:
        """Return the count, sum, minimum or maximum that an aggregate asks for."""
        return self._thread.call(self._result.value())

    @property
    def is_over(self) -> bool:
        """Return whether all rows that will come have come."""
        return self._result.is_over

    @property
    def is_complete(self) -> bool:
        """Return whether it is over, every source has answered, and no row was left out."""
        return self._result.is_complete

    @property
    def answered(self) -> tuple[str, ...]:
        """Return the sources that have answered in full; empty until it is over."""
        return self._result.answered

    @property
    def missing(self) -> dict[str, str]:
        """Return the sources that have not, each with the reason; empty until it is over."""
        return self._result.missing

    @property
    def unnamed(self) -> int:
        """Return how many more sources there are than are named."""
        return self._result.unnamed

    @property
    def cut(self) -> bool:
        """Return whether rows were left out, because of the limit or of the broker's bounds."""
        return self._result.cut

    @property
    def hint(self) -> str:
        """Return what may be wrong with a query to which no row was the answer; usually empty."""
        return self._result.hint

    def close(self) -> None:
        """End the query, if it still runs."""
        self._thread.soon(self._result.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._result).replace("<", "<Sync", 1)


class SyncDataSource:
    """Answers queries, in other threads, with the rows that a function yields."""

    def __init__(self, thread: CoroutineRunner, source: DataSource) -> None:
        self._thread = thread
        self._source = source

    @property
    def id(self) -> str:
        """Return the broker's id of the source; another after each connection."""
        return self._source.id

    @property
    def filter(self) -> str:
        """Return what is advertised."""
        return self._source.filter

    @property
    def is_closed(self) -> bool:
        """Return whether it is asked no more."""
        return self._source.is_closed

    @property
    def asked(self) -> int:
        """Return how many queries it was asked."""
        return self._source.asked

    def advertise(self, filter_: str | Filter, *, language: str = "tamis") -> None:
        """Advertise another filter from now on, because the data has changed."""
        self._thread.call(self._source.advertise(filter_, language=language))

    def run(self) -> None:
        """Answer queries until the source is closed; raise the error that ends it."""
        self._thread.call(self._source.run())

    def close(self) -> None:
        """Answer no more queries."""
        self._thread.call(self._source.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._source).replace("<", "<Sync", 1)

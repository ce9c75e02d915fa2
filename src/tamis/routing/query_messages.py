"""What brokers say to each other about queries, and what a query router tells its broker to do.

Each broker numbers the queries that it passes on. A message about one has the number of the broker
that asked, so no broker has to trust another's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from tamis.filters import Filter
from tamis.routing.aggregates import Aggregate, StateFrame

MAX_SOURCES_NAMED: Final = 1_000
"""In one report; further ones are counted."""
MAX_UNNAMED: Final = 2**53
MAX_REPORT_CHARACTERS: Final = 256 * 1024
"""Of the names and reasons in one report, which fits into a frame however it came together."""
MAX_SENTENCE_CHARACTERS: Final = 500
MAX_NAME_CHARACTERS: Final = 1_000
MAX_DIGESTS: Final = 10_000
MAX_ROWS_PER_MESSAGE: Final = 10_000

Digest = Annotated[str, msgspec.Meta(max_length=128)]
QueryNumber = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
ByteCount = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
SourceName = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)]
Sentence = Annotated[str, msgspec.Meta(max_length=MAX_SENTENCE_CHARACTERS)]


class QueryMessage(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag=str.lower,
):
    """The base of all messages between brokers about data and queries."""


class DataHeld(QueryMessage, frozen=True):
    """Said first on a link: the data advertisements that the sender still has from the other."""

    digests: Annotated[list[Digest], msgspec.Meta(max_length=MAX_DIGESTS)] = []


class DataAdvertised(QueryMessage, frozen=True):
    """Behind the sender there is data that this filter describes."""

    digest: Digest
    filter: Any
    """As `filters.structure` writes it."""
    many: bool = False
    """Whether attributes may hold several values at once."""


class DataWithdrawn(QueryMessage, frozen=True):
    """What was advertised under a digest is there no longer."""

    digest: Digest


class QueryAsked(QueryMessage, frozen=True):
    """A query for whatever is behind the receiver."""

    query: QueryNumber
    filter: Any
    seconds: float
    """How long the sender waits for the answer."""
    credit: ByteCount
    """How many bytes of rows may be sent before more credit comes."""
    limit: QueryNumber | None = None
    aggregate: Aggregate | None = None


class QueryRows(QueryMessage, frozen=True):
    """Rows for a query that the receiver has asked."""

    query: QueryNumber
    rows: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_ROWS_PER_MESSAGE)]


class QueryCredit(QueryMessage, frozen=True):
    """The receiver may send so many more bytes of rows."""

    query: QueryNumber
    bytes: ByteCount


class QueryDone(QueryMessage, frozen=True):
    """No more rows come for a query that the receiver has asked."""

    query: QueryNumber
    answered: Annotated[list[SourceName], msgspec.Meta(max_length=MAX_SOURCES_NAMED)] = []
    missing: Annotated[dict[SourceName, Sentence], msgspec.Meta(max_length=MAX_SOURCES_NAMED)] = {}
    unnamed: Annotated[int, msgspec.Meta(ge=0, le=MAX_UNNAMED)] = 0
    """How many more sources there are than are named."""
    cut: bool = False
    state: StateFrame | None = None


class QueryCancelled(QueryMessage, frozen=True):
    """Nobody waits any longer for the answer to a query that the sender has asked."""

    query: QueryNumber


QUERY_MESSAGES: Final = (
    DataHeld,
    DataAdvertised,
    DataWithdrawn,
    QueryAsked,
    QueryRows,
    QueryCredit,
    QueryDone,
    QueryCancelled,
)


class QueryReport(NamedTuple):
    """How a query ended."""

    answered: tuple[str, ...] = ()
    """The sources that have answered in full."""
    missing: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    """The sources that have not, each with the reason; a broker stands for all behind it."""
    unnamed: int = 0
    """How many more sources there are than are named."""
    cut: bool = False
    """Whether rows were left out because there were too many."""


RowSight = Callable[[bytes], bytes | None]
"""What somebody may see of a row; None: nothing."""
SightOfQuery = Callable[[Filter], RowSight]
"""What somebody may see of the rows that answer a query, which may test what is hidden."""


# --- instructions --------------------------------------------------------------------------------


class SendToPeer(NamedTuple):
    """Send a message to a peer, in order."""

    peer: str
    message: QueryMessage


class RefusePeer(NamedTuple):
    """Cut off a peer that says what makes no sense."""

    peer: str
    reason: str


class AskSource(NamedTuple):
    """Ask a source of this broker; its rows are reported under the number."""

    source: int
    query: int
    filter: Filter
    credit: int


class CreditSource(NamedTuple):
    """Grant a source so many more bytes of rows."""

    source: int
    query: int
    bytes: int


class StopSource(NamedTuple):
    """Cancel a source's answer, for which nobody waits."""

    source: int
    query: int


class DeliverRows(NamedTuple):
    """Give rows to whoever asked here."""

    query: int
    rows: list[bytes]


class FinishQuery(NamedTuple):
    """End the rows for whoever asked here."""

    query: int
    report: QueryReport


QueryInstruction = (
    SendToPeer | RefusePeer | AskSource | CreditSource | StopSource | DeliverRows | FinishQuery
)

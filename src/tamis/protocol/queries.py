"""The frames of queries: data sources advertise and answer, others ask.

Rows are JSON objects, as events are. Whoever takes rows grants credit for them in bytes: the broker
to a source, a client to the broker. A frame may exceed the credit by its last row, so that a large
one needs no special care. After `served_all`, `ask_stopped`, `cancel_query` or `result_end`,
nothing more is said of a query, except what was on its way.
"""

from __future__ import annotations

import msgspec

from tamis.protocol.frame_base import Frame, Number

# --- from sources --------------------------------------------------------------------------------


class Serve(Frame):
    """Advertises data: every row of it matches the filter."""

    ref: Number
    filter: str
    language: str = "tamis"
    name: str = ""
    """What it is called in reports, after the principal."""
    many: bool = False
    """Whether attributes of a row may hold several values at once."""
    source: str = ""
    """The id of a source of this connection that now advertises this instead."""


class Withdraw(Frame):
    """Ends a source."""

    ref: Number
    source: str


class ServedRows(Frame, tag="served_rows"):
    """Rows that answer a query."""

    ask: str
    rows: msgspec.Raw
    """An array of objects."""


class ServedAll(Frame, tag="served_all"):
    """There are no more rows that answer a query, or `error` says why not."""

    ask: str
    error: str = ""


# --- from those who ask --------------------------------------------------------------------------


class Query(Frame):
    """Asks the sources that may have rows which match a filter."""

    ref: Number
    filter: str
    language: str = "tamis"
    timeout: float = 30.0
    """Seconds until it ends with what there is."""
    limit: Number | None = None
    """The most rows; None: all."""
    aggregate: str = ""
    """`union`, `count`, `sum X`, `min X`, `max X`, `top N X` or `bottom N X`."""
    credit: Number = 0
    """Bytes of rows that may be sent before more credit comes."""


class QueryMore(Frame, tag="query_more"):
    """Grants credit for more bytes of rows."""

    query: str
    bytes: Number


class CancelQuery(Frame, tag="cancel_query"):
    """Ends a query early; nothing answers this."""

    query: str


# --- from brokers --------------------------------------------------------------------------------


class Serving(Frame):
    """The data is advertised; queries refer to the source by this id."""

    ref: int
    source: str


class Withdrawn(Frame):
    """The source is asked no more."""

    ref: int
    source: str


class Ask(Frame):
    """Asks a source for the rows that match a filter."""

    source: str
    ask: str
    filter: str
    """In the language `tamis`, to be understood in mode `sql`."""
    credit: int = 0
    """Bytes of rows that may be sent before more credit comes."""


class AskMore(Frame, tag="ask_more"):
    """Grants a source credit for more bytes of rows."""

    ask: str
    bytes: int


class AskStopped(Frame, tag="ask_stopped"):
    """Nobody waits for a source's answer any longer."""

    ask: str


class Querying(Frame):
    """The query is on its way; later frames refer to it by this id."""

    ref: int
    query: str


class ResultRows(Frame, tag="result_rows"):
    """Rows that answer a query; of an aggregate, a row that has it."""

    query: str
    rows: list[msgspec.Raw]


class ResultEnd(Frame, tag="result_end"):
    """No more rows come."""

    query: str
    answered: list[str] = msgspec.field(default_factory=list)
    """The sources that have answered in full."""
    missing: dict[str, str] = msgspec.field(default_factory=dict)
    """The sources that have not, each with the reason; a broker stands for all behind it."""
    unnamed: int = 0
    """How many more sources there are than are named."""
    cut: bool = False
    """Whether rows were left out because there were too many."""
    hint: str = ""
    """What may be wrong with a query to which no row was the answer."""

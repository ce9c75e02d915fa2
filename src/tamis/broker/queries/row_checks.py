"""Rows that answer a query: neither sources nor peers are trusted to have left out the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from tamis.broker.operations.fair_executor import Slices
from tamis.broker.publish.payloads import PayloadDecoder
from tamis.errors import RefusedError
from tamis.events import Event, Schema
from tamis.filters import Filter, Mode


class RowsChecked(msgspec.Struct):
    """The rows that answer a query."""

    rows: list[bytes]
    skipped: int = 0
    """Bytes of rows that do not match."""
    problem: str = ""
    """Why one of them, and all that come after it, cannot be used."""


class RowChecker:
    """Checks rows against the filter of a query, as the broker reads them."""

    def __init__(self, decoder: PayloadDecoder, schema: Schema | None, largest_row: int) -> None:
        self._decoder = decoder
        self._schema = schema
        self._largest_row = largest_row

    def check(
        self,
        texts: Sequence[bytes],
        filter_: Filter,
        may_serve_row: Callable[[Event], bool],
    ) -> Slices[RowsChecked]:
        """Return the rows that match, up to one that cannot be used, in small steps."""
        checked = RowsChecked([])
        for text in texts:
            yield
            if len(text) > self._largest_row:
                most = self._largest_row
                checked.problem = f"a row of {len(text):,} bytes exceeds the limit of {most:,}"
                break
            try:
                event = cast("Event", self._decoder.decode(text, "json").event)
            except RefusedError as error:
                checked.problem = f"one of its rows is not valid: {error}"
                break
            if not may_serve_row(event):
                checked.problem = "it has rows that it is not allowed to answer with"
                break
            if filter_.matches(event, Mode.SQL, self._schema):
                checked.rows.append(text)
            else:
                checked.skipped += len(text)
        return checked

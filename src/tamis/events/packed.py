"""Columns of numbers packed one after the other: what a table of very many columns becomes.

An attribute of a sparse table has few values. An object for each column would take longer than
matching them, so columns are made only for those who ask for one by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events.columns import Column, Entries
from tamis.events.kinds import Kind

# To make one for a thousand columns takes as long as to match thousands of sparse events.
MAX_LAYOUTS: Final = 8
"""How many layouts of tables are kept for those who read them."""


class NumberColumns(NamedTuple):
    """Numbers that are exact as floats, at most one for each event and attribute."""

    places: Mapping[str, int]
    """The place of each attribute's column; the same object for tables with the same columns."""
    are_whole: NDArray[np.bool_]
    """For each column whether it has integers."""
    starts: NDArray[np.int64]
    """Column c has the entries from starts[c] to starts[c + 1]."""
    events: NDArray[np.int32]
    values: NDArray[np.float64]

    def column(self, place: int) -> Column:
        """Return one column."""
        own = slice(self.starts[place], self.starts[place + 1])
        events = self.events[own]
        whole = np.ones(len(events), np.bool_) if self.are_whole[place] else None
        entries = Entries(events, self.values[own], None, whole)
        return Column({Kind.NUMBER: entries} if len(events) else {}, is_single=True)


class PackedColumns(Mapping[str, Column]):
    """The columns of a batch: numbers that are packed, and others; each has at least one value."""

    def __init__(
        self, numbers: NumberColumns, others: Mapping[str, Column], order: Mapping[str, int]
    ) -> None:
        """Take the others out of the numbers, if they are there as well; `order` has all names."""
        self.numbers: Final = numbers
        self.others: Final = others
        self._order = order

    def __getitem__(self, name: str) -> Column:
        column = self.others.get(name)
        if column is None:
            column = self.numbers.column(self.numbers.places[name])
            if not column.entries:
                raise KeyError(name)
        return column

    def __iter__(self) -> Iterator[str]:
        filled = np.diff(self.numbers.starts) > 0
        numbers = [name for name, place in self.numbers.places.items() if filled[place]]
        return iter(sorted({*numbers, *self.others}, key=self._order.__getitem__))

    def __len__(self) -> int:
        return int((np.diff(self.numbers.starts) > 0).sum()) + len(self.others)


def packed(columns: Mapping[str, Column]) -> PackedColumns:
    """Return columns with the numbers among them packed, as far as they are what packs hold."""
    if isinstance(columns, PackedColumns):
        return columns
    numbers = {name: c.entries[Kind.NUMBER] for name, c in columns.items() if _is_packable(c)}
    parts = numbers.values()
    return PackedColumns(
        NumberColumns(
            places={name: place for place, name in enumerate(numbers)},
            are_whole=np.array(
                [e.whole is not None and bool(e.whole.all()) for e in parts], np.bool_
            ),
            starts=np.cumsum([0, *(len(e.events) for e in parts)], dtype=np.int64),
            events=np.concatenate([np.empty(0, np.int32), *(e.events for e in parts)]),
            values=np.concatenate([np.empty(0), *(e.values for e in parts)]),
        ),
        {name: column for name, column in columns.items() if name not in numbers},
        {name: place for place, name in enumerate(columns)},
    )


def _is_packable(column: Column) -> bool:
    numbers = column.entries.get(Kind.NUMBER)
    if numbers is None or len(column.entries) > 1 or numbers.residues is not None:
        return False
    return column.is_single or bool((numbers.events[1:] > numbers.events[:-1]).all())

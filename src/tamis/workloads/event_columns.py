"""Drawing events column by column; each column has its own random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.workloads.declarations import AttributeSource, Form, Group
from tamis.workloads.distributions import RandomStream, WeightedRanks, column_arrow_type


def arrow_schema(attributes: Mapping[str, AttributeSource]) -> pa.Schema:
    """Return the columns of the events."""
    return pa.schema([(name, _arrow_type(found)) for name, found in attributes.items()])


def _arrow_type(source: AttributeSource) -> pa.DataType:
    one = column_arrow_type(source.distribution.type)
    return pa.list_(one) if source.is_many else one


class EventDrawer:
    """Draws the events of one workload and one seed, each by its number."""

    def __init__(
        self, attributes: Mapping[str, AttributeSource], forms: tuple[Form, ...], seed: int
    ) -> None:
        self._attributes = attributes
        self._schema: Final = arrow_schema(attributes)
        self._forms = forms
        self._form_names = [{*form.all_names()} for form in forms]
        self._form_ranks = WeightedRanks(np.array([form.weight for form in forms]))
        self._seed = seed

    def draw(self, first: int, last: int, density: float | None) -> pa.RecordBatch:
        """Return the events from `first` to `last`, exclusive."""
        chosen = self._form_ranks.many(self._column("form", "", first, last))
        groups = () if density is not None else self._groups()
        columns: dict[str, pa.Array] = {}
        for number, (form, group) in enumerate(groups):
            columns |= self._group_columns(str(number), group, chosen == form, first, last)
        for name, source in self._attributes.items():
            if name not in columns:
                absent = self._absent(name, chosen, density, first, last)
                columns[name] = self._values(name, source, absent, first, last)
        arrays = [columns[name] for name in self._attributes]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, what: str, name: str, first: int, last: int) -> NDArray[np.float64]:
        return RandomStream(self._seed, what, name).column(first, last)

    # --- presence --------------------------------------------------------------------------------

    def _absent(
        self, name: str, chosen: NDArray[np.int64], density: float | None, first: int, last: int
    ) -> NDArray[np.bool_] | None:
        """Return which events lack an attribute, or None if none does."""
        has_it = np.array([name in names for names in self._form_names])
        share = self._attributes[name].present if density is None else density
        if has_it.all() and share >= 1:
            return None
        absent = ~has_it[chosen]
        if share < 1:
            absent |= self._column("present", name, first, last) >= share
        return absent

    # --- values ----------------------------------------------------------------------------------

    def _values(
        self,
        name: str,
        source: AttributeSource,
        absent: NDArray[np.bool_] | None,
        first: int,
        last: int,
    ) -> pa.Array:
        if not source.is_many:
            return source.distribution.column(self._column("value", name, first, last), absent)
        choices = source.most - source.least + 1
        counts = source.least + (self._column("count", name, first, last) * choices).astype(
            np.int64
        )
        if absent is not None:
            counts[absent] = 0
        rows = RandomStream(self._seed, "value", name, width=source.most).rows(first, last)
        flat = source.distribution.column(rows[np.arange(source.most) < counts[:, None]])
        return _lists(counts, flat, absent)

    # --- groups ----------------------------------------------------------------------------------

    def _groups(self) -> list[tuple[int, Group]]:
        return [(n, group) for n, form in enumerate(self._forms) for group in form.choose]

    def _group_columns(
        self, name: str, group: Group, member: NDArray[np.bool_], first: int, last: int
    ) -> dict[str, pa.Array]:
        """Return the columns of a group; most of their cells are empty."""
        drawn = RandomStream(self._seed, "chosen", name, width=group.count).rows(first, last)
        values = RandomStream(self._seed, "grouped", name, width=group.count).rows(first, last)[
            member
        ]
        chosen = sampled(drawn[member], len(group.of))
        events = np.repeat(np.flatnonzero(member), group.count)
        order = np.argsort(chosen, axis=None, kind="stable")
        edges = np.searchsorted(chosen.reshape(-1)[order], np.arange(len(group.of) + 1))
        values = values.reshape(-1)[order]
        events = events[order]
        return {
            attribute: self._scattered(
                attribute, values[begin:end], events[begin:end], last - first
            )
            for attribute, begin, end in zip(group.of, edges, edges[1:], strict=False)
        }

    def _scattered(
        self, name: str, values: NDArray[np.float64], events: NDArray[np.int64], count: int
    ) -> pa.Array:
        cells = self._attributes[name].distribution.column(values)
        present = np.zeros(count, np.bool_)
        present[events] = True
        if cells.type in (pa.int64(), pa.float64()):
            return _sparse(cells, events, present)
        places = np.zeros(count, np.int32)
        places[events] = np.arange(len(events), dtype=np.int32)
        return cells.take(pa.array(places, mask=~present))


def _sparse(cells: pa.Array, events: NDArray[np.int64], present: NDArray[np.bool_]) -> pa.Array:
    """Return a column of numbers with few cells, fast: a batch may have a thousand such columns."""
    numbers = cells.to_numpy()
    column = np.zeros(len(present), numbers.dtype)
    column[events] = numbers
    valid = np.packbits(present, bitorder="little")
    return pa.Array.from_buffers(
        cells.type, len(present), [pa.py_buffer(valid), pa.py_buffer(column)]
    )


def sampled(rows: NDArray[np.float64], choices: int) -> NDArray[np.int64]:
    """Return in each row different numbers below `choices`, all sets of them equally likely.

    Floyd's algorithm on all rows at once; it uses one random number per choice.
    """
    width = rows.shape[1]
    chosen = np.empty(rows.shape, np.int64)
    for place in range(width):
        top = choices - width + place
        drawn = (rows[:, place] * (top + 1)).astype(np.int64)
        taken = (chosen[:, :place] == drawn[:, None]).any(axis=1)
        chosen[:, place] = np.where(taken, top, drawn)
    return chosen


def _lists(counts: NDArray[np.int64], flat: pa.Array, absent: NDArray[np.bool_] | None) -> pa.Array:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    mask = None if absent is None else pa.array(absent)
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=mask)

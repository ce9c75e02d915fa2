"""A workload: numbered subscriptions and events, reproducible from a seed."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from tamis.errors import WorkloadError
from tamis.events import Schema
from tamis.events.schema import did_you_mean
from tamis.filters import Filter
from tamis.languages import parse
from tamis.workloads.drawing import Drawer
from tamis.workloads.event_columns import EventDrawer, arrow_schema
from tamis.workloads.reading import read_workload

SUFFIX: Final = ".toml"
SUBSCRIPTIONS: Final = pa.schema([("id", pa.int64()), ("filter", pa.string())])

_SHIPPED: Final = files("tamis.workloads") / "shipped"


class Workload:
    """A grammar of filters and the distributions of events, read from a file.

    >>> workload = Workload.load("be-a")
    >>> workload.subscriptions(7, 8, seed=1).to_pylist()
    [{'id': 7, 'filter': '...'}]
    """

    def __init__(self, text: str, source: str = "the workload") -> None:
        self.text: Final = text
        self.source: Final = source
        self._description = read_workload(source, text)
        # Each seed needs its own compilation; most programs use one or two.
        self._drawer = lru_cache(maxsize=4)(self._new_drawer)

    @classmethod
    def load(cls, path_or_name: str | Path) -> Self:
        """Read a file, or one of the workloads that come with Tamis by its name."""
        if isinstance(path_or_name, str) and path_or_name in shipped():
            text = (_SHIPPED / f"{path_or_name}{SUFFIX}").read_text("utf-8")
            return cls(text, path_or_name + SUFFIX)
        return cls(_text_of(Path(path_or_name)), str(path_or_name))

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.text, self.source)

    def __repr__(self) -> str:
        return f"<Workload {self.source}>"

    @property
    def schema(self) -> Schema:
        """Return the attributes of the events."""
        return self._description.schema

    @property
    def event_schema(self) -> pa.Schema:
        """Return the columns of the events as Arrow describes them."""
        return arrow_schema(self._description.attributes)

    def subscriptions(self, first: int, last: int, seed: int) -> pa.RecordBatch:
        """Return subscriptions by number, `last` excluded: ids and filters as text."""
        texts = self._texts(first, last, seed)
        ids = pa.array(range(first, last), pa.int64())
        return pa.RecordBatch.from_arrays([ids, pa.array(texts, pa.string())], schema=SUBSCRIPTIONS)

    def filters(self, first: int, last: int, seed: int) -> list[Filter]:
        """Return subscriptions by number, `last` excluded, as filters."""
        return [parse(text).bind(self.schema) for text in self._texts(first, last, seed)]

    def events(
        self, first: int, last: int, seed: int, density: float | None = None
    ) -> pa.RecordBatch:
        """Return events by number, `last` excluded, a column for each attribute.

        With a density, an event has each attribute of its form with this probability.
        """
        _check_range(first, last)
        if density is not None and not 0 <= density <= 1:
            raise ValueError(f"the density {density} should lie between 0 and 1")
        found = self._description
        return EventDrawer(found.attributes, found.forms, seed).draw(first, last, density)

    def _texts(self, first: int, last: int, seed: int) -> list[str]:
        _check_range(first, last)
        return list(self._drawer(seed).texts(first, last))

    def _new_drawer(self, seed: int) -> Drawer:
        return Drawer(self._description.grammar, seed)


def shipped() -> list[str]:
    """Return the names of the workloads that come with Tamis."""
    names = (entry.name for entry in _SHIPPED.iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))


def _check_range(first: int, last: int) -> None:
    if not 0 <= first <= last:
        raise ValueError(f"{first} to {last} is not a range of numbers from 0 on")


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        names = shipped()
        hint = did_you_mean(str(path), names)
        raise WorkloadError(
            f"there is no such file, and the workloads that come with Tamis are "
            f"{', '.join(names)}{'; ' + hint if hint else ''}",
            source=str(path),
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"the file cannot be read: {error}", source=str(path)) from None

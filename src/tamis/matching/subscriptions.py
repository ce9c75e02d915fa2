"""Subscriptions as they are given to an engine, and what becomes of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from os import PathLike
from typing import Any, Final, NamedTuple, TypeVar, cast

from tamis.errors import FilterError
from tamis.events.batch import is_arrow
from tamis.filters import Filter, Id
from tamis.filters.translations import Translatable
from tamis.matching.compile.texts import LANGUAGE, MAX_TEXT_CHARACTERS

# Together they take some megabytes.
SUBSCRIPTIONS_PER_COMPILATION: Final = 8_192

GivenRow = TypeVar("GivenRow")

NEVER: Final = float("inf")

_ID_TYPES: Final = frozenset[type]({int, str})


class Subscription(NamedTuple):
    """A subscription for `add_many`."""

    id: Id
    filter: Filter | str | Translatable
    language: str = "tamis"
    mode: str | None = None
    expires_at: float | datetime | None = None


class Rejected(NamedTuple):
    """A subscription that could not be added: its row, counted from 1, and why."""

    row: int
    id: object
    reason: str


class Added(NamedTuple):
    """The result of `add_many`: rows = added + rejected."""

    added: int
    rejected: tuple[Rejected, ...]


def plain_rows(batch: Sequence[Any]) -> tuple[list[Id], list[str]] | None:
    """Return ids and texts of subscriptions that have nothing else; None if any of them has."""
    if set(map(type, batch)) != {Subscription}:
        return None
    if any(one[2] != LANGUAGE or one[3] is not None or one[4] is not None for one in batch):
        return None
    ids, texts = [one[0] for one in batch], [one[1] for one in batch]
    is_plain = set(map(type, texts)) == {str} and _ID_TYPES.issuperset(map(type, ids))
    return (ids, texts) if is_plain and max(map(len, texts)) <= MAX_TEXT_CHARACTERS else None


def plain_text(given: object) -> str:
    """Return the filter if there is nothing to say about all else, or an empty text."""
    if type(given) is Subscription:
        id_, filter_, language, mode, _ = given
        is_plain = mode is None and language == LANGUAGE and type(id_) in _ID_TYPES
        if is_plain and type(filter_) is str and len(filter_) <= MAX_TEXT_CHARACTERS:
            return filter_
    return ""


def subscription_of(given: Subscription | Mapping[str, object]) -> Subscription:
    """Return a subscription that may be given as a mapping."""
    if isinstance(given, Subscription):
        return given
    if not isinstance(given, Mapping):
        raise FilterError(f"a subscription is a Subscription or a mapping, not {given!r:.60}")
    missing = [f'"{name}" is missing' for name in ("id", "filter") if name not in given]
    unknown = [f'"{name!s:.60}" is unknown' for name in given if name not in Subscription._fields]
    if missing or unknown:
        raise FilterError(
            "a subscription has id and filter, and may have language, mode and expires_at: "
            + ", ".join(missing + unknown)
        )
    return Subscription(**given)  # type: ignore[arg-type]


def id_of(given: object) -> object:
    """Return the id of whatever was given, for a message about it."""
    return given.get("id") if isinstance(given, Mapping) else getattr(given, "id", None)


def seconds_of(moment: float | datetime | None) -> float:
    """Return a moment in seconds since 1970."""
    if moment is None:
        return NEVER
    if not isinstance(moment, datetime | int | float):
        raise FilterError(f"expires_at is a datetime or seconds since 1970, not {moment!r:.60}")
    if isinstance(moment, datetime) and moment.tzinfo is None:
        raise FilterError(
            f"expires_at is {moment}, which has no time zone; use datetime.now(UTC), or "
            ".astimezone()"
        )
    seconds = moment.timestamp() if isinstance(moment, datetime) else float(moment)
    if math.isnan(seconds):
        raise FilterError("expires_at is NaN; leave it out for a subscription that never expires")
    return seconds


def rows_given(subscriptions: Any) -> Iterable[Subscription | Mapping[str, object]]:
    """Return subscriptions one by one, from whatever they are given as."""
    if isinstance(subscriptions, str | PathLike) or is_arrow(subscriptions):
        from tamis.matching.store.tables import rows_of  # noqa: PLC0415 - a costly import

        return rows_of(subscriptions)
    if not isinstance(subscriptions, Iterable):
        raise FilterError(
            "subscriptions are an iterable, an Arrow table or the name of a Parquet file, "
            f"not {subscriptions!r:.60}"
        )
    return cast("Iterable[Subscription | Mapping[str, object]]", subscriptions)


def row_batches(rows: Iterable[GivenRow]) -> Iterator[list[GivenRow]]:
    """Yield some rows at a time; if there is an error on the way, those before it first."""
    left, failure = iter(rows), None
    batch: list[GivenRow] = []
    while failure is None:
        batch = []
        try:
            batch.extend(islice(left, SUBSCRIPTIONS_PER_COMPILATION))
        except BaseException as error:
            failure = error
        yield batch
        if failure is None and len(batch) < SUBSCRIPTIONS_PER_COMPILATION:
            return
    raise failure

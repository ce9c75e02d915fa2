"""Buckets: subscriptions and events partitioned by a key, an attribute most filters pin down.

A subscription belongs to a bucket if every event it matches has a key value in that bucket; only
these events need to meet it. Subscriptions without a bucket meet every event.
"""

from __future__ import annotations

import zlib

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from tamis.filters import Filter
from tamis.filters.atoms import Compare, In
from tamis.filters.boolean import And, Or


def bucket_of(text: str, buckets: int) -> int:
    """Return the bucket of a value."""
    return zlib.crc32(text.encode()) % buckets


def bucket_column(key: Column, buckets: int) -> Column:
    """Return the bucket of a column's values; absent values go to the first, as any would do."""
    return F.coalesce(F.crc32(key.cast("binary")) % buckets, F.lit(0)).cast("int")


def bucket_of_filter(filter_: Filter, key: str, buckets: int) -> int | None:
    """Return the only bucket whose events a filter can match, or None.

    >>> from tamis.languages import parse
    >>> bucket_of_filter(parse('symbol = "ACME" and price < 5'), "symbol", 4)
    2
    >>> bucket_of_filter(parse('symbol = "ACME" or price < 5'), "symbol", 4)
    """
    texts = required_texts(filter_, key)
    found = {bucket_of(text, buckets) for text in texts or ()}
    return found.pop() if len(found) == 1 else None


def required_texts(filter_: Filter, key: str) -> frozenset[str] | None:
    """Return texts such that every matching event has at least one of them in the key, or None.

    For an `and` this is the smallest set, not the intersection: an event may hold several values,
    one for each term.
    """
    match filter_:
        case Compare(attribute=attribute, op="=", value=str(text)) if attribute == key:
            return frozenset((text,))
        case In(attribute=attribute, values=values) if attribute == key:
            found = [value for value in values if isinstance(value, str)]
            return frozenset(found) if len(found) == len(values) else None
        case And(terms=terms):
            sets = [texts for term in terms if (texts := required_texts(term, key)) is not None]
            return min(sets, key=len, default=None)
        case Or(terms=terms):
            return _all_texts([required_texts(term, key) for term in terms])
        case _:
            return None


def _all_texts(sets: list[frozenset[str] | None]) -> frozenset[str] | None:
    known = [texts for texts in sets if texts is not None]
    return frozenset().union(*known) if len(known) == len(sets) else None

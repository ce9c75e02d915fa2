"""What is left to check of subscriptions, in a snapshot: the texts from which it is made again.

A query over documents is parsed when a document has to be checked, not when the file is opened:
most of many thousands never are.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tamis.errors import FilterError
from tamis.events import Schema
from tamis.filters import Mode
from tamis.filters.element_bounds import ELEMENTS, ElementResidual
from tamis.filters.limits import NO_LIMITS
from tamis.filters.translations import Residual, SavableResidual
from tamis.languages import parse
from tamis.matching.store.residual_columns import ResidualColumn, Residuals
from tamis.matching.store.segments import SubscriptionColumns


def residual_arrays(columns: SubscriptionColumns) -> dict[str, NDArray[Any]]:
    """Return what is left as arrays: of which subscriptions, and what; nothing if nothing is."""
    left = columns.left
    if left is None:
        return {}
    places = np.flatnonzero(left.is_left)
    saved = [_saved(columns, left, place) for place in places.tolist()]
    return {
        "residuals.places": places.astype(np.int64),
        "residuals.texts": np.frombuffer(msgspec.json.encode(saved), np.uint8),
    }


def _saved(columns: SubscriptionColumns, left: ResidualColumn, place: int) -> list[Any]:
    residual = left.objects[place]
    found = residual.saved() if isinstance(residual, SavableResidual) else None
    if found is None:
        raise FilterError(
            f"the filter of {columns.ids.objects[place]!r} leaves something to check in Python, "
            "which no snapshot can hold; remove it first, and add it after loading"
        )
    return found


def restored_residuals(
    arrays: dict[str, NDArray[Any]], count: int, schema: Schema | None
) -> Residuals:
    """Return what is left of so many subscriptions, as it was saved."""
    if "residuals.places" not in arrays:
        return None
    texts: list[list[Any]] = msgspec.json.decode(arrays["residuals.texts"].tobytes())
    found = np.full(count, None, np.object_)
    for place, saved in zip(arrays["residuals.places"].tolist(), texts, strict=True):
        found[place] = _restored(saved, schema)
    return found


def _restored(saved: list[Any], schema: Schema | None) -> Residual:
    kind = saved[0]
    if kind == ELEMENTS:
        _, text, mode = saved
        filter_ = parse(text, limits=NO_LIMITS)
        return ElementResidual(
            filter_ if schema is None else filter_.bind(schema), Mode(mode), schema
        )
    from tamis.xml.queries import QueryResidual  # noqa: PLC0415 - needs the extra `xml`

    return QueryResidual.restored(*saved)

"""What is left to check of a segment's subscriptions, in a column beside their programs.

A residual enters, moves and leaves with its subscription, so that a reader who has the one has the
other; most segments have none, and no column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tamis.filters.element_bounds import ElementResidual
from tamis.filters.translations import Residual

Residuals = NDArray[np.object_] | None
"""The residual of each of some subscriptions, None where nothing is left; None: of none of them."""


def residuals_of(given: Sequence[Residual | None]) -> Residuals:
    """Return the residuals of some subscriptions as an array."""
    if all(one is None for one in given):
        return None
    found = np.empty(len(given), np.object_)
    # One by one: NumPy would take a residual that is a tuple apart.
    for place, one in enumerate(given):
        found[place] = one
    return found


def joined_residuals(parts: Sequence[Residuals], sizes: Sequence[int]) -> Residuals:
    """Concatenate the residuals of several sets, given the size of each."""
    if all(part is None for part in parts):
        return None
    filled = [
        np.full(size, None, np.object_) if part is None else part
        for part, size in zip(parts, sizes, strict=True)
    ]
    return np.concatenate(filled)


class ResidualColumn(NamedTuple):
    """The residuals of one segment."""

    objects: NDArray[np.object_]
    is_left: NDArray[np.bool_]
    """For each subscription whether it has one."""
    attributes: frozenset[str]
    """What they want of events that are no documents or objects."""

    @classmethod
    def of(cls, residuals: Residuals) -> Self | None:
        """Return the column; None if nothing is left of any subscription."""
        if residuals is None:
            return None
        is_left = np.fromiter((one is not None for one in residuals), np.bool_, len(residuals))
        if not is_left.any():
            return None
        elements = (one for one in residuals if isinstance(one, ElementResidual))
        attributes = frozenset(name for one in elements for name in one.filter.attributes())
        return cls(residuals, is_left, attributes)

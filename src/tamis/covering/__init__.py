"""Covering: many filters in the order of what covers what, and the widest of them."""

from typing import TYPE_CHECKING

from tamis.lazy import lazy_exports

# Lazily: the relations load Numba.
if TYPE_CHECKING:
    from tamis.covering.exhaustive import ExhaustiveCoveringIndex
    from tamis.covering.forests import CoveringForest
    from tamis.covering.index import CoveringIndex
    from tamis.covering.order import CoveringOrder, Forest, RootChange
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tamis.covering.exhaustive": "ExhaustiveCoveringIndex",
            "tamis.covering.forests": "CoveringForest",
            "tamis.covering.index": "CoveringIndex",
            "tamis.covering.order": "CoveringOrder Forest RootChange",
        },
    )

__all__ = [
    "CoveringForest",
    "CoveringIndex",
    "CoveringOrder",
    "ExhaustiveCoveringIndex",
    "Forest",
    "RootChange",
]

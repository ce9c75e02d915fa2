"""Diagrams: filters as theory-aware decision diagrams, and the relations between filters."""

from typing import TYPE_CHECKING

from tamis.lazy import lazy_exports

# Lazily: languages import this package, and parsing should not load Numba.
if TYPE_CHECKING:
    from tamis.diagrams.relations import (
        Answer,
        Comparison,
        Relationship,
        Space,
        compare,
        covers,
        equivalent,
        intersects,
        is_always,
        is_never,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tamis.diagrams.relations": """
                Answer Comparison Relationship Space compare covers equivalent intersects
                is_always is_never
            """
        },
    )

__all__ = [
    "Answer",
    "Comparison",
    "Relationship",
    "Space",
    "compare",
    "covers",
    "equivalent",
    "intersects",
    "is_always",
    "is_never",
]

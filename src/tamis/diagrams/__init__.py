"""Diagrams: filters as decision diagrams that know the theory, and how filters relate."""

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

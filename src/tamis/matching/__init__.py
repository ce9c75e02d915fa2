"""Matching: subscriptions compiled to shared diagrams, evaluated on many events at a time."""

from tamis.matching.engine import Engine
from tamis.matching.evaluate.metering import MatchingBudget
from tamis.matching.matches import LineMatches, Matches
from tamis.matching.store.additions import Addition
from tamis.matching.subscriptions import Added, Rejected, Subscription
from tamis.matching.warming import load_kernels

__all__ = [
    "Added",
    "Addition",
    "Engine",
    "LineMatches",
    "Matches",
    "MatchingBudget",
    "Rejected",
    "Subscription",
    "load_kernels",
]

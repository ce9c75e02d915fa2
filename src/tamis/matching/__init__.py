"""Matching: subscriptions compiled to shared diagrams, evaluated on many events at a time."""

from tamis.matching.engine import Added, Engine, Rejected, Subscription
from tamis.matching.evaluate.metering import MatchingBudget
from tamis.matching.matches import LineMatches, Matches
from tamis.matching.warming import load_kernels

__all__ = [
    "Added",
    "Engine",
    "LineMatches",
    "Matches",
    "MatchingBudget",
    "Rejected",
    "Subscription",
    "load_kernels",
]

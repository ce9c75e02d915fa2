"""Workloads: subscriptions and events by chance, from a grammar with probabilities."""

from tamis.errors import WorkloadError
from tamis.workloads.workload import Workload, shipped

__all__ = ["Workload", "WorkloadError", "shipped"]

"""Workloads: random subscriptions and events, from a probabilistic grammar."""

from tamis.errors import WorkloadError
from tamis.workloads.workload import Workload, shipped

__all__ = ["Workload", "WorkloadError", "shipped"]

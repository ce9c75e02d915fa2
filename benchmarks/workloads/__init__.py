"""Seeded workloads: subscriptions and events, as Tamis sees them and as flat arrays."""

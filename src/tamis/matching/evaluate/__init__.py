"""Evaluation: compiled subscriptions on a batch of events, or on one event."""

"""Subscriptions: how they come into force, change and end; the past."""

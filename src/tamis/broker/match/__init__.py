"""Matching: which subscriptions each stored event satisfies."""

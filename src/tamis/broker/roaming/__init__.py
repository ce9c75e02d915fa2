"""Roaming: durable subscriptions that move from one broker to another, with all that waits."""

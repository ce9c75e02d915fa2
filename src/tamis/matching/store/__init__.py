"""The store of subscriptions: segments, and snapshot files."""

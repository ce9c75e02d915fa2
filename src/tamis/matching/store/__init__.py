"""The store of subscriptions: segments that come and go, and snapshot files."""

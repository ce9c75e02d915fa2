"""Streams: micro-batches pinned to a version and written exactly once."""

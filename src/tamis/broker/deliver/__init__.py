"""Delivery: queues, connections, acknowledgements and dead letters."""

"""Queries: sources that advertise data, those who ask them, and the router between."""

"""The broker under a seeded scheduler, with simulated time, threads, disk and clients.

`run.py` runs one seed or many, `world.py` puts the pieces together, and `checker.py` knows what the
broker promises. See docs/concepts/simulation.md.
"""

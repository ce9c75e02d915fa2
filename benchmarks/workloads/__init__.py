"""Seeded workloads as filters for Tamis and as flat arrays for the baselines.

The shipped workloads of `tamis.workloads` draw the paper's filters and the conjunctions
(`drawn.py`). Boolean expressions have a generator of their own, see `boolean.py`.
"""

"""Benchmarks: seeded, alternatives side by side in one run, medians of at least five."""

"""Matching and generating files: splits, readers, generated workloads."""

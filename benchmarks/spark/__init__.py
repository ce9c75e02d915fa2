"""Matching on Spark, and what one would do without Tamis."""

"""Matching a DataFrame against a library: the plan, the job, what workers do."""

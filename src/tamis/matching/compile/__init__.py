"""Compilation: filters to programs, diagrams, a graph and posting lists."""

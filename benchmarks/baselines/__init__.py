"""What the engine is compared with: published algorithms, one event at a time, in Numba."""

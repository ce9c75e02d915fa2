"""Published algorithms to compare the engine with, one event at a time, in Numba.

They deliberately share no code with `tamis.matching` and `tamis.diagrams`, though some loops look
alike (hashing, postfix programs, `apply` of a BDD): a peer that ran our kernels would get faster
and slower with them, and share their bugs.
"""

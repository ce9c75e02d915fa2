"""Bugs to plant: each is a small change of the broker that the simulation must find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {}

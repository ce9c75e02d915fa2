"""An object for another process, which imports nothing before it is asked to."""

from __future__ import annotations

from importlib import import_module


class Where:
    """Knows where a package is."""

    def is_tamis(self) -> str:
        """Return the file of the package that this process imports."""
        return str(import_module("tamis").__file__)

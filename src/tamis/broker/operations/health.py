"""Whether the broker can do its work, in sentences."""

from __future__ import annotations

from tamis.errors import RefusedError, StorageError, StorageFullError
from tamis.protocol import Code


def refusal(error: StorageError) -> RefusedError:
    """Return what clients are told when something could not be stored."""
    code = Code.STORAGE_FULL if isinstance(error, StorageFullError) else Code.UNAVAILABLE
    return RefusedError(code, f"nothing was stored: {error}")


class Health:
    """What is wrong at the moment, and what recovery found."""

    def __init__(self) -> None:
        self.is_open = False
        self.recovery = ""
        self._problems: dict[str, str] = {}
        self._warnings: dict[str, str] = {}

    @property
    def ready(self) -> bool:
        """Tell whether publications are taken."""
        return self.is_open and not self._problems

    @property
    def obstacles(self) -> list[str]:
        """Return why publications are not taken; more than this is for administrators alone."""
        return [*self._problems]

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each thing that is wrong."""
        return [
            f"{what}: {why}" for what, why in (*self._problems.items(), *self._warnings.items())
        ]

    def report(self, what: str, why: str) -> None:
        """Note that something is wrong."""
        self._problems[what] = why

    def warn(self, what: str, why: str) -> None:
        """Note that something is wrong with which the broker can do its work."""
        self._warnings[what] = why

    def clear(self, what: str) -> None:
        """Note that it is right again."""
        self._problems.pop(what, None)
        self._warnings.pop(what, None)

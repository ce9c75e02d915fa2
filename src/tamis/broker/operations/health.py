"""Health: whether the broker can do its work, in sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tamis.broker.operations.logs import get_logger
from tamis.errors import RefusedError, StorageError, StorageFullError
from tamis.protocol import Code

LOG: Final = get_logger("tamis.broker")

OUTCOME_UNKNOWN: Final = (
    "the broker's storage fails, and whether the events are stored is not known: publish them "
    "again; under the same publisher and number they are stored only once"
)


def storage_refusal(error: StorageError) -> RefusedError:
    """Return the refusal that a client gets when something could not be stored.

    Files are named in the log only.
    """
    if not error.is_outcome_known:
        LOG.error("what was to be stored may be there after a restart", reason=str(error))
        return RefusedError(Code.UNAVAILABLE, OUTCOME_UNKNOWN)
    LOG.error("nothing was stored", reason=str(error))
    code = code_of(error)
    why = "disk is full" if code == Code.STORAGE_FULL else "storage fails"
    return RefusedError(code, f"nothing was stored: the broker's {why}")


def code_of(error: StorageError) -> Code:
    """Return the code of a refusal for something that could not be stored."""
    return Code.STORAGE_FULL if isinstance(error, StorageFullError) else Code.UNAVAILABLE


class Health:
    """The current problems of a broker, and the result of its recovery."""

    def __init__(self) -> None:
        self.is_open = False
        self.recovery = ""
        self.accepts = False
        """Whether publications are looked at; otherwise they are refused."""
        self._failures: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._codes: dict[str, Code] = {}
        self._warnings: dict[str, str] = {}
        self._when_refusing: list[Callable[[], None]] = []

    @property
    def ready(self) -> bool:
        """Return whether publications are probably stored."""
        return self.accepts and not self._failures

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each problem."""
        all_ = self._problems | self._failures | self._warnings
        return [f"{what}: {why}" for what, why in all_.items()]

    def set_open(self, is_open: bool) -> None:
        """Note whether the broker has started and is not stopping."""
        self.is_open = is_open
        self.accepts = is_open and not self._problems

    def report(self, what: str, why: str, code: Code = Code.UNAVAILABLE) -> None:
        """Note a problem that prevents publishing; publishers are refused with this code."""
        self._problems[what] = why
        self._codes[what] = code
        self.accepts = False
        for tell in self._when_refusing:
            tell()

    def when_refusing(self, tell: Callable[[], None]) -> None:
        """Call this whenever a problem is reported that prevents publishing."""
        self._when_refusing.append(tell)

    def fail(self, what: str, why: str) -> None:
        """Note a problem that prevented publishing, until a publication is tried again."""
        self._failures[what] = why

    def warn(self, what: str, why: str) -> None:
        """Note a problem that the broker can work with."""
        self._warnings[what] = why

    def clear(self, what: str) -> None:
        """Note that a problem is over."""
        for problems in (self._problems, self._failures, self._warnings):
            problems.pop(what, None)
        self.accepts = self.is_open and not self._problems

    def refusal(self) -> RefusedError:
        """Return why publications are not accepted; details are for administrators only."""
        why = "; ".join(self._problems) or "the broker is starting or stopping"
        codes = {self._codes[what] for what in self._problems}
        code = Code.STORAGE_FULL if Code.STORAGE_FULL in codes else Code.UNAVAILABLE
        return RefusedError(code, f"nothing was stored: {why}")

"""Reports when somebody sets the clock of the machine."""

from __future__ import annotations

from typing import Final

from tamis.broker.operations.health import Health
from tamis.broker.operations.logs import get_logger
from tamis.ports import TRUST_SECONDS, CautiousClock, ClockJump

LOG: Final = get_logger("tamis.broker")

JUMP: Final = "the clock of the machine was set"


class ClockWatch:
    """Reports jumps of the machine's clock."""

    def __init__(self, clock: CautiousClock, health: Health) -> None:
        self._clock = clock
        self._health = health
        self._reported: ClockJump | None = None

    def look(self) -> None:
        """Report a new jump, and the end of one."""
        self._clock.time()
        jump, self._reported, before = self._clock.jump, self._clock.jump, self._reported
        if jump is before:
            return
        if jump is None:
            self._health.clear(JUMP)
            LOG.warning("the clock is followed again")
            return
        minutes = TRUST_SECONDS / 60
        why = (
            f"by {jump.seconds:+,.0f} s; until it has stayed like this for {minutes:.0f} minutes, "
            "events get the time as it was before, and none is removed for its age"
        )
        self._health.warn(JUMP, why)
        LOG.warning(JUMP, seconds=round(jump.seconds, 1))

"""How fast a principal may publish."""

from __future__ import annotations

from math import isinf

from tamis.access import Cost, RateLimiter, Rights
from tamis.errors import RefusedError
from tamis.protocol import Code


class PublishingQuota:
    """The quotas of events and bytes per second."""

    def __init__(self, rates: RateLimiter) -> None:
        self._rates = rates

    def take(self, principal: str, rights: Rights, events: int, size: int) -> None:
        """Take events and their bytes from the quotas, or refuse them and take nothing."""
        costs = _costs(principal, rights, events, size)
        for what, cost in costs.items():
            if events > 1 and cost.amount > cost.bucket_size:
                raise RefusedError(
                    Code.TOO_LARGE,
                    f"{cost.amount:,.0f} {what} at once exceed the quota of {cost.rate:,g} {what} "
                    f"a second; publish at most {cost.bucket_size:,.0f} at once",
                )
        self._refuse_if_exceeded(principal, costs, self._rates.take_all([*costs.values()]))

    def check(self, principal: str, rights: Rights, size: int) -> None:
        """Refuse a body of this many bytes if not even one event of it could be stored now."""
        costs = _costs(principal, rights, 1, size)
        self._refuse_if_exceeded(principal, costs, self._rates.wait_for([*costs.values()]))

    def _refuse_if_exceeded(self, principal: str, costs: dict[str, Cost], wait: float) -> None:
        if wait > 0:
            quota = " or ".join(
                f"{cost.rate:,g} {what}" for what, cost in costs.items() if not isinf(cost.rate)
            )
            raise RefusedError(
                Code.TOO_MANY,
                f"{principal} publishes more than {quota} a second; try again in {wait:.1f} s",
                retry_after=wait,
            )


def _costs(principal: str, rights: Rights, events: int, size: int) -> dict[str, Cost]:
    limits = rights.limits
    return {
        "events": Cost((principal, "events"), limits.publications, events),
        "bytes": Cost((principal, "bytes"), limits.bytes, size),
    }

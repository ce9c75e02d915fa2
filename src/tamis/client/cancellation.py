"""Functions of users may await tasks of their own, and meet the cancellation of those."""

from __future__ import annotations

import asyncio


def cancellations() -> int:
    """Return how often this task has been asked to end, whether it heeded that or not."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def is_cancelled(error: BaseException, before: int) -> bool:
    """Return whether an error says that this task is cancelled, not something it has awaited.

    `before` is how often it had been asked to before it awaited that.
    """
    return isinstance(error, asyncio.CancelledError) and cancellations() > before

"""Functions of users may await tasks of their own, and meet the cancellation of those."""

from __future__ import annotations

import asyncio


def is_cancelled(error: BaseException) -> bool:
    """Return whether an error says that this task is cancelled, not something it has awaited."""
    task = asyncio.current_task()
    is_cancellation = isinstance(error, asyncio.CancelledError)
    return is_cancellation and task is not None and task.cancelling() > 0

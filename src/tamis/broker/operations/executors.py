"""The executors of a broker: each kind of work has its own threads and waits for no other."""

from __future__ import annotations

from typing import NamedTuple, Self

from tamis.ports import Executor, PromptExecutor, ThreadExecutor


class Executors(NamedTuple):
    """Where the broker's blocking work runs."""

    commit: PromptExecutor
    """Writes the log: publishers wait for it."""
    match: Executor
    """Matches, and changes subscriptions between two batches."""
    settle: Executor
    """Writes the outcomes of deliveries."""
    deliver: Executor
    """Reads events and queues for subscribers that are connected."""
    decode: Executor
    """Decodes large publications."""
    client: Executor
    """Answers questions of clients: history, trials, dead letters, counts."""
    background: Executor
    """Replays and chores, which nobody waits for."""
    administration: Executor
    """Tokens, audit and metrics: few, and they must not wait for clients."""

    route: Executor
    """Keeps the tables of filters that go to other brokers."""

    @classmethod
    def threads(cls) -> Self:
        """Return executors with threads."""
        return cls(
            commit=ThreadExecutor("commit"),
            match=ThreadExecutor("match"),
            settle=ThreadExecutor("settle"),
            deliver=ThreadExecutor("deliver", 2),
            decode=ThreadExecutor("decode"),
            client=ThreadExecutor("client", 2),
            background=ThreadExecutor("background"),
            administration=ThreadExecutor("administration"),
            route=ThreadExecutor("route"),
        )

    def close(self) -> None:
        """Accept no more work."""
        for executor in self:
            executor.close()

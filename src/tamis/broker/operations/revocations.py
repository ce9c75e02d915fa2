"""Revocations: tokens are refused at once; that they are is written to disk as soon as possible."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from tamis.broker.operations.health import Health, code_of
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.supervisor import Supervisor
from tamis.errors import RefusedError, StorageError
from tamis.ports import Executor
from tamis.storage import StateStore

LOG: Final = get_logger("tamis.broker")

RETRY_SECONDS: Final = 0.5
PROBLEM: Final = "the revocation of a token cannot be stored"


class Revocation(NamedTuple):
    """A token that was revoked, and by whom."""

    hash: bytes
    id: str
    principal: str
    time: float
    by: str


class RevocationWriter:
    """Writes revocations of tokens that are refused already, as often as it takes."""

    def __init__(
        self, state: StateStore, health: Health, executor: Executor, supervisor: Supervisor
    ) -> None:
        self._state = state
        self._health = health
        self._executor = executor
        self._supervisor = supervisor
        self._unwritten: deque[Revocation] = deque()

    async def write(self, revocation: Revocation) -> None:
        """Write a revocation; if that fails, try again later and refuse with what follows."""
        # Whoever asked may go meanwhile; then it is written nevertheless.
        writing = self._supervisor.start("revocation", self._write_once(revocation))
        error = await asyncio.shield(writing)
        if error is not None:
            raise RefusedError(
                code_of(error),
                "the token is refused from now on, but that could not be stored; the broker keeps "
                "trying, and until it succeeds, a restart would make the token valid again",
            ) from error

    async def _write_once(self, revocation: Revocation) -> StorageError | None:
        """Write a revocation, or return why it is to be written later."""
        try:
            await self._executor.run(self._write, revocation)
        except StorageError as error:
            self._unwritten.append(revocation)
            self._report(error)
            if len(self._unwritten) == 1:
                self._supervisor.restart("revocation writer", self._write_all)
            return error
        except asyncio.CancelledError:
            # The broker stops, and tries once more before it does.
            self._unwritten.append(revocation)
            raise
        return None

    async def close(self) -> None:
        """Try once more to write what is not written."""
        for revocation in self._unwritten:
            try:
                await self._executor.run(self._write, revocation)
            except StorageError as error:
                LOG.critical("revoked token valid again", token=revocation.id, reason=str(error))

    async def _write_all(self) -> None:
        while self._unwritten:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._executor.run(self._write, self._unwritten[0])
            except StorageError as error:
                self._report(error)
            else:
                self._unwritten.popleft()
        self._health.clear(PROBLEM)

    def _write(self, revocation: Revocation) -> None:
        self._state.revoke_token(revocation.hash, revocation.time)
        detail = f"{revocation.id} of {revocation.principal}"
        self._state.add_audit(revocation.time, revocation.by, "revoke token", detail)

    def _report(self, error: StorageError) -> None:
        ids = ", ".join(one.id for one in self._unwritten)
        self._health.warn(PROBLEM, f"{error}; refused until a restart: {ids}")
        LOG.error(PROBLEM, tokens=ids, reason=str(error))

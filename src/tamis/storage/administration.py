"""Tokens and administrative acts, as the state stores them."""

from __future__ import annotations

import sqlite3

from tamis.errors import StorageError
from tamis.storage.state_base import StateBase
from tamis.storage.tables import AUDIT, TOKENS, AuditEntry, StoredToken


class AdministrationTables(StateBase):
    """The part of the state that administrators read and write."""

    def add_token(self, token: StoredToken) -> None:
        """Add a token."""
        with self._change(lasting=True) as (connection, counters, *_):
            try:
                connection.execute(TOKENS.insert, TOKENS.row(token))
            except sqlite3.IntegrityError:
                raise StorageError(self._path, "this token already exists") from None
            counters.tokens += 1

    def tokens(self) -> list[StoredToken]:
        """Return all tokens, oldest first; report and skip damaged ones."""
        rows = self._whole(TOKENS, self._rows(f"{TOKENS.select} ORDER BY created_at, hash"))
        return [StoredToken(*row[:-1]) for row in rows]

    def revoke_token(self, hash_: bytes, revoked_at: float) -> bool:
        """Revoke a token; False if no valid one has this id."""
        with self._change(lasting=True) as (connection, *_):
            rows = connection.execute(f"{TOKENS.select} WHERE hash = ?", (hash_,))
            found = [StoredToken(*row[:-1]) for row in self._whole(TOKENS, rows)]
            holding = [token for token in found if token.revoked_at > revoked_at]
            for token in holding:
                row = TOKENS.row(token._replace(revoked_at=revoked_at))
                connection.execute(TOKENS.replace, row)
        return bool(holding)

    def add_audit(self, time: float, principal: str, act: str, detail: str) -> int:
        """Record an administrative act; return its number, one more than the last."""
        with self._change(lasting=True) as (connection, counters, *_):
            counters.audit += 1
            row = AUDIT.row((counters.audit, time, principal, act, detail))
            connection.execute(AUDIT.insert, row)
            return counters.audit

    def audit(self, after: int, limit: int) -> list[AuditEntry]:
        """Return administrative acts after a number."""
        rows = self._rows(
            f"{AUDIT.select} WHERE number > ? ORDER BY number LIMIT ?", (after, limit)
        )
        return [AuditEntry(*row[:-1]) for row in self._whole(AUDIT, rows)]

"""Administration: tokens, the audit log, the broker's state."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import Any

from tamis.access import TokenRecord
from tamis.broker.operations.revocations import Revocation
from tamis.broker.sessions.base import SessionBase
from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.protocol.management import (
    MAX_PAGE_ITEMS,
)
from tamis.protocol.views import (
    AuditEntryView,
    IssuedTokenView,
    PeerView,
    TokenView,
    TopologyView,
)


class Administration(SessionBase):
    """What a session of an administrator may do."""

    async def issue_token(
        self,
        principal: str,
        roles: Sequence[str] = (),
        lifetime: float | None = None,
        note: str = "",
        undefined_roles: bool = False,
    ) -> IssuedTokenView:
        """Issue a token; return it with its description. Its text is shown once."""
        self._require_admin()
        if not undefined_roles and self._services.settings.tokens_required:
            self._services.access_control.policy.require_roles(roles)
        text, record = await self._services.access_control.issue(
            principal, tuple(roles), lifetime, note
        )
        await self._note("issue token", f"{record.id} for {principal}")
        return IssuedTokenView(text, _token_view(record))

    async def revoke_token(self, token_id: str) -> None:
        """Revoke a token, and end the sessions that use it."""
        self._require_admin()
        services = self._services
        refused = services.access_control.refuse(token_id)
        if refused is None:
            raise RefusedError(Code.NOT_FOUND, f"there is no token {token_id!r:.40}")
        # Whatever the disk does now, the token is worth nothing.
        services.end_invalid_sessions()
        await services.revocation_writer.write(
            Revocation(
                refused.hash, token_id, refused.principal, services.clock(), self.principal.name
            )
        )

    async def tokens(self) -> list[TokenView]:
        """Return the descriptions of the tokens."""
        self._require_admin()
        return [_token_view(record) for record in self._services.access_control.tokens()]

    async def audit(self, after: int = 0, limit: int = 100) -> list[AuditEntryView]:
        """Return administrative acts after a number."""
        self._require_admin()
        state = self._services.store.state
        found = await self._services.executors.administration.run(
            state.audit, after, min(limit, MAX_PAGE_ITEMS)
        )
        return [AuditEntryView(**entry._asdict()) for entry in found]

    async def peers(self) -> list[PeerView]:
        """Return the links to other brokers."""
        self._require_admin()
        return await self._services.overlay().views()

    async def add_peer(
        self, url: str, token: str | None = None, role: str | None = None
    ) -> PeerView:
        """Link the broker to another."""
        self._require_admin()
        added = await self._services.overlay().add(url, token, role)
        await self._note("add peer", url)
        return added

    async def remove_peer(self, peer: str) -> None:
        """Remove a link with what waits for the other broker."""
        self._require_admin()
        await self._services.overlay().remove(peer)
        await self._note("remove peer", peer)

    async def topology(self) -> TopologyView:
        """Return all brokers that can be reached over links."""
        self._require_admin()
        return await self._services.overlay().topology()

    async def status(self) -> dict[str, Any]:
        """Return the broker's state and its main counters."""
        self._require_admin()
        return self._services.status()

    def _require_admin(self) -> None:
        self._require_open()
        if not self.rights.is_admin:
            raise RefusedError(Code.FORBIDDEN, "only administrators may do this")

    async def _note(self, act: str, detail: str) -> None:
        state, now = self._services.store.state, self._services.clock()
        await self._services.executors.administration.run(
            state.add_audit, now, self.principal.name, act, detail
        )


def _token_view(record: TokenRecord) -> TokenView:
    return TokenView(
        id=record.id,
        principal=record.principal,
        roles=[*record.roles],
        created_at=record.created_at,
        expires_at=None if isinf(record.expires_at) else record.expires_at,
        note=record.note,
    )

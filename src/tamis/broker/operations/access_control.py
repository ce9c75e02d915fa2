"""Authentication and rights: tokens, JWTs and the policy file, as they are now."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Final

from tamis.access import (
    ANONYMOUS,
    Authenticator,
    Policy,
    Principal,
    Rights,
    TokenRecord,
    issue_token,
)
from tamis.access.tokens import Verifier, invalid_token
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.settings import BrokerSettings
from tamis.errors import AccessError, PolicyError
from tamis.events import Schema
from tamis.ports import CautiousClock, Executor, RandomBytes, system_random
from tamis.protocol import Code
from tamis.storage import NEVER, StateStore, StoredToken

LOG: Final = get_logger("tamis.access")

NO_LONGER_VALID: Final = "the credential is no longer valid"


class AccessControl:
    """The tokens and the policy of a broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        state: StateStore,
        schema: Schema | None,
        clock: CautiousClock,
        executor: Executor,
        *,
        random: RandomBytes = system_random,
    ) -> None:
        self._random = random
        self._executor = executor
        self._settings = settings
        self._state = state
        self._schema = schema
        self._clock = clock
        self._tokens = {record.hash: record for record in map(_record, _valid(state))}
        self._token_ids = {record.id for record in self._tokens.values()}
        now, passed = clock.time(), clock.monotonic()
        self._ends = {
            record.id: passed + record.expires_at - record.created_at
            for record in self._tokens.values()
            if record.created_at > now
        }
        """When tokens end that were issued since the start, by id and the monotonic clock.

        The clock by which they got their time may have been wrong. One that seems to be issued in
        the future lasts as long as it was meant to, from the start on.
        """
        self._stamp = self._last_seen = _stamp(settings.policy)
        self.policy = self._read_policy()
        self._authenticator = Authenticator(
            self._tokens.get, clock=clock.latest, verifier=_verifier(settings, clock.latest)
        )

    def authenticate(self, token: str | None) -> Principal:
        """Return the principal of a token; anonymous if the settings require none."""
        if token:
            principal = self._authenticator.authenticate(token)
            if self._has_run_out(principal):
                raise invalid_token(f"the token of {principal.name!r} has expired")
            return principal
        if self._settings.tokens_required:
            raise AccessError(Code.UNAUTHENTICATED, "a token is required")
        return ANONYMOUS

    def rights(self, principal: Principal) -> Rights:
        """Return the current rights of a principal."""
        return self.policy.rights(principal)

    def is_welcome(self, principal: Principal) -> bool:
        """Return whether a principal who was admitted earlier would be admitted now."""
        is_revoked = principal.credential and principal.credential not in self._token_ids
        is_expired = principal.expires_at <= self._clock.latest() or self._has_run_out(principal)
        return not (is_revoked or is_expired or self.policy.blocks(principal))

    # --- tokens ----------------------------------------------------------------------------------

    async def issue(
        self, principal: str, roles: tuple[str, ...], lifetime: float | None, note: str
    ) -> tuple[str, TokenRecord]:
        """Issue a token; its text is never shown again."""
        lasts, asked_at = inf if lifetime is None else lifetime, self._clock.monotonic()
        text, record = issue_token(
            principal,
            roles,
            now=self._clock.time(),
            lifetime=lasts,
            note=note,
            random=self._random,
        )
        await self._executor.run(self._state.add_token, _stored(record))
        self._tokens[record.hash] = record
        self._token_ids.add(record.id)
        if lifetime is not None:
            self._ends[record.id] = asked_at + lifetime
        return text, record

    def _has_run_out(self, principal: Principal) -> bool:
        """Return whether the lifetime of a token is over, whatever the clock says."""
        return self._ends.get(principal.credential, inf) <= self._clock.monotonic()

    def refuse(self, id_: str) -> TokenRecord | None:
        """Refuse a token from now on, and return its description; nothing is written."""
        found = next((record for record in self._tokens.values() if record.id == id_), None)
        if found is not None:
            self._tokens.pop(found.hash, None)
            self._token_ids.discard(id_)
            self._ends.pop(id_, None)
        return found

    def tokens(self) -> list[TokenRecord]:
        """Return the descriptions of the valid tokens."""
        return sorted(self._tokens.values(), key=lambda record: record.created_at)

    # --- the policy file -------------------------------------------------------------------------

    def reload(self) -> bool:
        """Reread the policy file if it has changed; return whether it has.

        It is read once it has been found unchanged twice: a file that is still being written may
        allow more than its final content. A file that cannot be used leaves the policy unchanged.
        """
        stamp, last_seen = _stamp(self._settings.policy), self._last_seen
        self._last_seen = stamp
        if stamp == self._stamp or stamp != last_seen:
            return False
        self._stamp = stamp
        self.policy = self._read_policy()
        return True

    def _read_policy(self) -> Policy:
        if self._settings.policy is None:
            if not self._settings.tokens_required:
                return Policy.open(self._schema)
            raise PolicyError(
                "tokens are needed, but no policy says what their holders may do; give one with "
                "the setting policy",
                source="the settings",
            )
        policy = Policy.load(self._settings.policy, schema=self._schema)
        for warning in policy.warnings:
            LOG.warning("the policy may be mistaken", detail=warning)
        return policy


def _stamp(path: Path | None) -> tuple[int, ...] | None:
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    # Tools that preserve the modification time change the inode, or at least the time of its last
    # change.
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _verifier(settings: BrokerSettings, clock: Callable[[], float]) -> Verifier | None:
    if settings.jwt_keys is None:
        return None
    from tamis.access.jwt import JwtSettings, JwtVerifier  # noqa: PLC0415 - takes a while to load

    wanted = JwtSettings(
        issuer=settings.jwt_issuer or "",
        audience=settings.jwt_audience or "",
        algorithms=tuple(settings.jwt_algorithms),
        name_claim=settings.jwt_name_claim,
        roles_claim=tuple(settings.jwt_roles_claim),
        roles=tuple(settings.jwt_roles) or None,
        leeway=settings.jwt_leeway,
    )
    return JwtVerifier.load(wanted, settings.jwt_keys, clock=clock)


def _valid(state: StateStore) -> list[StoredToken]:
    return [token for token in state.tokens() if token.revoked_at == NEVER]


def _record(token: StoredToken) -> TokenRecord:
    roles, _, note = token.label.partition("\n")
    return TokenRecord(
        hash=token.hash,
        principal=token.principal,
        roles=tuple(filter(None, roles.split(","))),
        created_at=token.created_at,
        expires_at=token.expires_at,
        note=note,
    )


def _stored(record: TokenRecord) -> StoredToken:
    label = f"{','.join(record.roles)}\n{record.note}"
    return StoredToken(
        record.hash, record.principal, record.created_at, record.expires_at, NEVER, label
    )

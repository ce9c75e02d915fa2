"""Tokens: long random texts that identify a principal; only their hash is stored."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from tamis.access.roles import Principal, is_name, is_role
from tamis.errors import AccessError
from tamis.ports import RandomBytes, system_random

# A fixed prefix, so that secret scanners can recognise a token.
PREFIX: Final = "tamis_"
RANDOM_BYTES: Final = 32
_TOKEN: Final = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}", re.ASCII)


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored record of a token, from which the token cannot be recovered.

    A plain hash is enough: slow hashes protect passwords, but 256 random bits cannot be guessed.
    For the same reason the records can be looked up by the hash.
    """

    hash: bytes
    """SHA-256 of the token's text."""
    principal: str
    roles: tuple[str, ...] = ()
    created_at: float
    expires_at: float = math.inf
    note: str = ""

    @property
    def id(self) -> str:
        """Return the id of the token, for lists and revocation."""
        return self.hash[:8].hex()


class IssuedToken(NamedTuple):
    """A new token: its text, to be shown once, and its record."""

    text: str
    record: TokenRecord

    def __repr__(self) -> str:
        return f"IssuedToken(id={self.record.id!r})"


def issue_token(
    principal: str,
    roles: Iterable[str] = (),
    *,
    now: float,
    lifetime: float = math.inf,
    note: str = "",
    random: RandomBytes = system_random,
) -> IssuedToken:
    """Return a new token for a principal; `lifetime` is in seconds."""
    if not is_name(principal):
        raise AccessError(
            "bad_request", "a principal's name has 1 to 200 printable characters, and no others"
        )
    given = tuple(roles)
    if not all(map(is_role, given)):
        raise AccessError(
            "bad_request", "a role's name has 1 to 100 letters, digits and characters of _.:/-"
        )
    text = PREFIX + urlsafe_b64encode(random(RANDOM_BYTES)).rstrip(b"=").decode()
    record = TokenRecord(
        hash=hash_token(text),
        principal=principal,
        roles=given,
        created_at=now,
        expires_at=now + lifetime,
        note=note,
    )
    return IssuedToken(text, record)


def hash_token(text: str) -> bytes:
    """Return the hash of a token's text."""
    return hashlib.sha256(text.encode()).digest()


def invalid_token(reason: str) -> AccessError:
    """Return the error for every invalid credential; only the log has the reason."""
    return AccessError("unauthenticated", "the token is not valid", reason=reason)


class Verifier(Protocol):
    """A verifier of another kind of credential, such as `JwtVerifier`."""

    def verify(self, text: str) -> Principal:
        """Return the principal of a credential, or refuse it."""


class Authenticator:
    """Identifies the principal of a credential: a Tamis token, or one that the verifier knows.

    >>> issued = issue_token("ann", ["trader"], now=0.0)
    >>> kept = {issued.record.hash: issued.record}
    >>> Authenticator(kept.get, clock=lambda: 5.0).authenticate(issued.text)
    Principal(name='ann', roles=('trader',), expires_at=inf, credential='...')
    """

    def __init__(
        self,
        find: Callable[[bytes], TokenRecord | None],
        *,
        clock: Callable[[], float],
        verifier: Verifier | None = None,
    ) -> None:
        """Make an authenticator; `find` returns the record of a token by its hash."""
        self._find: Final = find
        self._clock: Final = clock
        self._verifier: Final = verifier

    def authenticate(self, text: str) -> Principal:
        """Return the principal of a credential, or refuse it, always with the same message."""
        if text.startswith(PREFIX):
            return self._principal_of_token(text)
        if self._verifier is None:
            raise invalid_token("it is not a Tamis token, and no other kind is configured")
        return self._verifier.verify(text)

    def _principal_of_token(self, text: str) -> Principal:
        if not _TOKEN.fullmatch(text):
            raise invalid_token("it does not look like a token")
        hash_ = hash_token(text)
        record = self._find(hash_)
        if record is None or not hmac.compare_digest(record.hash, hash_):
            raise invalid_token("there is no such token")
        if record.expires_at <= self._clock():
            raise invalid_token(f"token {record.id} of {record.principal!r} has expired")
        return Principal(record.principal, record.roles, record.expires_at, record.id)

"""JSON Web Tokens from an issuer that the broker trusts.

Not imported with the rest of `access`: the cryptography behind it takes a while to load.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, KeySet, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from tamis.access.roles import Principal, is_name
from tamis.access.tokens import invalid_token
from tamis.errors import AccessError, PolicyError

# Algorithms, and the keys that each works with. There is no `none`.
SECRET_KEY_ALGORITHMS: Final = frozenset({"HS256", "HS384", "HS512"})
PUBLIC_KEY_ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"}
)

MAX_TOKEN_CHARACTERS: Final = 16 * 1024
MIN_SECRET_BYTES: Final = 32
MIN_RSA_BITS: Final = 2048


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The trusted issuer of JWTs, and the claims to read."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...]
    """The issuer's algorithms, for secret keys or for public ones, not both."""
    name_claim: str = "sub"
    """The claim with the principal's name. A Tamis token of that name is the same principal."""
    roles_claim: tuple[str, ...] = ("roles",)
    """The claim with the roles; several names are a path to a nested claim."""
    roles: tuple[str, ...] | None = None
    """The roles that a JWT may grant; None for all roles of the policy."""
    leeway: int = 30
    """Tolerated clock difference to the issuer, in seconds."""


class JwtVerifier:
    """A verifier of JWTs that are signed with one of several keys."""

    def __init__(
        self,
        settings: JwtSettings,
        keys: KeySet | Key,
        *,
        clock: Callable[[], float],
        source: str = "JWT",
    ) -> None:
        """Make a verifier; errors in the settings or keys name `source`."""
        self._settings: Final = settings
        self._keys: Final = keys
        self._clock: Final = clock
        _check_settings(settings, keys, source)
        self._registry: Final = JWSRegistry(
            algorithms=settings.algorithms,
            strict_check_header=False,  # RFC 7515 requires to ignore unknown ones.
        )
        self._claims: Final = jwt.JWTClaimsRegistry(
            now=lambda: int(clock()),
            leeway=settings.leeway,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.audience},
            exp={"essential": True},
        )

    @classmethod
    def load(
        cls, settings: JwtSettings, path: str | PathLike[str], *, clock: Callable[[], float]
    ) -> JwtVerifier:
        """Make a verifier with the keys in a file: a JSON Web Key Set, or a public key in PEM."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise PolicyError(f"it cannot be read: {error.strerror}", source=str(path)) from None
        return cls(settings, read_keys(data, str(path)), clock=clock, source=str(path))

    def verify(self, text: str) -> Principal:
        """Return the principal of a JWT, or refuse it with a reason for the log only."""
        if len(text) > MAX_TOKEN_CHARACTERS:
            raise invalid_token(f"it has {len(text):,} characters")
        try:
            return self._verify(text)
        except AccessError:
            raise
        except Exception as error:
            # Any exception of the library on bad input is a refusal.
            raise invalid_token(f"{type(error).__name__}: {error!s:.200}") from None

    def _verify(self, text: str) -> Principal:
        token = jwt.decode(text, self._keys, registry=self._registry)
        self._claims.validate(token.claims)
        name = token.claims.get(self._settings.name_claim)
        if not is_name(name):
            raise invalid_token(f"the claim {self._settings.name_claim!r} is not a name")
        expires_at = float(token.claims["exp"]) + self._settings.leeway
        return Principal(str(name), self._roles(token.claims), expires_at)

    def _roles(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        found: object = claims
        for step in self._settings.roles_claim:
            found = found.get(step) if isinstance(found, Mapping) else None
        given = found.split() if isinstance(found, str) else found
        roles = tuple(r for r in given if isinstance(r, str)) if isinstance(given, list) else ()
        allowed = self._settings.roles
        return roles if allowed is None else tuple(r for r in roles if r in allowed)


def read_keys(data: bytes, source: str) -> KeySet | Key:
    """Return the keys of a JSON Web Key Set by `kid`, or the one key of a PEM file."""
    try:
        if data.lstrip().startswith(b"{"):
            return KeySet.import_key_set(json.loads(data))
        return _read_pem(data)
    except (JoseError, ValueError, KeyError, TypeError) as error:
        raise PolicyError(
            f"there are no keys in it: {error!s:.200}; it should be a JSON Web Key Set, or one "
            "public key in PEM",
            source=source,
        ) from None


def _read_pem(data: bytes) -> Key:
    for type_ in (RSAKey, ECKey, OKPKey):
        try:
            return type_.import_key(data)
        except JoseError:
            continue
    raise ValueError("this type of key cannot sign")


def _check_settings(settings: JwtSettings, keys: KeySet | Key, source: str) -> None:
    wanted = set(settings.algorithms)
    if not wanted or not (wanted <= SECRET_KEY_ALGORITHMS or wanted <= PUBLIC_KEY_ALGORITHMS):
        raise PolicyError(
            f"the algorithms {sorted(wanted)} cannot be used: name some of "
            f"{sorted(PUBLIC_KEY_ALGORITHMS)}, or some of {sorted(SECRET_KEY_ALGORITHMS)}, and not "
            "of both",
            source=source,
        )
    if not settings.issuer or not settings.audience:
        raise PolicyError("the issuer and the audience must be named", source=source)
    for key in keys if isinstance(keys, KeySet) else [keys]:
        reason = _unfit(key, secret=wanted <= SECRET_KEY_ALGORITHMS)
        if reason:
            raise PolicyError(f"the key {key.kid!r} {reason}", source=source)


def _unfit(key: Key, *, secret: bool) -> str:
    """Return what is wrong with a key, or an empty text."""
    if isinstance(key, OctKey) is not secret:
        kind = "secret" if secret else "public"
        return f"is not a {kind} key, which these algorithms work with"
    if isinstance(key, OctKey) and len(key.raw_value) < MIN_SECRET_BYTES:
        return f"is too short: a secret has at least {MIN_SECRET_BYTES} bytes"
    if isinstance(key, RSAKey) and key.raw_value.key_size < MIN_RSA_BITS:
        return f"is too small: an RSA key has at least {MIN_RSA_BITS} bits"
    return ""

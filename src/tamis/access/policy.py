"""A policy: roles, and who has them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Final

from tamis.access.policy_file import read_policy
from tamis.access.principals import Principal
from tamis.access.rights import Rights
from tamis.access.roles import EVERYTHING, Role
from tamis.errors import PolicyError
from tamis.events import Schema

EVERYONE: Final = "*"
_KINDS: Final = 1_024


class Policy:
    """Who may do what; never changed, only replaced by another.

    >>> policy = Policy.parse('''
    ... [roles.sensor]
    ... publish = 'room = "lab"'
    ... [principals]
    ... probe-7 = ["sensor"]
    ... ''')
    >>> from tamis.events import Event
    >>> policy.rights(Principal("probe-7")).check_publish(Event({"room": "attic"}))
    Traceback (most recent call last):
    tamis.errors.AccessError: this is not an event that you may publish
    """

    def __init__(
        self,
        roles: Iterable[Role],
        principals: Mapping[str, Iterable[str]] | None = None,
        *,
        schema: Schema | None = None,
        quotas: Mapping[str, float] | None = None,
        blocked: Iterable[str] = (),
        digest: str = "",
    ) -> None:
        """Make a policy; `quotas` are for those whose roles set none.

        Two policies may have the same `digest` if they say the same.
        """
        self._digest: Final = digest or secrets.token_hex(16)
        self.roles: Final = {role.name: role for role in roles}
        self._principals: Final = {name: tuple(has) for name, has in (principals or {}).items()}
        self._schema: Final = schema
        self._quotas: Final = dict(quotas or {})
        self._blocked: Final = frozenset(blocked)
        # Very many have the same roles, and so the same rights.
        self._rights_of: Final = lru_cache(_KINDS)(self._united)

    @classmethod
    def parse(cls, text: str, *, source: str = "policy", schema: Schema | None = None) -> Policy:
        """Return the policy that a TOML text says, or tell where it cannot be used and why."""
        found = read_policy(text, source, schema)
        return cls(
            found.roles,
            found.principals,
            schema=schema,
            quotas=found.quotas,
            blocked=found.blocked,
            digest=blake2b(text.encode(), digest_size=16).hexdigest(),
        )

    @classmethod
    def load(cls, path: str | PathLike[str], *, schema: Schema | None = None) -> Policy:
        """Return the policy in a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"it cannot be read: {error}", source=str(path)) from None
        return cls.parse(text, source=str(path), schema=schema)

    @classmethod
    def open(cls, schema: Schema | None = None) -> Policy:
        """Return the policy under which everyone may do everything."""
        return cls([EVERYTHING], {EVERYONE: [EVERYTHING.name]}, schema=schema, digest="open")

    def _united(self, roles: frozenset[str]) -> Rights:
        digest = f"{self._digest} {sorted(roles)}"
        return Rights(map(self.roles.__getitem__, roles), self._schema, self._quotas, digest=digest)

    def blocks(self, principal: Principal) -> bool:
        """Tell whether a principal may do nothing at all, whatever the credential says."""
        return principal.name in self._blocked

    def rights(self, principal: Principal) -> Rights:
        """Return what a principal may do: what any role of the credential or the policy allows.

        Roles that the policy does not know allow nothing.
        """
        given = (
            *principal.roles,
            *self._principals.get(principal.name, ()),
            *self._principals.get(EVERYONE, ()),
        )
        known = () if self.blocks(principal) else filter(self.roles.__contains__, given)
        return self._rights_of(frozenset(known))

"""Principals, and what a role lets them publish and see: some events, some of their attributes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from tamis.access.attributes import Attributes
from tamis.access.joining import FilterInMode
from tamis.events import Event, Schema
from tamis.filters import TRUE, Mode

# Names stand in log records, metrics and URLs.
LONGEST_NAME: Final = 200
_ROLE: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")


class Principal(msgspec.Struct, frozen=True):
    """Someone whom the broker knows by a token or a JWT, until that expires.

    What the roles allow, the policy says: `Policy.rights(principal)`.
    """

    name: str
    roles: tuple[str, ...] = ()
    expires_at: float = math.inf
    """Seconds since 1970; from then on the credential is worth nothing."""
    credential: str = ""
    """The id of the token, so that its revocation can end what it began; empty for others."""


ANONYMOUS: Final = Principal("anonymous")
"""Whoever comes without a credential, where that is allowed."""


def is_role(text: object) -> bool:
    """Return whether a role may have this name.

    >>> is_role("desk-7/trader"), is_role("a,admin"), is_role("")
    (True, False, False)
    """
    return isinstance(text, str) and _ROLE.fullmatch(text) is not None


def is_name(text: object) -> bool:
    r"""Return whether a principal may have this name.

    >>> is_name("ann@example.org"), is_name(""), is_name("two\nlines")
    (True, False, False)
    """
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NAME and text.isprintable()


class Scope(NamedTuple):
    """Some events, and some of their attributes."""

    condition: FilterInMode = FilterInMode(TRUE, Mode.SQL)
    attributes: Attributes = Attributes()

    def has(self, event: Event, schema: Schema | None) -> bool:
        """Return whether an event is one of them."""
        filter_, mode = self.condition
        return self.has_all_events or filter_.matches(event, mode, schema)

    @property
    def has_all_events(self) -> bool:
        """Return whether no event is left out."""
        return self.condition.filter == TRUE


class Role(NamedTuple):
    """What whoever has the role may do; what is not said, nobody may."""

    name: str
    publish: Scope | None = None
    see: Scope | None = None
    admin: bool = False
    """Whether tokens, subscriptions of others and the audit log may be managed."""
    quotas: Mapping[str, float] = MappingProxyType({})
    """The bounds of `Quotas` that the role sets."""


EVERYTHING: Final = Role("everything", publish=Scope(), see=Scope(), admin=True)

"""Principals, and what their roles allow them to publish and see: some events, some attributes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from tamis.access.attributes import AttributeSet
from tamis.access.documents import holds_for_document
from tamis.access.every_value import holds_for_every_value
from tamis.access.joining import FilterInMode
from tamis.events import Event, Schema
from tamis.events.gathering import HoldsAttributes
from tamis.filters import TRUE, Mode

# Names appear in log records, metrics and URLs.
MAX_NAME_CHARACTERS: Final = 200
_ROLE: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")


class Principal(msgspec.Struct, frozen=True):
    """A user or program identified by a token or a JWT, until that expires.

    `Policy.rights(principal)` returns what its roles allow.
    """

    name: str
    roles: tuple[str, ...] = ()
    expires_at: float = math.inf
    """When the credential expires, in seconds since 1970."""
    credential: str = ""
    """The id of the token, so that its revocation can end sessions; empty for JWTs."""


ANONYMOUS: Final = Principal("anonymous")
"""The principal of clients without a credential, where that is allowed."""


def is_role(text: object) -> bool:
    """Return whether a text is a valid role name.

    >>> is_role("desk-7/trader"), is_role("a,admin"), is_role("")
    (True, False, False)
    """
    return isinstance(text, str) and _ROLE.fullmatch(text) is not None


def is_name(text: object) -> bool:
    r"""Return whether a text is a valid principal name.

    >>> is_name("ann@example.org"), is_name(""), is_name("two\nlines")
    (True, False, False)
    """
    return isinstance(text, str) and 0 < len(text) <= MAX_NAME_CHARACTERS and text.isprintable()


class Scope(NamedTuple):
    """Some events, and some of their attributes."""

    condition: FilterInMode = FilterInMode(TRUE, Mode.SQL)
    attributes: AttributeSet = AttributeSet()

    def has(self, event: Event, schema: Schema | None) -> bool:
        """Return whether an event is in the scope, whichever of its values one looks at."""
        return self.has_all_events or holds_for_every_value(self.condition, event, schema)

    def has_document(self, document: HoldsAttributes) -> bool:
        """Return whether a document is in the scope, which is all or nothing.

        What is hidden of events cannot be taken out of a document: the text of an element is in all
        elements around it. So a scope that hides anything has no documents.
        """
        if not self.attributes.are_all:
            return False
        return self.has_all_events or holds_for_document(self.condition, document)

    @property
    def has_all_events(self) -> bool:
        """Return whether every event is in the scope."""
        return self.condition.filter == TRUE


class Role(NamedTuple):
    """The permissions of a role; all are off by default."""

    name: str
    publish: Scope | None = None
    see: Scope | None = None
    serve: Scope | None = None
    """The rows with which holders may answer queries."""
    admin: bool = False
    """Whether holders may manage tokens, others' subscriptions and the audit log."""
    peer: bool = False
    """Whether holders may link brokers: what they may see and publish then passes the link."""
    quench: bool = False
    """Whether holders may know if anybody asks for what they publish."""
    quotas: Mapping[str, float] = MappingProxyType({})
    """The bounds of `Quotas` that the role sets."""


EVERYTHING: Final = Role(
    "everything", publish=Scope(), see=Scope(), serve=Scope(), admin=True, peer=True, quench=True
)

"""Who speaks: a name and the roles that a credential gives it."""

from __future__ import annotations

import math
import re
from typing import Final

import msgspec

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
    """Tell whether a role may have this name.

    >>> is_role("desk-7/trader"), is_role("a,admin"), is_role("")
    (True, False, False)
    """
    return isinstance(text, str) and _ROLE.fullmatch(text) is not None


def is_name(text: object) -> bool:
    r"""Tell whether a principal may have this name.

    >>> is_name("ann@example.org"), is_name(""), is_name("two\nlines")
    (True, False, False)
    """
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NAME and text.isprintable()

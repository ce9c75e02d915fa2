"""Access control: principals and their tokens, policies of roles, quotas.

Independent of connections and stores. JWTs are in `tamis.access.jwt`.
"""

from tamis.access.joining import JOINED_LIMITS, FilterInMode
from tamis.access.policy import Policy
from tamis.access.quotas import Cost, Quotas, RateLimiter
from tamis.access.rights import Rights, Sight
from tamis.access.roles import ANONYMOUS, Principal, Role, Scope
from tamis.access.tokens import Authenticator, IssuedToken, TokenRecord, issue_token

__all__ = [
    "ANONYMOUS",
    "JOINED_LIMITS",
    "Authenticator",
    "Cost",
    "FilterInMode",
    "IssuedToken",
    "Policy",
    "Principal",
    "Quotas",
    "RateLimiter",
    "Rights",
    "Role",
    "Scope",
    "Sight",
    "TokenRecord",
    "issue_token",
]

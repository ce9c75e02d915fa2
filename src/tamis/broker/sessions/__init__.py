"""Sessions: what a principal does with the broker, within its rights and quotas."""

from tamis.broker.sessions.base import SessionServices
from tamis.broker.sessions.publishing import publisher_name
from tamis.broker.sessions.session import Session

__all__ = ["Session", "SessionServices", "publisher_name"]

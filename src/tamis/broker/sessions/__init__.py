"""Sessions: what a principal does with the broker, within its rights and quotas."""

from tamis.broker.sessions.base import SessionServices
from tamis.broker.sessions.session import Session, publisher_name

__all__ = ["Session", "SessionServices", "publisher_name"]

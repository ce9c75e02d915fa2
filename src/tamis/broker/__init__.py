"""The broker: durable, authorized publish/subscribe. Its network is in `frontend`."""

from tamis.broker.broker import Broker
from tamis.broker.notifier import Attachment, Outlet
from tamis.broker.sessions import Session
from tamis.broker.settings import BrokerSettings, load_settings

__all__ = [
    "Attachment",
    "Broker",
    "BrokerSettings",
    "Outlet",
    "Session",
    "load_settings",
]

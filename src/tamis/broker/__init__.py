"""The broker: durable, authorized publish/subscribe. Its network is in `frontend`."""

from tamis.lazy import require_extra

require_extra("broker")

from tamis.broker.broker import Broker
from tamis.broker.deliver.attachments import Attachment, DeliverySink
from tamis.broker.operations.settings import BrokerSettings, load_settings
from tamis.broker.sessions import Session

__all__ = [
    "Attachment",
    "Broker",
    "BrokerSettings",
    "DeliverySink",
    "Session",
    "load_settings",
]

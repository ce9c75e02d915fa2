"""Clients of a broker, asynchronous and synchronous."""

from tamis.lazy import require_extra

require_extra("client")

from tamis.client.advertisement import Advertisement
from tamis.client.bus import Bus, connect
from tamis.client.consumer import Consumer
from tamis.client.data_source import DataSource, SourceRequest
from tamis.client.messages import Message, XMLText
from tamis.client.object_consumer import ObjectConsumer
from tamis.client.options import ClientOptions, ConnectOptions, Missed, SubscribeOptions
from tamis.client.query_consumer import QueryConsumer
from tamis.client.query_results import QueryResult
from tamis.client.sync import SyncBus, connect_sync
from tamis.client.sync_advertisements import SyncAdvertisement
from tamis.client.sync_consumers import (
    SyncConsumer,
    SyncMessage,
    SyncObjectConsumer,
    SyncQueryConsumer,
)
from tamis.client.sync_queries import SyncDataSource, SyncQueryResult
from tamis.protocol.views import Receipt

__all__ = [
    "Advertisement",
    "Bus",
    "ClientOptions",
    "ConnectOptions",
    "Consumer",
    "DataSource",
    "Message",
    "Missed",
    "ObjectConsumer",
    "QueryConsumer",
    "QueryResult",
    "Receipt",
    "SourceRequest",
    "SubscribeOptions",
    "SyncAdvertisement",
    "SyncBus",
    "SyncConsumer",
    "SyncDataSource",
    "SyncMessage",
    "SyncObjectConsumer",
    "SyncQueryConsumer",
    "SyncQueryResult",
    "XMLText",
    "connect",
    "connect_sync",
]

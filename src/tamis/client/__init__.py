"""Clients of a broker, asynchronous and synchronous."""

from tamis.lazy import require_extra

require_extra("client")

from tamis.client.bus import Bus, Options
from tamis.client.connecting import ConnectOptions, connect
from tamis.client.message import Message
from tamis.client.subscription import Subscription
from tamis.client.sync import SyncBus, SyncMessage, SyncSubscription, connect_sync
from tamis.client.wanted import Missed, SubscribeOptions
from tamis.protocol.views import Receipt

__all__ = [
    "Bus",
    "ConnectOptions",
    "Message",
    "Missed",
    "Options",
    "Receipt",
    "SubscribeOptions",
    "Subscription",
    "SyncBus",
    "SyncMessage",
    "SyncSubscription",
    "connect",
    "connect_sync",
]

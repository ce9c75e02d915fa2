"""Links to neighbouring brokers: what waits for them, what they send, what is wanted here."""

from tamis.broker.links.links import Links, PeerReceipt
from tamis.broker.links.outlet import LinkEvent, LinkSink

__all__ = ["LinkEvent", "LinkSink", "Links", "PeerReceipt"]

"""Routing: which filters, advertisements and queries go over which links of an overlay."""

from typing import TYPE_CHECKING

from tamis.lazy import lazy_exports

# Lazily: clients know the aggregates of queries, and should not load Numba for that.
if TYPE_CHECKING:
    from tamis.routing.inputs import (
        LinkClosed,
        LinkDrained,
        LinkOpened,
        LinkRemoved,
        LocalAdvertisementAdded,
        LocalAdvertisementRemoved,
        LocalFilterAdded,
        LocalFilterRemoved,
        MessageReceived,
        RouterInput,
    )
    from tamis.routing.instructions import (
        AwaitDrained,
        ChangeAdvertisements,
        ChangeRoutes,
        ForgetLink,
        Instruction,
        RefuseLink,
        SendMessage,
        WantedChanged,
    )
    from tamis.routing.links import LinkSummary, RouterLimits
    from tamis.routing.messages import (
        AdvertisementChanges,
        BrokerChanges,
        BrokerEntry,
        FilterChanges,
        Greeting,
        Holdings,
        Letter,
        LinkEnd,
        LinkMessage,
        RouterMessage,
    )
    from tamis.routing.router import AdvertisementPolicy, Router
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tamis.routing.inputs": """
                LinkClosed LinkDrained LinkOpened LinkRemoved LocalAdvertisementAdded
                LocalAdvertisementRemoved LocalFilterAdded LocalFilterRemoved MessageReceived
                RouterInput
            """,
            "tamis.routing.instructions": """
                AwaitDrained ChangeAdvertisements ChangeRoutes ForgetLink Instruction RefuseLink
                SendMessage WantedChanged
            """,
            "tamis.routing.links": """
                LinkSummary RouterLimits
            """,
            "tamis.routing.messages": """
                AdvertisementChanges BrokerChanges BrokerEntry FilterChanges Greeting Holdings
                Letter LinkEnd LinkMessage RouterMessage
            """,
            "tamis.routing.router": """
                AdvertisementPolicy Router
            """,
        },
    )

__all__ = [
    "AdvertisementChanges",
    "AdvertisementPolicy",
    "AwaitDrained",
    "BrokerChanges",
    "BrokerEntry",
    "ChangeAdvertisements",
    "ChangeRoutes",
    "FilterChanges",
    "ForgetLink",
    "Greeting",
    "Holdings",
    "Instruction",
    "Letter",
    "LinkClosed",
    "LinkDrained",
    "LinkEnd",
    "LinkMessage",
    "LinkOpened",
    "LinkRemoved",
    "LinkSummary",
    "LocalAdvertisementAdded",
    "LocalAdvertisementRemoved",
    "LocalFilterAdded",
    "LocalFilterRemoved",
    "MessageReceived",
    "RefuseLink",
    "Router",
    "RouterInput",
    "RouterLimits",
    "RouterMessage",
    "SendMessage",
    "WantedChanged",
]

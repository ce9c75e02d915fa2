"""The structs of requests and responses, for decoding and for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tamis.broker.sessions.session import MAX_WAIT_SECONDS
from tamis.protocol import Delivery
from tamis.protocol.frames import MAX_NAME_CHARACTERS, Overflow
from tamis.protocol.management import (
    MAX_LIFETIME_SECONDS,
    MAX_NUMBER,
    MAX_PAGE_ITEMS,
    After,
    FilterText,
    LanguageName,
    ModeName,
    PositionText,
    SequenceNumber,
)


class _RequestBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A body or a query; unknown fields are refused, so that typos do not go unnoticed."""


class _ResponseBody(msgspec.Struct, kw_only=True):
    """The body of a response."""


class StoredPublication(_ResponseBody):
    """The outcome of a publication."""

    count: int
    """The number of events in it."""
    duplicates: int
    """How many of them the broker had stored before."""
    first: int | None
    """The position in the broker's log of the first new one."""


# --- delivery ------------------------------------------------------------------------------------


class Fetch(_RequestBody):
    """How much to fetch, and how long to wait for it."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_ITEMS)] = 100
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS, description="Seconds.")] = 0.0


class FetchNext(_RequestBody):
    """How long to wait for an event."""

    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS, description="Seconds.")] = 0.0


class Fetched(_ResponseBody):
    """Events; they are delivered again unless they are acknowledged in time.

    `dropped` counts those that are lost: retention removed them before they could be delivered,
    they are damaged or no longer conform to the schema, or there were too many dead letters. Each
    is reported once.
    """

    events: list[Delivery]
    dropped: int = 0


class Acknowledgement(_RequestBody):
    """Events to acknowledge: single ones, or all up to one."""

    sequences: Annotated[list[SequenceNumber], Meta(max_length=10_000)] = []
    up_to: After = 0


class Rejection(_RequestBody):
    """An event to deliver again later."""

    sequence: SequenceNumber
    delay: Annotated[float, Meta(ge=0, le=MAX_LIFETIME_SECONDS)] | None = None
    """Seconds; null for a pause that grows with each attempt."""
    reason: Annotated[str, Meta(max_length=500)] = ""


# --- headers -------------------------------------------------------------------------------------


class _Headers(msgspec.Struct, kw_only=True):
    """Headers that an operation reads; all others are ignored."""


class PublisherHeaders(_Headers):
    """The publisher and number of a publication, so that a retry is stored once."""

    publisher: Annotated[
        str,
        Meta(
            max_length=MAX_NAME_CHARACTERS,
            pattern=r"^[ -~]*$",
            description="Tells several publishers of one principal apart.",
        ),
    ] = msgspec.field(name="Tamis-Publisher", default="")
    sequence: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MAX_NUMBER - 1_000_000,
                description="The publisher's number for the first event, from 1 on; numbers follow "
                "each other, and what is stored already is not stored again.",
            ),
        ]
        | msgspec.UnsetType
    ) = msgspec.field(name="Tamis-Sequence", default=msgspec.UNSET)
    skip: Annotated[
        bool,
        Meta(
            description="Numbers before `Tamis-Sequence` may be left out: they were never stored."
        ),
    ] = msgspec.field(name="Tamis-Skip", default=False)


class ResumeHeaders(_Headers):
    """Where a stream resumes."""

    after: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=MAX_NUMBER - 1,
                description="The id of the last event that was received; browsers send it.",
            ),
        ]
        | None
    ) = msgspec.field(name="Last-Event-ID", default=None)


class FollowHeaders(ResumeHeaders):
    """Where the stream of a subscription resumes, and that no foreign page asks for it."""

    proof: Annotated[
        str,
        Meta(description="1, or any other text: foreign web pages cannot send this header."),
    ] = msgspec.field(name="Tamis-Request", default="")


# --- event streams -------------------------------------------------------------------------------


class EventStreamQuery(_RequestBody):
    """Which events to stream."""

    filter: FilterText = "true"
    language: LanguageName = "tamis"
    mode: ModeName = None
    start: PositionText = "latest"
    """`Last-Event-ID` takes precedence."""
    overflow: Overflow = "wait"


class FollowQuery(_RequestBody):
    """How to stream a subscription."""

    acknowledge: Literal["auto", "manual"] = "auto"
    """`auto`: events are acknowledged on arrival. `manual`: the client acknowledges them."""


# --- health --------------------------------------------------------------------------------------


class Alive(_ResponseBody):
    """The process responds."""

    status: Literal["alive"] = "alive"


class Ready(_ResponseBody):
    """The broker accepts publications."""

    status: Literal["ready"] = "ready"

"""The frames of advertising: publishers say what they will publish, and hear whether it is wanted.

A publisher that may be told gets `wanted` with the answer, and a frame whenever that changes. While
nobody wants what it advertised, it need not send it: that is quenching.
"""

from __future__ import annotations

from tamis.protocol.frame_base import Frame, Number

# --- from publishers -----------------------------------------------------------------------------


class Advertise(Frame):
    """Says what the client will publish, in mode `sql`."""

    ref: Number
    filter: str
    language: str = "tamis"


class WithdrawAdvertisement(Frame, tag="withdraw_advertisement"):
    """Says that the client will publish no more of it."""

    ref: Number
    advertisement: str


# --- from brokers --------------------------------------------------------------------------------


class Advertised(Frame):
    """It is advertised; later frames refer to it by this id."""

    ref: int
    advertisement: str
    wanted: bool | None = None
    """Whether anybody asks for any of it; None: the client may not know."""
    exact: bool = False
    """Whether the client can tell which events belong to it: the schema converts none of them."""


class AdvertisementWithdrawn(Frame, tag="advertisement_withdrawn"):
    """It is no longer advertised."""

    ref: int
    advertisement: str


class WantedChange(Frame, tag="wanted"):
    """Whether anybody asks for what a client advertised has changed, or what it may know."""

    advertisement: str
    wanted: bool | None

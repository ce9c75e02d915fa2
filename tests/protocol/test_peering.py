"""The frames of a link: what goes in comes out, and what is none gets a sentence."""

from __future__ import annotations

import json

import msgspec
import pytest

from tamis.errors import ProtocolError
from tamis.protocol.frames import Refused
from tamis.protocol.peering import (
    LINK_VERSION,
    Forward,
    ForwardedEvent,
    Heartbeat,
    LinkFrame,
    LinkHello,
    QueryFrame,
    RoutingFrame,
    Stored,
    TopologyReply,
    TopologyRequest,
    decode_link_frame,
    decode_link_hello,
    encode_link_frame,
)
from tamis.protocol.views import BrokerView, PeerView

BROKER = "0123456789abcdef" * 2
EVENT = ForwardedEvent(
    sequence=9,
    broker=BROKER,
    origin_sequence=4,
    time=12.5,
    publisher="ann",
    data=msgspec.Raw(b'{"price":3.50}'),
    number=7,
)


@pytest.mark.parametrize(
    "frame",
    [
        RoutingFrame(message=msgspec.Raw(b'{"type":"x"}')),
        QueryFrame(message=msgspec.Raw(b"[1,2]")),
        Forward(events=[EVENT]),
        Stored(up_to=3),
        Heartbeat(),
        TopologyRequest(ref=1, seconds=2.0),
        TopologyReply(ref=1, brokers=[BrokerView(BROKER, "hub", 3, 4, [PeerView("b", sent=2)])]),
        Refused(code="conflict", message="a cycle"),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_frame_comes_out_as_it_went_in(frame: LinkFrame) -> None:
    assert encode_link_frame(decode_link_frame(encode_link_frame(frame))) == encode_link_frame(
        frame
    )


def test_the_bytes_of_an_event_are_not_touched() -> None:
    frame = decode_link_frame(encode_link_frame(Forward(events=[EVENT])))
    assert isinstance(frame, Forward)
    assert bytes(frame.events[0].data) == b'{"price":3.50}'


def test_a_hello_comes_out_as_it_went_in() -> None:
    hello = LinkHello(version=LINK_VERSION, broker=BROKER, name="hub", window=5, largest_frame=9)
    assert decode_link_hello(encode_link_frame(hello)) == hello


def hello_with(**changes: object) -> bytes:
    fields = {"type": "link", "version": LINK_VERSION, "broker": BROKER, "window": 5}
    return json.dumps(fields | changes).encode()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (hello_with(version=2), "the peer speaks version 2 of the link protocol, and this broker"),
        # A version to come may say more.
        (hello_with(version=7, more={"a": 1}), "the peer speaks version 7 of the link protocol"),
        (hello_with(broker="me"), "a link begins with `link`: broker in it"),
        (hello_with(window=0), "window in it must be"),
        (hello_with(more=1), "more"),
        (b'{"type":"hello","token":"x"}', "a link begins with `link`"),
        (b"GET / HTTP/1.1", "a link begins with `link`: it is not JSON"),
        (b"[" * 10_000, "a link begins with `link`"),
        (b"\xff\xfe", "a link begins with `link`"),
        (b"", "a link begins with `link`"),
    ],
)
def test_what_is_no_hello_is_refused_with_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence.replace("`", ".")):
        decode_link_hello(data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'{"type":"forward","events":[]}', "events"),
        (b'{"type":"stored","up_to":0}', "up_to in the frame must be"),
        (b'{"type":"stored","up_to":true}', "up_to"),
        (b'{"type":"publish","ref":1}', "type"),
        (b'{"type":"heartbeat","more":1}', "more"),
        (b'{"type":"topology","ref":1,"seconds":1e9}', "seconds"),
        (b"\x00\x01\x02", "the frame"),
        (b"{" * 100_000, "the frame"),
        (
            encode_link_frame(Forward(events=[EVENT])).replace(b'"sequence":9', b'"sequence":0'),
            "sequence",
        ),
        (encode_link_frame(Forward(events=[EVENT])).replace(BROKER.encode(), b"x"), "broker"),
    ],
)
def test_what_is_no_frame_is_refused_with_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence) as refusal:
        decode_link_frame(data)
    assert len(str(refusal.value)) < 500

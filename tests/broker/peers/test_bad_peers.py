"""Peers that misbehave are cut off with a sentence, and harm nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from waiting import eventually

from .brokers import QUICK, LinkedBrokers, linked

STRANGER = "f" * 32
OTHERS = "e" * 32


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedBrokers]:
    """Two brokers that are linked; strangers link to the first of them."""
    folder = tmp_path_factory.mktemp("pair")
    with linked(folder, [("good", "hub")], **QUICK, peer_window=50) as brokers:
        brokers.subscribe("hub", "all", "number > 0")
        brokers.wait_for_routes("good", "hub", 1)
        yield brokers


class Stranger:
    """A peer that says whatever it likes."""

    def __init__(self, brokers: LinkedBrokers) -> None:
        url = f"ws{brokers['hub'].url.removeprefix('http')}/v1/peer"
        self.socket: ClientConnection = connect(url, compression=None)

    def say(self, **frame: object) -> None:
        self.socket.send(json.dumps(frame))

    def hello(self, **changes: object) -> None:
        fields = {"version": 1, "broker": STRANGER, "window": 5, "largest_frame": 100_000}
        self.say(**{"type": "link", **fields, **changes})

    def hear(self, kind: str) -> dict[str, Any]:
        """Return the next frame of a kind."""
        while True:
            frame: dict[str, Any] = json.loads(self.socket.recv(timeout=20))
            if frame["type"] == kind:
                return frame

    def begin(self, **changes: object) -> None:
        """Open a link as a good peer does."""
        self.hello(**changes)
        self.hear("routing")
        self.say(type="routing", message={"message": "greeting", "name": "x", "generation": 1})
        self.say(type="routing", message={"message": "holdings"})

    def forward(self, first: int, count: int, broker: str = STRANGER) -> None:
        events = [
            {
                "sequence": number,
                "broker": broker,
                "origin_sequence": number,
                "time": 0.0,
                "publisher": "x",
                "data": {"number": number, "by": "stranger"},
            }
            for number in range(first, first + count)
        ]
        self.say(type="forward", events=events)


def another_version(peer: Stranger, _: LinkedBrokers) -> None:
    peer.hello(version=2)


def garbage_first(peer: Stranger, _: LinkedBrokers) -> None:
    peer.socket.send("GET / HTTP/1.1")


def garbage_later(peer: Stranger, _: LinkedBrokers) -> None:
    peer.begin()
    peer.socket.send(b"\x00\xff")


def garbage_for_the_router(peer: Stranger, _: LinkedBrokers) -> None:
    peer.begin()
    peer.say(type="routing", message={"message": "filterchanges", "add": [[1, ["<", "a"]]]})


def another_id(peer: Stranger, _: LinkedBrokers) -> None:
    peer.hello(broker="me")


def flood_of_events(peer: Stranger, _: LinkedBrokers) -> None:
    peer.begin()
    peer.forward(1, 60)


def flood_of_nothing(peer: Stranger, _: LinkedBrokers) -> None:
    peer.begin()
    for _number in range(1_000):
        peer.say(type="heartbeat")


def events_out_of_order(peer: Stranger, _: LinkedBrokers) -> None:
    peer.begin()
    peer.forward(5, 1)
    peer.forward(4, 1)


def the_brokers_own_origin(peer: Stranger, brokers: LinkedBrokers) -> None:
    broker = brokers.get("hub", "/v1/status")["broker"]
    peer.begin()
    peer.forward(1, 1, broker)


def the_origin_of_another(peer: Stranger, brokers: LinkedBrokers) -> None:
    broker = brokers.get("good", "/v1/status")["broker"]
    peer.begin()
    peer.forward(1, 1, broker)


def stored_what_was_never_sent(peer: Stranger, _: LinkedBrokers) -> None:
    peer.begin()
    peer.say(type="stored", up_to=1_000_000)


@pytest.mark.parametrize(
    ("misbehave", "sentence"),
    [
        (another_version, "speaks version 2 of the link protocol"),
        (garbage_first, "a link begins with `link`"),
        (garbage_later, "the frame is not"),
        (garbage_for_the_router, ""),
        (another_id, "broker in it"),
        (flood_of_events, "more than the 50 events"),
        (flood_of_nothing, "more than 100 frames without content"),
        (events_out_of_order, "forwards its event 4 after 5"),
        (the_brokers_own_origin, "claims to come from here"),
        (the_origin_of_another, "claims the origin of another broker"),
        (stored_what_was_never_sent, "has stored event 1000000"),
    ],
)
def test_a_bad_peer_is_cut_off_with_a_sentence_that_is_logged(
    pair: LinkedBrokers, misbehave: Callable[[Stranger, LinkedBrokers], None], sentence: str
) -> None:
    peer = Stranger(pair)
    with peer.socket:
        try:
            misbehave(peer, pair)
            refused = peer.hear("refused")["message"]
            assert sentence in refused
            with pytest.raises(ConnectionClosed):
                peer.hear("nothing")
        except ConnectionClosed:
            refused = sentence
    eventually(lambda: json.dumps(refused)[1:-1] in pair["hub"].log)
    check_that_others_go_on(pair)


def check_that_others_go_on(pair: LinkedBrokers) -> None:
    pair.publish("good", {"number": 1, "by": "good"})
    found = pair.take("hub", "all", 1)
    while found[-1]["by"] != "good":
        found = pair.take("hub", "all", 1)
    assert pair.peers("hub")["good"]["connected"]
    assert "internal error" not in pair["hub"].log
    assert "a task failed" not in pair["hub"].log


def test_a_peer_that_never_reads_is_cut_off(pair: LinkedBrokers) -> None:
    peer = Stranger(pair)
    with peer.socket:
        peer.begin(broker=OTHERS, window=1_000_000)
        structure = [1, [">", "number", 0]]
        peer.say(type="routing", message={"message": "filterchanges", "add": [structure]})
        eventually(lambda: pair.peers("hub").get("", {}).get("routes") == 1)
        # It still shows that it lives, and reads nothing.
        peer.socket.recv_bufsize = 0
        text = "x" * 100_000
        for _ in range(60):
            pair.publish("good", {"number": 2, "by": "good", "text": text})
            pair.publish("hub", {"number": 2, "by": "hub", "text": text})
        eventually(lambda: "took nothing for" in pair["hub"].log or cut_off(peer))
    with pair["hub"].client() as client:
        assert client.delete("/v1/peers", params={"peer": OTHERS}).status_code == 204
    check_that_others_go_on(pair)


def cut_off(peer: Stranger) -> bool:
    try:
        peer.say(type="heartbeat")
    except ConnectionClosed:
        return True
    return False


def test_who_may_not_link_is_told_before_anything_else(tmp_path: Path) -> None:
    with linked(tmp_path, [("left", "right")], **QUICK) as brokers:
        brokers["left"].settings["accept_peers"] = False
        brokers.kill("left")
        brokers.start("left")
        url = f"ws{brokers['left'].url.removeprefix('http')}/v1/peer"
        with pytest.raises(InvalidStatus) as refused:
            connect(url)
        assert refused.value.response.status_code == 403
        assert b"--accept-peers true" in (refused.value.response.body or b"")

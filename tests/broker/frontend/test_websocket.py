"""The WebSocket: frames in both directions."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from contextlib import ExitStack
from statistics import median
from threading import Event, Thread
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from broker.server import ServerProcess

from .sockets import Talk


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def check_sent_away(talk: Talk, code: int, refusal: str, *words: str) -> None:
    """Check that the client gets the reason, and that the connection is then closed."""
    frame = talk.hear("refused")
    assert frame["code"] == refusal
    assert "ref" not in frame
    for word in words:
        assert word in frame["message"]
    with pytest.raises(ConnectionClosed) as closed:
        talk.hear()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code


def test_hello_is_answered_with_the_limits(server: ServerProcess) -> None:
    with Talk(server, hello=False) as talk:
        talk.say("hello", client="test")
        welcome = talk.hear("welcome")
        assert welcome["principal"] == "anonymous"
        assert welcome["largest_frame"] == 4 * 1024**2
        assert welcome["largest_event"] == 256 * 1024


def test_subscribers_receive_published_events(server: ServerProcess) -> None:
    with Talk(server) as talk, Talk(server) as other:
        made = talk.ask("subscribe", "subscribed", filter="price < 5", credit=10)
        assert not made.get("resumed")
        events = [{"price": 3}, {"price": 9}, {"price": 4}]
        stored = other.ask("publish", "published", events=events)
        assert stored["count"] == 3
        found = talk.events(2)
        assert [event["data"]["price"] for event in found] == [3, 4]
        assert [event["sequence"] - stored["first"] for event in found] == [0, 2]
        assert found[0]["publisher"] == "anonymous"


def test_no_more_events_come_than_there_is_credit_for(server: ServerProcess) -> None:
    with Talk(server) as talk:
        id_ = talk.ask("subscribe", filter="kind = 'credit'", credit=2)["subscription"]
        talk.ask("publish", "published", events=[{"kind": "credit", "n": n} for n in range(5)])
        assert [event["data"]["n"] for event in talk.events(2)] == [0, 1]
        talk.say("ping", ref=1)
        assert talk.hear("pong")["ref"] == 1
        talk.say("credit", subscription=id_, events=3)
        assert [event["data"]["n"] for event in talk.events(3)] == [2, 3, 4]


def test_many_publications_can_be_on_their_way_and_keep_their_order(server: ServerProcess) -> None:
    with Talk(server) as talk:
        talk.ask("subscribe", filter="kind = 'many'", credit=10_000)
        for n in range(500):
            event = {"kind": "many", "n": n}
            talk.say("publish", ref=n, events=[event], publisher="p", sequence=n + 1)
        answers: list[dict[str, Any]] = []
        events: list[dict[str, Any]] = []
        while len(answers) < 500 or len(events) < 500:
            frame = talk.hear("published", "deliver")
            answers += [frame] if frame["type"] == "published" else []
            events += frame.get("events", [])
        assert [event["data"]["n"] for event in events] == [*range(500)]
        assert [answer["ref"] for answer in answers] == [*range(500)]
        assert all(answer["count"] == 1 and not answer.get("duplicates") for answer in answers)


def test_frames_that_come_together_are_all_handled_in_their_order(server: ServerProcess) -> None:
    with Talk(server) as talk:
        pings = [json.dumps({"type": "ping", "ref": ref}) for ref in range(1, 2_001)]
        large = {"type": "publish", "ref": 5_000, "events": [{"text": "x" * 1_000}] * 500}
        parts = [*pings[:900], json.dumps(large), *pings[900:]]
        message = b"".join(Frame(Opcode.TEXT, one.encode()).serialize(mask=True) for one in parts)
        control = Frame(Opcode.PING, b"").serialize(mask=True) * 3_000
        talk.socket.socket.sendall(message + control)
        answers = [talk.hear("pong", "published") for _ in range(2_001)]
        refs = [answer["ref"] for answer in answers if answer["type"] == "pong"]
        assert refs == [*range(1, 2_001)]


def test_a_request_with_large_headers_is_answered(server: ServerProcess) -> None:
    with Talk(server, additional_headers={"Cookie": "x" * 6_000}) as talk:
        assert talk.ask("ping", "pong")
    with (
        pytest.raises(InvalidStatus) as refused,
        Talk(server, additional_headers={f"X-{number}": "x" * 6_000 for number in range(3)}),
    ):
        pass
    assert refused.value.response.status_code == 431
    assert b"the request without its body has more than 16,384 bytes" in refused.value.response.body


@pytest.mark.timing
def test_a_connection_that_is_refused_closes_at_once_whatever_was_sent(
    server: ServerProcess,
) -> None:
    with Talk(server, close_timeout=5) as talk:
        frame = Frame(Opcode.TEXT, b'{"type":"ping","ref":1}').serialize(mask=True)
        wrong = Frame(Opcode.TEXT, b"this is no frame").serialize(mask=True)
        talk.socket.socket.sendall(wrong + frame * 3_000)
        begun = time.monotonic()
        check_sent_away(talk, 4400, "bad_request", "not JSON")
        talk.socket.close()
        assert time.monotonic() - begun < 4


@pytest.mark.timing
@pytest.mark.parametrize(
    "frame",
    [
        Frame(Opcode.TEXT, b'{"type":"credit","subscription":"x","events":1}'),
        Frame(Opcode.PING, b""),
        Frame(Opcode.CONT, b"", fin=False),
    ],
    ids=["frames", "pings", "fragments"],
)
def test_a_flood_of_small_frames_does_not_keep_others_waiting(
    server: ServerProcess, frame: Frame
) -> None:
    many, over = frame.serialize(mask=True) * 10_000, Event()

    def flood(talk: Talk) -> None:
        # What it is answered is not read, so that it may be sent away.
        with contextlib.suppress(OSError):
            if frame.opcode is Opcode.CONT:
                first = Frame(Opcode.TEXT, b"{", fin=False)
                talk.socket.socket.sendall(first.serialize(mask=True))
            while not over.is_set():
                talk.socket.socket.sendall(many)

    with ExitStack() as stack:
        talks = [stack.enter_context(Talk(server)) for _ in range(7)]
        *floods, other = talks
        threads = [Thread(target=flood, args=(talk,)) for talk in floods]
        for thread in threads:
            thread.start()
        times = []
        for _ in range(5):
            begun = time.monotonic()
            other.ask("ping", "pong")
            times.append(time.monotonic() - begun)
        over.set()
        for talk in floods:
            talk.socket.socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        # A few hundredths of a second; before frames were paced, it grew with the flood.
        assert median(times) < 0.5


def test_a_durable_subscription_is_taken_up_where_it_was(server: ServerProcess) -> None:
    wanted = {"filter": "kind = 'phone'", "durable": "phone-1", "acknowledge": "manual"}
    with Talk(server) as talk:
        made = talk.ask("subscribe", "subscribed", credit=10, lifetime=1000, **wanted)
        assert made["subscription"] == "phone-1"
        assert made["expires_at"] > 0
        talk.ask("publish", "published", events=[{"kind": "phone", "n": n} for n in range(3)])
        first = talk.events(3)[0]
        talk.say("ack", subscription="phone-1", sequences=[first["sequence"]])
        talk.ask("ping", "pong")
    with Talk(server) as talk:
        talk.ask("publish", "published", events=[{"kind": "phone", "n": 3}])
        again = talk.ask("subscribe", "subscribed", credit=10, **wanted)
        assert again["resumed"]
        events = talk.events(3)
        assert [event["data"]["n"] for event in events] == [1, 2, 3]
        assert [event.get("attempt", 1) for event in events] == [2, 2, 1]
        talk.say("nack", subscription="phone-1", sequence=events[0]["sequence"], delay=0)
        assert talk.events(1)[0]["attempt"] == 3
        talk.ask("unsubscribe", "unsubscribed", subscription="phone-1", delete=True)
        refused = talk.ask("unsubscribe", "refused", subscription="phone-1")
        assert refused["code"] == "not_found"


def test_a_later_connection_takes_a_subscription_over(server: ServerProcess) -> None:
    wanted = {"filter": "kind = 'taken'", "durable": "taken", "credit": 10}
    with Talk(server) as first, Talk(server) as second:
        first.ask("subscribe", "subscribed", **wanted)
        assert second.ask("subscribe", "subscribed", **wanted)["resumed"]
        assert "taken over" in first.hear("ended")["reason"]
        first.say("credit", subscription="taken", events=10)
        first.say("ack", subscription="nowhere", up_to=5)
        first.ask("publish", "published", events=[{"kind": "taken"}])
        assert len(second.events(1)) == 1
        first.ask("ping", "pong")


def test_a_subscription_that_is_deleted_ends(server: ServerProcess, client: httpx.Client) -> None:
    with Talk(server) as talk:
        talk.ask("subscribe", "subscribed", filter="a = 1", durable="to-delete")
        assert client.delete("/v1/subscriptions/to-delete").status_code == 204
        assert talk.hear("ended")["reason"] == "deleted"


@pytest.mark.parametrize(
    ("type_", "fields", "code"),
    [
        ("publish", {"events": []}, "bad_request"),
        ("publish", {"events": [17]}, "bad_event"),
        ("publish", {"events": [{"a": "x" * 300_000}]}, "too_large"),
        ("publish", {"events": [{}], "sequence": -1}, "bad_request"),
        ("publish", {"events": [{}], "sequence": 2**63 - 1}, "bad_request"),
        ("publish", {"events": [{}], "format": "cloudevents"}, "bad_event"),
        ("subscribe", {"filter": "price <"}, "bad_filter"),
        ("subscribe", {"filter": "a=1", "credit": -1}, "bad_request"),
        ("subscribe", {"filter": "a=1", "durable": ""}, "bad_request"),
        ("subscribe", {"filter": "a=1", "start": "soon"}, "bad_request"),
        ("unsubscribe", {"subscription": "nowhere"}, "not_found"),
    ],
)
def test_what_cannot_be_granted_is_refused_and_the_connection_stays(
    server: ServerProcess, type_: str, fields: dict[str, Any], code: str
) -> None:
    with Talk(server) as talk:
        assert talk.ask(type_, "refused", **fields)["code"] == code
        talk.ask("ping", "pong")


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"type": "welcome"}',
        '{"type": "ping", "ref": "1"}',
        '{"type": "ping", "more": 1}',
        '{"type": "publish", "ref": 1, "events": [}',
        '{"type": "publish", "ref": 1.5}',
        '{"type": "publish", "ref": 9223372036854775808, "events": []}',
        '{"type": "credit", "subscription": "a", "events": -1}',
        '{"type": "hello", "token": "again"}',
        '{"type": "ping"} {}',
        "[" * 100_000,
        '{"type": "ping", "x": ' + nested(2_000) + ', "y": "ref", "ref": "1"}',
        '{"type": "ping", "x": [{"ref": 1}, ' + nested(2_000) + '], "y": "',
        b"\xff\xfe",
    ],
)
def test_what_is_no_frame_ends_the_connection_with_a_sentence(
    server: ServerProcess, frame: str | bytes
) -> None:
    with Talk(server) as talk:
        talk.socket.send(frame)
        check_sent_away(talk, 4400, "bad_request")


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ('{"type": "publish", "ref": 7}', 'lacks the field "events"'),
        ('{"type": "publish", "ref": 7, "events": 5}', "events"),
        ('{"type": "subscribe", "ref": 7, "filter": "a>0", "lifetime": "1h"}', "lifetime"),
        ('{"type": "subscribe", "ref": 7, "filter": "a>0", "durable": 7}', "durable"),
        ('{"type": "subscribe", "ref": 7, "filter": "a>0", "overflow": "bogus"}', "overflow"),
        (
            '{"type": "subscribe", "ref": 7, "filter": "a>0", "strat": 1}',
            'the frame has no field "strat"; did you mean "start"?',
        ),
        (
            '{"type": "subscribe", "ref": 7, "filter": "a>0", "overflow": "dorp"}',
            "overflow in the frame is 'dorp'; it must be one of",
        ),
        ('{"type": "unsubscribe", "ref": 7, "subscription": "s", "delete": "no"}', "delete"),
        ('{"type": "ping", "ref": 7, "more": 1}', "more"),
        ('{"type": "credit", "ref": 7}', "ref"),
        ('{"type": "hello", "ref": 7}', "ref"),
        ('{"type": "welcome", "ref": 7}', "welcome"),
        ('{"type": "frobnicate", "ref": 7, "filter": "a>0"}', "frobnicate"),
        ('{"type": "ping", "ref": 7, "x": ' + nested(2_000) + "}", 'the frame has no field "x"'),
        ('{"x": {"ref": ' + nested(2_000) + '}, "ref": 7, "type": "ping"}', "nested too deeply"),
        (
            '{"type": "publish", "ref": 7, "events": [{"a": ' + nested(100_000) + "}]}",
            "the frame is nested too deeply",
        ),
        (
            '{"type": "publish", "events": ['
            + '{"ref": ' * 5_000
            + "1"
            + "}" * 5_000
            + '], "ref": 7}',
            "the frame is nested too deeply",
        ),
        (
            '{"type": "publish", "publisher": "ref", "events": [{"a": '
            + nested(2_000)
            + '}], "ref": 7}',
            "the frame is nested too deeply",
        ),
        (
            '{"type": "publish", "ref": 7, "events": [{"a": "\\ud800"}]}',
            "the frame has a lone surrogate (U+D800) at byte 48, so it is not valid Unicode",
        ),
        (
            '{"type": "subscribe", "filter": "a = \'\\\\ud800 \\ud83d\\ude00 \\udc00\'", "ref": 7}',
            "the frame has a lone surrogate (U+DC00) at byte ",
        ),
    ],
)
def test_a_wrong_request_that_has_a_number_is_refused_alone(
    server: ServerProcess, frame: str, words: str
) -> None:
    with Talk(server) as talk:
        talk.socket.send(frame)
        refusal = talk.hear("refused")
        assert (refusal["ref"], refusal["code"]) == (7, "bad_request")
        assert words in refusal["message"]
        talk.ask("ping", "pong")


def test_a_frame_that_is_too_large_ends_the_connection(server: ServerProcess) -> None:
    with Talk(server) as talk:
        talk.socket.send("x" * (4 * 1024**2 + 1))
        with pytest.raises(ConnectionClosed) as closed:
            talk.hear()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


def test_who_says_nothing_is_sent_away(server: ServerProcess) -> None:
    with Talk(server, hello=False) as talk:
        check_sent_away(talk, 4401, "unauthenticated", "no hello within 1 second")


def test_who_does_not_begin_with_hello_is_sent_away(server: ServerProcess) -> None:
    with Talk(server, hello=False) as talk:
        talk.say("ping")
        check_sent_away(talk, 4401, "unauthenticated", "hello")


def test_a_token_that_is_not_valid_is_refused_in_a_frame_and_in_a_header(
    server: ServerProcess,
) -> None:
    with Talk(server, hello=False) as talk:
        talk.say("hello", token="tamis_wrong")  # noqa: S106
        check_sent_away(talk, 4401, "unauthenticated")
    header = {"Authorization": "Bearer tamis_wrong"}
    with pytest.raises(InvalidStatus) as refused:
        Talk(server, hello=False, additional_headers=header)
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body)["code"] == "unauthenticated"


def test_with_a_token_in_the_header_the_broker_speaks_first(
    server: ServerProcess, client: httpx.Client
) -> None:
    issued = client.post("/v1/tokens", json={"principal": "bob"}).json()
    header = {"Authorization": f"Bearer {issued['text']}"}
    with Talk(server, hello=False, additional_headers=header) as talk:
        assert talk.hear("welcome")["principal"] == "bob"
        talk.say("hello")
        assert talk.hear("welcome")["principal"] == "bob"
        client.delete(f"/v1/tokens/{issued['token']['id']}")
        check_sent_away(talk, 4401, "unauthenticated", "no longer valid")


def test_a_websocket_elsewhere_is_refused(server: ServerProcess) -> None:
    url = server.websocket_url.removesuffix("/connect")
    with pytest.raises(InvalidStatus) as refused:
        Talk(_at(url), hello=False)
    assert refused.value.response.status_code == 404


def _at(url: str) -> Any:
    class Elsewhere:
        websocket_url = url

    return Elsewhere


def test_nothing_has_gone_wrong_inside(server: ServerProcess) -> None:
    assert server.errors == ""


@pytest.mark.parametrize("rows", ["x", {"a": 1}, 5, None])
def test_rows_that_are_no_array_are_refused_in_words(server: ServerProcess, rows: object) -> None:
    with Talk(server) as source, Talk(server) as client:
        source.ask("serve", "serving", filter="wanted = 1")
        client.ask("query", "querying", filter="wanted = 1", timeout=20, credit=1000)
        asked = source.hear("ask")
        source.say("served_rows", ask=asked["ask"], rows=rows)
        assert "rows must be an array of objects" in str(source.hear("refused"))
        with pytest.raises(ConnectionClosed) as closed:
            source.hear()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4400

"""Server-Sent Events: streams, and how they are resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from broker.server import ServerProcess, running
from waiting import eventually

from .test_http import check_problem, fetch, make, publish


class Stream:
    """The messages of a stream, one after the other."""

    def __init__(self, response: httpx.Response) -> None:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        self._lines = response.iter_lines()
        assert self.message() == {"retry": "2000"}

    def message(self) -> dict[str, str]:
        """Return the fields of the next message; a comment has the name ''."""
        found: dict[str, str] = {}
        for line in self._lines:
            if not line and found:
                return found
            name, _, value = line.partition(": ")
            found[name] = value
        return {}

    def event(self) -> dict[str, Any]:
        """Return the next event."""
        deadline = time.monotonic() + 20
        while (message := self.message()).keys() == {""}:
            assert time.monotonic() < deadline, "no event came"
        assert message.keys() == {"id", "data"}, message
        event: dict[str, Any] = json.loads(message["data"])
        assert event["sequence"] == int(message["id"])
        return event


@contextmanager
def streaming(
    client: httpx.Client, path: str, *, last: int | None = None, **query: str
) -> Iterator[Stream]:
    headers = {"Tamis-Request": "1"}
    if last is not None:
        headers["Last-Event-ID"] = str(last)
    with client.stream("GET", path, params=query, headers=headers) as response:
        yield Stream(response)


def until(look: Any, wanted: object) -> None:
    eventually(lambda: look() == wanted, f"never {wanted!r}")


def test_events_that_match_come_as_they_are_published(
    server: ServerProcess, client: httpx.Client
) -> None:
    with server.client() as reader, streaming(reader, "/v1/events", filter="price < 5") as stream:
        first = publish(client, {"price": 3}, {"price": 9}, {"price": 4, "note": "a\nb\rc"})
        events = [stream.event(), stream.event()]
        assert [event["sequence"] for event in events] == [first, first + 2]
        assert events[1]["data"] == {"price": 4, "note": "a\nb\rc"}


def test_json_over_several_lines_is_one_message(
    server: ServerProcess, client: httpx.Client
) -> None:
    with server.client() as reader, streaming(reader, "/v1/events", filter="n = 1") as stream:
        client.post(
            "/v1/events", content='{\r\n"n":\n1\r}', headers={"Content-Type": "application/json"}
        )
        assert stream.event()["data"] == {"n": 1}


def test_a_stream_goes_on_after_the_last_event_that_was_received(
    server: ServerProcess, client: httpx.Client
) -> None:
    events = [{"kind": "resume", "n": n} for n in range(10)]
    with server.client() as reader, streaming(reader, "/v1/events", filter="n >= 0") as stream:
        first = publish(client, *events)
        seen = [stream.event()["sequence"] for _ in range(4)]
        assert seen == [first, first + 1, first + 2, first + 3]
    publish(client, {"kind": "resume", "n": 10})
    with (
        server.client() as reader,
        streaming(reader, "/v1/events", last=seen[-1], filter="kind = 'resume'") as stream,
    ):
        publish(client, {"kind": "resume", "n": 11})
        assert [stream.event()["data"]["n"] for _ in range(8)] == [*range(4, 12)]


@pytest.mark.parametrize("start", ["earliest", "1", "2020-01-01T00:00:00Z"])
def test_a_stream_can_begin_in_the_past(
    server: ServerProcess, client: httpx.Client, start: str
) -> None:
    first = publish(client, {"kind": f"past {start}"})
    with (
        server.client() as reader,
        streaming(reader, "/v1/events", filter=f"kind = 'past {start}'", start=start) as stream,
    ):
        assert stream.event()["sequence"] == first


def test_what_has_arrived_of_a_subscription_is_acknowledged(
    server: ServerProcess, client: httpx.Client
) -> None:
    make(client, "streamed", "kind = 'streamed'")
    for start in range(0, 3000, 1000):
        publish(client, *({"kind": "streamed", "n": n} for n in range(start, start + 1000)))
    path = "/v1/subscriptions/streamed"
    with server.client() as reader, streaming(reader, f"{path}/events") as stream:
        # More than may be unsettled: acknowledgements must keep up.
        assert [stream.event()["data"]["n"] for _ in range(3000)] == [*range(3000)]
        check = ("pending", "in_flight")
        until(lambda: [client.get(path).json()[name] for name in check], [0, 0])
    until(lambda: client.get(path).json()["connected"], False)
    assert fetch(client, "streamed", wait=0) == []


def test_with_manual_acknowledgements_unacknowledged_events_are_redelivered(
    server: ServerProcess, client: httpx.Client
) -> None:
    make(client, "by-hand", "kind = 'by hand'")
    first = publish(client, *({"kind": "by hand", "n": n} for n in range(4)))
    path = "/v1/subscriptions/by-hand"
    with (
        server.client() as reader,
        streaming(reader, f"{path}/events", acknowledge="manual") as stream,
    ):
        assert [stream.event()["data"]["n"] for _ in range(4)] == [0, 1, 2, 3]
        assert client.post(f"{path}/acknowledge", json={"sequences": [first]}).status_code == 204
    until(lambda: client.get(path).json()["connected"], False)
    # What it has seen is acknowledged by saying so; the rest comes again.
    with (
        server.client() as reader,
        streaming(reader, f"{path}/events", last=first + 1, acknowledge="manual") as stream,
    ):
        assert [stream.event()["data"]["n"] for _ in range(2)] == [2, 3]


def test_streams_of_a_group_share_its_events(server: ServerProcess, client: httpx.Client) -> None:
    make(client, "shared", "kind = 'shared'", group=True)
    path = "/v1/subscriptions/shared"
    with server.client() as reader, server.client() as other:
        with (
            streaming(reader, f"{path}/events", acknowledge="manual") as leaving,
            streaming(other, f"{path}/events") as staying,
        ):
            until(lambda: len(client.get(path).json().get("members", [])), 2)
            publish(client, {"kind": "shared", "n": 0}, {"kind": "shared", "n": 1})
            had, kept = leaving.event(), staying.event()
            assert {had["data"]["n"], kept["data"]["n"]} == {0, 1}
        until(lambda: client.get(path).json()["connected"], False)
        # What was seen last acknowledges nothing: others may have had what came before.
        with streaming(other, f"{path}/events", last=kept["sequence"] + 1) as staying:
            again = staying.event()
            assert (again["data"], again["attempt"]) == (had["data"], 2)
            until(lambda: client.get(path).json()["pending"], 0)


def with_work_elsewhere(client: httpx.Client, id_: str) -> int:
    """Make a subscription with a rejected event and two that a worker has; return the first."""
    make(client, id_, f"kind = '{id_}'")
    first = publish(client, *({"kind": id_, "n": n} for n in range(3)))
    assert len(fetch(client, id_)) == 3
    rejected = {"sequence": first, "delay": 3600.0}
    path = f"/v1/subscriptions/{id_}/reject"
    assert client.post(path, json=rejected).status_code == 204
    return first


@pytest.mark.parametrize("names_last", [False, True])
def test_a_stream_acknowledges_nothing_that_was_rejected_or_is_leased(
    server: ServerProcess, client: httpx.Client, *, names_last: bool
) -> None:
    id_ = f"elsewhere-{names_last}"
    first, path = with_work_elsewhere(client, id_), f"/v1/subscriptions/{id_}"
    publish(client, {"kind": id_, "n": 3})
    last = first + 2 if names_last else None
    with server.client() as reader, streaming(reader, f"{path}/events", last=last) as stream:
        assert stream.event()["data"]["n"] == 3
        until(lambda: client.get(path).json()["pending"] <= 3, wanted=True)
        assert client.get(path).json()["pending"] == 3


def test_last_event_id_does_not_acknowledge_what_was_rejected_and_sent_again(
    server: ServerProcess, client: httpx.Client
) -> None:
    make(client, "again", "kind = 'again'")
    first = publish(client, *({"kind": "again", "n": n} for n in range(2)))
    path = "/v1/subscriptions/again"
    with (
        server.client() as reader,
        streaming(reader, f"{path}/events", acknowledge="manual") as stream,
    ):
        assert [stream.event()["data"]["n"] for _ in range(2)] == [0, 1]
        rejected = {"sequence": first, "delay": 0.0}
        assert client.post(f"{path}/reject", json=rejected).status_code == 204
        # The client may not get this one: its connection breaks.
        assert stream.event()["attempt"] == 2
    until(lambda: client.get(path).json()["connected"], wanted=False)
    with (
        server.client() as reader,
        streaming(reader, f"{path}/events", last=first + 1, acknowledge="manual") as stream,
    ):
        again = stream.event()
        assert (again["data"]["n"], again["attempt"]) == (0, 3)


def test_a_stream_ends_with_its_subscription(server: ServerProcess, client: httpx.Client) -> None:
    make(client, "short", "true")
    path = "/v1/subscriptions/short"
    with server.client() as reader, streaming(reader, f"{path}/events") as stream:
        client.delete(path)
        assert stream.message() == {"event": "ended", "data": '{"reason":"deleted"}'}
        assert stream.message() == {}


def test_a_stream_for_nobody_leaves_nothing_behind(
    server: ServerProcess, client: httpx.Client
) -> None:
    def present() -> set[str]:
        listed = client.get("/v1/subscriptions", params={"limit": 1000}).json()["subscriptions"]
        return {one["id"] for one in listed}

    # Others may still be going.
    before = present()
    with server.client() as reader, streaming(reader, "/v1/events", filter="true") as stream:
        [made] = present() - before
        # Without somebody who reads them, httpx closes the connection.
        del stream
    until(lambda: made in present(), False)
    assert client.head("/v1/events", params={"filter": "true"}).status_code == 200
    until(lambda: present() - before, set())


@pytest.mark.parametrize(
    ("query", "last", "status", "code"),
    [
        ({"filter": "price <"}, None, 422, "bad_filter"),
        ({"filter": "true", "start": "soon"}, None, 400, "bad_request"),
        ({"filter": "true", "overflow": "drop", "start": "1"}, None, 400, "bad_request"),
        ({"filter": "true"}, "seven", 400, "bad_request"),
        ({"filter": "true"}, "-1", 400, "bad_request"),
        ({"filter": "true"}, "9" * 30, 400, "bad_request"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(
    client: httpx.Client, query: dict[str, str], last: str | None, status: int, code: str
) -> None:
    headers = {} if last is None else {"Last-Event-ID": last}
    check_problem(client.get("/v1/events", params=query, headers=headers), status, code)


def test_a_silent_stream_shows_that_it_lives(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        running(tmp_path_factory.mktemp("lively"), ping_interval=0.2) as server,
        server.client() as client,
        streaming(client, "/v1/events", filter="true") as stream,
    ):
        assert [stream.message() for _ in range(3)] == [{"": "still here"}] * 3


def test_nothing_has_gone_wrong_inside(server: ServerProcess) -> None:
    assert server.errors == ""

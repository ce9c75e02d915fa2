"""What web pages may do: only those of the broker itself, and those that the settings name."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from broker.server import ServerProcess, running
from waiting import eventually

from .conftest import Guarded
from .sockets import Talk
from .test_http import check_problem

FOREIGN = ["https://evil.example", "null", "http://127.0.0.1:1", "https://localhost.evil.example"]


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_foreign_page_can_do_nothing(
    server: ServerProcess, client: httpx.Client, origin: str
) -> None:
    headers = {"Origin": origin}
    check_problem(client.get("/v1/status", headers=headers), 403, "forbidden", "origins")
    check_problem(client.post("/v1/events", headers=headers, json={}), 403, "forbidden")
    with pytest.raises(InvalidStatus) as refused:
        Talk(server, hello=False, origin=origin)
    assert refused.value.response.status_code == 403


# What browsers send for <img src=…>, from another site and from another port of this machine. Those
# of before 2023 may send only the last of these headers.
IMAGES = [
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Accept": "image/*"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Accept": "image/*"},
    {"Accept": "image/*"},
    # A script of an old browser may set this one.
    {"Accept": "text/event-stream"},
    {"Accept": "text/event-stream", "Tamis-Request": ""},
]


@pytest.mark.parametrize("headers", IMAGES)
def test_an_image_of_a_foreign_page_consumes_nothing(
    client: httpx.Client, headers: dict[str, str]
) -> None:
    client.post("/v1/subscriptions", json={"id": "seen", "filter": "kind = 'seen'"})
    published = client.post("/v1/events", json=[{"kind": "seen"}] * 3).json()
    eventually(lambda: client.get("/v1/subscriptions/seen").json()["pending"] == 3)
    for method in ("GET", "HEAD"):
        after = {"Last-Event-ID": str(published["first"] + 2)}
        address = "/v1/subscriptions/seen/events?acknowledge=auto"
        with client.stream(method, address, headers=headers) as response:
            assert response.status_code == 403
        with client.stream("HEAD", address, headers=headers | after) as response:
            assert response.status_code == 403
    fetched = client.post("/v1/subscriptions/seen/fetch", json={}).json()["events"]
    client.delete("/v1/subscriptions/seen")
    assert len(fetched) == 3


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_no_request_of_a_foreign_page_is_answered(client: httpx.Client, site: str) -> None:
    headers = {"Sec-Fetch-Site": site}
    for path in ("/v1/status", "/v1/events?filter=true", "/v1/history", "/metrics"):
        with client.stream("GET", path, headers=headers) as response:
            response.read()
            check_problem(response, 403, "forbidden", "another site", "origins")
    check_problem(client.post("/v1/events", headers=headers, json={}), 403, "forbidden")
    # A link may lead to what everybody may see.
    for path in ("/", "/openapi.json", "/health", "/ready"):
        assert client.get(path, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Tamis-Request": "1"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://shop.example"},
    ],
)
def test_whoever_shows_that_no_foreign_page_asks_gets_the_stream(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    with running(tmp_path, origins="https://shop.example") as server, server.client() as client:
        client.post("/v1/subscriptions", json={"id": "seen", "filter": "true"})
        path = "/v1/subscriptions/seen/events"
        with client.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200
            assert next(response.iter_lines()) == "retry: 2000"


def test_the_refusal_says_which_header_to_send(client: httpx.Client) -> None:
    client.post("/v1/subscriptions", json={"id": "seen", "filter": "true"})
    response = client.get("/v1/subscriptions/seen/events")
    check_problem(response, 403, "forbidden", "Tamis-Request: 1")
    client.delete("/v1/subscriptions/seen")


def test_a_page_of_the_broker_can_do_all(server: ServerProcess, client: httpx.Client) -> None:
    assert client.get("/v1/status", headers={"Origin": server.url}).status_code == 200
    with Talk(server, origin=server.url) as talk:
        talk.ask("ping", "pong")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", ""]
)
def test_a_foreign_name_that_leads_here_is_refused(
    client: httpx.Client, server: ServerProcess, host: str
) -> None:
    response = client.get("/v1/status", headers={"Host": host})
    check_problem(response, 421, "bad_request", "not called")
    with pytest.raises(InvalidStatus) as refused:
        Talk(server, hello=False, additional_headers={"Host": host})
    assert refused.value.response.status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9", "[::1]:5"])
def test_the_names_of_this_machine_are_known(client: httpx.Client, host: str) -> None:
    assert client.get("/v1/status", headers={"Host": host}).status_code == 200


def test_without_the_setting_no_page_gets_cors_headers(client: httpx.Client) -> None:
    response = client.options(
        "/v1/events",
        headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"},
    )
    assert "access-control-allow-origin" not in response.headers


def test_pages_that_the_settings_name_may_call(tmp_path: Path) -> None:
    shop = {"Origin": "https://shop.example"}
    wanted = shop | {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    with running(tmp_path, origins="https://shop.example") as server, server.client() as client:
        allowed = client.options("/v1/events", headers=wanted)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://shop.example"
        assert client.get("/v1/status", headers=shop).status_code == 200
        with Talk(server, origin="https://shop.example") as talk:
            talk.ask("ping", "pong")
        other = client.get("/v1/status", headers={"Origin": "https://evil.example"})
        check_problem(other, 403, "forbidden")


def test_where_tokens_are_needed_a_page_that_has_one_may_use_it(guarded: Guarded) -> None:
    page = {"Origin": "https://anywhere.example", "Host": "broker.example"}
    with guarded.server.client(guarded.admin) as client:
        assert client.get("/v1/status", headers=page).status_code == 200
    with guarded.server.client() as nobody:
        check_problem(nobody.get("/v1/status"), 401, "unauthenticated", "token is required")
        assert nobody.get("/health").status_code == 200
        check_problem(nobody.get("/metrics"), 401, "unauthenticated")
    with Talk(guarded.server, hello=False) as talk:
        talk.say("hello")
        assert talk.hear("refused")["code"] == "unauthenticated"
    with Talk(guarded.server, hello=False, origin="https://anywhere.example") as talk:
        talk.say("hello", token=guarded.trader)
        assert talk.hear("welcome")["principal"] == "ann"


def test_who_is_no_administrator_sees_no_counters(guarded: Guarded) -> None:
    with guarded.server.client(guarded.trader) as client:
        for path in ("/metrics", "/v1/status", "/v1/tokens", "/v1/audit"):
            check_problem(client.get(path), 403, "forbidden", "administrators")
        check_problem(client.post("/v1/tokens", json={"principal": "x"}), 403, "forbidden")
        check_problem(client.post("/v1/events", json={"level": 5}), 403, "forbidden")
        check_problem(
            client.post("/v1/subscriptions", json={"filter": "secret = 1"}), 403, "forbidden"
        )
        assert client.post("/v1/events", json={"level": 1}).status_code == 200


def test_nobody_has_a_subscription_of_another(guarded: Guarded) -> None:
    with guarded.server.client(guarded.admin) as root, guarded.server.client(guarded.trader) as ann:
        made = root.post("/v1/subscriptions", json={"id": "mine", "filter": "level < 3"})
        assert made.status_code == 201
        check_problem(ann.get("/v1/subscriptions/mine"), 404, "not_found")
        check_problem(ann.delete("/v1/subscriptions/mine"), 404, "not_found")
        check_problem(ann.post("/v1/subscriptions/mine/fetch", json={}), 404, "not_found")
        own = ann.post("/v1/subscriptions", json={"id": "mine", "filter": "level < 2"})
        assert own.status_code == 201
        assert root.get("/v1/subscriptions/mine").json()["filter"] == "level < 3"

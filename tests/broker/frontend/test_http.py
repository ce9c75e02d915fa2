"""Every path of HTTP, with what is right and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from broker.server import ServerProcess
from tamis.broker.frontend.app import ALL

JSON = {"Content-Type": "application/json"}
SOLD = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "sold"}


def make(client: httpx.Client, id_: str, filter_: str = "true", **more: Any) -> dict[str, Any]:
    response = client.post("/v1/subscriptions", json={"id": id_, "filter": filter_, **more})
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


def publish(client: httpx.Client, *events: dict[str, Any]) -> int:
    """Publish events, and return the sequence of the first."""
    response = client.post("/v1/events", json=list(events))
    assert response.status_code == 200, response.text
    first: int = response.json()["first"]
    return first


def fetch(client: httpx.Client, id_: str, *, wait: float = 5) -> list[dict[str, Any]]:
    response = client.post(f"/v1/subscriptions/{id_}/fetch", json={"wait": wait})
    assert response.status_code == 200, response.text
    events: list[dict[str, Any]] = response.json()["events"]
    return events


def check_problem(response: httpx.Response, status: int, code: str, *words: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert set(problem) == {"type", "title", "status", "code", "detail", "instance"}
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:tamis:{code}"
    assert problem["instance"] == response.url.path
    for word in words:
        assert word in problem["detail"]


# --- publishing ----------------------------------------------------------------------------------


def test_a_subscription_that_exists_is_not_created_again(client: httpx.Client) -> None:
    body = {"id": "twice", "filter": "a = 1"}
    made = client.post("/v1/subscriptions", json=body)
    again = client.post("/v1/subscriptions", json=body)
    assert (made.status_code, again.status_code) == (201, 200)
    assert again.json() == made.json()
    other = client.post("/v1/subscriptions", json={**body, "filter": "a = 2"})
    check_problem(other, 409, "conflict", "another filter")
    later = client.post("/v1/subscriptions", json={"filter": "a = 1", "start": 10**12})
    check_problem(later, 409, "conflict")
    titles = {other.json()["title"], later.json()["title"]}
    assert titles == {"It conflicts with the state of the broker"}
    unnamed = [client.post("/v1/subscriptions", json={"filter": "a = 1"}) for _ in range(2)]
    assert [one.status_code for one in unnamed] == [201, 201]
    document = client.get("/openapi.json").json()
    responses = document["paths"]["/v1/subscriptions"]["post"]["responses"]
    assert responses["200"]["content"] == responses["201"]["content"]


@pytest.mark.parametrize(
    ("headers", "body", "count"),
    [
        (JSON, '{"price": 3}', 1),
        ({"Content-Type": "application/json; charset=utf-8"}, '{"price": 3}', 1),
        (JSON, ' [{"price": 3}, {"price": 4}]', 2),
        ({"Content-Type": "application/x-ndjson"}, '{"price": 3}\n\r\n{"price": 4}\r\n', 2),
        ({"Content-Type": "application/cloudevents+json"}, json.dumps(SOLD), 1),
        ({"Content-Type": "application/cloudevents-batch+json"}, json.dumps([SOLD, SOLD]), 2),
    ],
)
def test_events_come_in_many_forms(
    client: httpx.Client, headers: dict[str, str], body: str, count: int
) -> None:
    response = client.post("/v1/events", headers=headers, content=body)
    assert response.status_code == 200, response.text
    receipt = response.json()
    assert (receipt["count"], receipt["duplicates"]) == (count, 0)
    assert receipt["first"] > 0


GOOD = '{"n": 1}'
MIDDLE = json.dumps({"x": "y" * 100})
LARGE = json.dumps({"x": "y" * 300_000})


@pytest.mark.parametrize(
    ("media_type", "body", "index", "sentence"),
    [
        ("json", f"[{GOOD}, {GOOD}, 5, {GOOD}]", 2, "[2]: top level: an event is a JSON object"),
        ("json", f'[{GOOD}, {{"a": 1, "a": 2}}]', 1, "[1]: a: the name is given twice"),
        ("json", f"[{GOOD}, {LARGE}]", 1, "[1]: an event of 300,009 bytes exceeds the limit"),
        ("json", f'[{", ".join([MIDDLE] * 400)}, {{"": 1}}]', 400, "[400]: '' is not an"),
        ("x-ndjson", f"{GOOD}\n\n{GOOD}\n[]\n", 2, "line 4: top level: an event is a JSON"),
        ("x-ndjson", f"{GOOD}\r\n{{\n", 1, "line 2, column 2: this is not JSON"),
        ("cloudevents-batch+json", f"[{json.dumps(SOLD)}, {{}}]", 1, "[1]: specversion"),
        ("json", "5", None, "top level: an event is a JSON object"),
    ],
)  # fmt: skip
def test_the_bad_event_of_a_batch_is_located(
    client: httpx.Client, media_type: str, body: str, index: int | None, sentence: str
) -> None:
    headers = {"Content-Type": f"application/{media_type}"}
    response = client.post("/v1/events", headers=headers, content=body)
    problem = response.json()
    assert response.status_code in (413, 422)
    assert problem.get("index") == index
    assert problem["detail"].startswith(sentence)


@pytest.mark.parametrize(
    ("content_type", "body", "data"),
    [
        ("application/json", '{"price": 3}', {"data": {"price": 3}}),
        ("application/vnd.shop+json", '{"price": 3}', {"data": {"price": 3}}),
        ("text/plain", "gräßlich", {"data": "gräßlich"}),
        ("application/octet-stream", b"\x00\xff", {"data_base64": "AP8="}),
    ],
)
def test_a_cloudevent_in_binary_mode(
    client: httpx.Client, content_type: str, body: str | bytes, data: dict[str, Any]
) -> None:
    make(client, "binary", 'type = "sold"')
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "sold"}
    headers |= {"Content-Type": content_type, "ce-subject": "Euro%20%E2%82%AC"}
    response = client.post("/v1/events", headers=headers, content=body)
    assert response.status_code == 200, response.text
    [delivery] = fetch(client, "binary")
    assert delivery["format"] == "cloudevents"
    assert delivery["data"] == SOLD | {
        "subject": "Euro €",
        "datacontenttype": content_type,
        **data,
    }
    client.delete("/v1/subscriptions/binary")


def test_a_sequence_of_zero_is_refused(client: httpx.Client) -> None:
    headers = {"Tamis-Publisher": "till-0", "Tamis-Sequence": "0"}
    refused = client.post("/v1/events", headers=headers, json={"price": 1})
    assert refused.status_code == 400
    assert "Tamis-Sequence" in refused.json()["detail"]
    assert "at least 1" in refused.json()["detail"]


def test_a_repeated_publication_is_stored_once(client: httpx.Client) -> None:
    headers = {"Tamis-Publisher": "till-1", "Tamis-Sequence": "1"}
    events = [{"price": 1}, {"price": 2}]
    first = client.post("/v1/events", headers=headers, json=events).json()
    again = client.post("/v1/events", headers=headers, json=events).json()
    more = client.post(
        "/v1/events", headers=headers | {"Tamis-Sequence": "2"}, json=[*events[1:], {"price": 3}]
    ).json()
    skipped = client.post("/v1/events", headers=headers | {"Tamis-Sequence": "5"}, json={})
    assert (skipped.status_code, skipped.json()["code"]) == (409, "out_of_order")
    assert skipped.json()["expected"] == 4
    left_out = headers | {"Tamis-Sequence": "5", "Tamis-Skip": "true"}
    assert client.post("/v1/events", headers=left_out, json={}).json()["count"] == 1
    late = client.post("/v1/events", headers=headers | {"Tamis-Sequence": "4"}, json={})
    assert (late.status_code, late.json()["expected"]) == (409, 6)
    other = client.post("/v1/events", headers=headers, json={"price": 99})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert first == {"count": 2, "duplicates": 0, "first": first["first"]}
    assert again == {"count": 2, "duplicates": 2, "first": None}
    assert (more["count"], more["duplicates"]) == (2, 1)


@pytest.mark.parametrize(
    ("headers", "body", "status", "code_and_words"),
    [
        ({"Content-Type": "text/csv"}, "a,b", 415, ("bad_request", "text/csv")),
        ({}, "{}", 415, ("bad_request", "without a Content-Type")),
        (JSON, "", 422, ("bad_event", "empty")),
        (JSON, '{"price": }', 422, ("bad_event", "column 11")),
        (JSON, "17", 422, ("bad_event", "object")),
        (JSON, "[17]", 422, ("bad_event", "object")),
        (JSON, "[{}", 400, ("bad_request", "the JSON is complete")),
        (JSON, "[]", 400, ("bad_request", "at least one event")),
        (JSON, '{"a": NaN}', 422, ("bad_event", "NaN")),
        (JSON, '{"a": 1, "a": 2}', 422, ("bad_event", "twice")),
        (JSON, b"\xff", 422, ("bad_event", "UTF-8")),
        (JSON, b"[\xff]", 400, ("bad_request", "not JSON")),
        (JSON, "[" * 100_000, 400, ("bad_request", "")),
        (JSON, '{"a":' * 1000 + "1" + "}" * 1000, 413, ("too_large", "nesting")),
        (JSON, json.dumps({"a": "x" * 300_000}), 413, ("too_large", "262,144")),
        (JSON, json.dumps([{}] * 1001), 413, ("too_large", "1,000")),
        (JSON | {"Tamis-Sequence": "minus one"}, "{}", 400, ("bad_request", "Tamis-Sequence")),
        (JSON | {"Tamis-Sequence": ""}, "{}", 400, ("bad_request", "Tamis-Sequence")),
        (JSON | {"Tamis-Sequence": "-1"}, "{}", 400, ("bad_request", "Tamis-Sequence")),
        (JSON | {"Tamis-Publisher": "x" * 201}, "{}", 400, ("bad_request", "Tamis-Publisher")),
        ({"Content-Type": "application/cloudevents+json"}, "{}", 422, ("bad_event", "specversion")),
        (
            {"Content-Type": "application/cloudevents-batch+json"},
            "{}",
            400,
            ("bad_request", "array"),
        ),
        (JSON | {"ce-specversion": "1.0"}, "{}", 422, ("bad_event", "missing")),
        (JSON | {"ce-specversion": "%ff"}, "{}", 422, ("bad_event", "ce-specversion")),
    ],
)
def test_what_is_no_publication_is_refused_with_a_sentence(
    client: httpx.Client,
    headers: dict[str, str],
    body: str | bytes,
    status: int,
    code_and_words: tuple[str, str],
) -> None:
    response = client.post("/v1/events", headers=headers, content=body)
    check_problem(response, status, *code_and_words)


# --- subscriptions -------------------------------------------------------------------------------


def test_a_subscription_from_its_making_to_its_end(client: httpx.Client) -> None:
    made = make(client, "life", "price < 5", lifetime=1000)
    assert made["id"] == "life"
    assert made["durable"]
    assert client.get("/v1/subscriptions/life").json() == made
    assert made in client.get("/v1/subscriptions").json()["subscriptions"]
    renewed = client.patch("/v1/subscriptions/life", json={"lifetime": 5000}).json()
    assert renewed["expires_at"] > made["expires_at"] + 3000
    for_ever = client.patch("/v1/subscriptions/life", json={"lifetime": None}).json()
    assert for_ever.get("expires_at") is None
    gone = client.delete("/v1/subscriptions/life")
    assert (gone.status_code, gone.content) == (204, b"")
    check_problem(client.get("/v1/subscriptions/life"), 404, "not_found", "life")


def test_a_subscription_without_a_name_is_given_one(client: httpx.Client) -> None:
    ids = {client.post("/v1/subscriptions", json={"filter": "a=1"}).json()["id"] for _ in range(2)}
    assert len(ids) == 2
    for id_ in ids:
        assert client.delete(f"/v1/subscriptions/{id_}").status_code == 204


def test_a_list_is_paged(client: httpx.Client) -> None:
    for number in range(5):
        make(client, f"page-{number}", "false")
    found, after = [], "page-"
    while True:
        page = client.get("/v1/subscriptions", params={"after": after, "limit": 2}).json()
        found += [one["id"] for one in page["subscriptions"] if one["id"].startswith("page-")]
        if page["next"] is None:
            break
        after = page["next"]
    assert found == [f"page-{number}" for number in range(5)]


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ("{", 400, "bad_request", ("ends before the JSON is complete",)),
        ("[]", 400, "bad_request", ("the body must be an object",)),
        ("{}", 400, "bad_request", ("filter",)),
        ('{"filter": 5}', 400, "bad_request", ("filter in the body must be a text",)),
        ('{"filter": "a=1", "lifetme": 5}', 400, "bad_request", ("lifetme",)),
        ('{"filter": "a=1", "lifetime": "5"}', 400, "bad_request", ("lifetime in the body",)),
        ('{"filter": "a=1", "lifetime": 0}', 400, "bad_request", ("lifetime in the body",)),
        ('{"filter": "a=1", "lifetime": 1e400}', 400, "bad_request", ()),
        ('{"filter": "a=1", "id": "a/b"}', 400, "bad_request", ("the name is 'a/b'; it must",)),
        ('{"filter": "a=1", "id": ".."}', 400, "bad_request", ("the name is '..'", "not . or ..")),
        ('{"filter": "a=1", "id": "."}', 400, "bad_request", ("the name is '.'", "not . or ..")),
        ('{"filter": "a=1", "overflow": "drop"}', 400, "bad_request", ("overflow",)),
        ('{"filter": "a=1", "start": "soon"}', 400, "bad_request", ("soon",)),
        ('{"filter": "a=1", "max_attempts": -1}', 400, "bad_request", ("of at least 0",)),
        ('{"filter": "price <"}', 422, "bad_filter", ("column 8",)),
        ('{"filter": "a=1", "language": "latin"}', 422, "bad_filter", ("latin",)),
        ('{"filter": "a=1", "mode": "total"}', 422, "bad_filter", ("total",)),
        (json.dumps({"filter": "(" * 10_000}), 422, "bad_filter", ()),
        (json.dumps({"filter": "a" * 20_000}), 400, "bad_request", ("must be a text of at most",)),
    ],
)
def test_what_is_no_subscription_is_refused_with_a_sentence(
    client: httpx.Client, body: str, status: int, code: str, words: tuple[str, ...]
) -> None:
    response = client.post("/v1/subscriptions", headers=JSON, content=body)
    check_problem(response, status, code, *words)


def test_a_wrong_row_of_a_batch_has_a_result_of_its_own(client: httpx.Client) -> None:
    rows = [{"id": "rows 1"}, {"id": "a/b"}, {"id": "rows-2", "start": "yesterday"}, {"id": ""}]
    body = {"subscriptions": [{"filter": "a=1", **row} for row in rows]}
    response = client.post("/v1/subscriptions/batch", json=body)
    results = response.json()["results"]
    assert [one.get("code") for one in results] == [None, *["bad_request"] * 3]
    assert "the name is 'a/b'; it must be a text of 1 to 200 printable" in results[1]["message"]
    assert "'yesterday' is not a start" in results[2]["message"]
    assert client.get("/v1/subscriptions/rows%201").json()["filter"] == "a=1"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"lifetme": 5}, 'has no field "lifetme"; did you mean "lifetime"?'),
        ({"filter": 5}, "subscriptions[1].filter in the body must be a text"),
        ({"max_attempts": -1}, "subscriptions[1].max_attempts in the body must be an integer of"),
    ],
)
def test_a_field_that_is_no_subscriptions_refuses_the_batch(
    client: httpx.Client, row: dict[str, Any], sentence: str
) -> None:
    body = {"subscriptions": [{"id": "batch-1", "filter": "a=1"}, {"filter": "a=1", **row}]}
    response = client.post("/v1/subscriptions/batch", json=body)
    check_problem(response, 400, "bad_request", "subscriptions[1]", sentence)
    assert client.get("/v1/subscriptions/batch-1").status_code == 404


# --- delivery ------------------------------------------------------------------------------------


def test_what_was_fetched_and_acknowledged_does_not_come_again(client: httpx.Client) -> None:
    make(client, "pull", "kind = 'pull'")
    first = publish(client, {"kind": "pull", "n": 1}, {"kind": "pull", "n": 2}, {"kind": "other"})
    events = fetch(client, "pull")
    assert [event["sequence"] for event in events] == [first, first + 1]
    assert [event["data"]["n"] for event in events] == [1, 2]
    path = "/v1/subscriptions/pull/acknowledge"
    assert client.post(path, json={"sequences": [first]}).status_code == 204
    assert client.post(path, json={"up_to": first + 1}).status_code == 204
    view = client.get("/v1/subscriptions/pull").json()
    assert view["in_flight"] == 0
    assert fetch(client, "pull", wait=0) == []


def test_workers_of_a_group_fetch_different_events(client: httpx.Client) -> None:
    make(client, "workers", "kind = 'work'", group=True, ordering_key="key")
    path = "/v1/subscriptions/workers"
    first = publish(client, *({"kind": "work", "key": key} for key in "aab"))
    # Of those with one key, the second waits until the first is settled.
    assert [one["sequence"] for one in fetch(client, "workers")] == [first, first + 2]
    assert fetch(client, "workers", wait=0) == []
    refused = client.post(f"{path}/acknowledge", json={"up_to": first + 2})
    check_problem(refused, 400, "bad_request", "group", "one by one")
    acknowledged = client.post(f"{path}/acknowledge", json={"sequences": [first, first + 2]})
    assert acknowledged.status_code == 204
    assert [one["sequence"] for one in fetch(client, "workers")] == [first + 1]
    assert client.delete(path).status_code == 204


def test_rejected_events_are_redelivered_and_then_become_dead_letters(client: httpx.Client) -> None:
    make(client, "letters", "kind = 'letter'", max_attempts=2)
    sequence = publish(client, {"kind": "letter"})
    path = "/v1/subscriptions/letters"
    for attempt in (1, 2):
        [event] = fetch(client, "letters")
        assert (event["sequence"], event.get("attempt", 1)) == (sequence, attempt)
        rejection = {"sequence": sequence, "delay": 0, "reason": "no room"}
        assert client.post(f"{path}/reject", json=rejection).status_code == 204
    [letter] = until(lambda: client.get(f"{path}/dead-letters").json()["dead_letters"])
    assert (letter["sequence"], letter["reason"], letter["attempts"]) == (sequence, "no room", 2)
    assert client.get(f"{path}/dead-letters", params={"after": sequence}).json() == {
        "dead_letters": []
    }
    requeued = client.post(f"{path}/dead-letters/requeue", json={"sequences": [sequence]})
    assert requeued.json() == {"count": 1}
    assert [event["sequence"] for event in fetch(client, "letters")] == [sequence]
    params = {"sequence": [sequence, sequence + 1]}
    assert client.delete(f"{path}/dead-letters", params=params).json() == {"count": 0}


def until(look: Callable[[], Any]) -> Any:
    """Look again and again until there is something."""
    for _ in range(500):
        if found := look():
            return found
    raise AssertionError("nothing was found")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PATCH", "", {"lifetime": 5}),
        ("DELETE", "", None),
        ("GET", "/events", None),
        ("POST", "/fetch", {}),
        ("POST", "/acknowledge", {"up_to": 1}),
        ("POST", "/reject", {"sequence": 1}),
        ("GET", "/dead-letters", None),
        ("DELETE", "/dead-letters?sequence=1", None),
        ("POST", "/dead-letters/requeue", {"sequences": [1]}),
        ("POST", "/explain", {"event": {}}),
    ],
)
def test_nothing_can_be_done_with_a_subscription_that_is_not_there(
    client: httpx.Client, method: str, path: str, body: object
) -> None:
    url, headers = f"/v1/subscriptions/nowhere{path}", {"Tamis-Request": "1"}
    response = client.request(method, url, json=body, headers=headers)
    check_problem(response, 404, "not_found", "nowhere")


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/v1/subscriptions?limit=0", "limit in the query must be an integer"),
        ("GET", "/v1/subscriptions?limit=many", "limit in the query must be an integer"),
        ("GET", "/v1/subscriptions?limit=1&limit=2", "given twice"),
        ("GET", "/v1/subscriptions?lmit=1", "lmit"),
        ("GET", "/v1/audit?after=-1", "after in the query must be"),
        ("GET", "/v1/events?polcy=drop", "polcy"),
        ("DELETE", "/v1/subscriptions/a/dead-letters", "sequence"),
        ("DELETE", "/v1/subscriptions/a/dead-letters?sequence=x", "sequence"),
    ],
)
def test_a_query_that_is_wrong_is_refused_with_its_place(
    client: httpx.Client, method: str, path: str, words: str
) -> None:
    check_problem(client.request(method, path), 400, "bad_request", words)


# --- filters -------------------------------------------------------------------------------------


def test_a_filter_is_tried_on_samples(client: httpx.Client) -> None:
    body = {"filter": "price < 5", "events": [{"price": 3}, {"price": 7}, {}, 17]}
    results = client.post("/v1/filters/try", json=body).json()["results"]
    assert [one["matches"] for one in results] == [True, False, False, None]
    assert "object" in results[3]["error"]


def test_a_filter_and_a_subscription_are_explained(client: httpx.Client) -> None:
    make(client, "why", "price < 5")
    by_filter = client.post(
        "/v1/filters/explain", json={"filter": "price < 5", "event": {"price": 7}}
    ).json()["explanation"]
    by_id = client.post("/v1/subscriptions/why/explain", json={"event": {"price": 7}}).json()
    assert by_filter.startswith("The filter does not match:\n- price is 7")
    assert "price" in by_id["explanation"]
    assert by_id["matched"] is False
    bad = client.post("/v1/filters/explain", json={"filter": "price < 5", "event": {"a": [[1]]}})
    assert bad.status_code in (200, 422)
    check_problem(
        client.post("/v1/filters/explain", json={"filter": "price <", "event": {}}),
        422,
        "bad_filter",
        "column 8",
    )


# --- administration ------------------------------------------------------------------------------


def test_a_token_is_issued_shown_and_revoked(client: httpx.Client) -> None:
    body = {"principal": "ann", "roles": [], "lifetime": 60, "note": "for the laptop"}
    issued = client.post("/v1/tokens", json=body)
    assert issued.status_code == 201
    text, token = issued.json()["text"], issued.json()["token"]
    assert token["principal"] == "ann"
    listed = client.get("/v1/tokens")
    assert token in listed.json()["tokens"]
    assert text not in listed.text
    assert client.delete(f"/v1/tokens/{token['id']}").status_code == 204
    check_problem(client.delete(f"/v1/tokens/{token['id']}"), 404, "not_found")
    refused = client.get("/v1/tokens", headers={"Authorization": f"Bearer {text}"})
    check_problem(refused, 401, "unauthenticated", "not valid")
    assert refused.headers["www-authenticate"].startswith("Bearer")
    acts = [entry["act"] for entry in client.get("/v1/audit").json()["entries"]]
    assert {"issue token", "revoke token"} <= set(acts)


def test_the_broker_reports_its_status(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "alive"}
    assert client.get("/ready").json() == {"status": "ready"}
    assert client.get("/v1/status").json()["ready"] is True
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "tamis_published_events_total" in metrics.text
    page = client.get("/")
    assert "/openapi.json" in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("value", ["Basic YTpi", "Bearer", "tamis_x"])
def test_an_authorization_that_is_no_token_is_refused(client: httpx.Client, value: str) -> None:
    response = client.get("/v1/status", headers={"Authorization": value})
    check_problem(response, 401, "unauthenticated", "Bearer")


# --- what is nowhere -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/nowhere", "/v1", "/v1/events/", "/v1//events", "/v2/events"])
def test_a_path_that_is_not_there(client: httpx.Client, path: str) -> None:
    check_problem(client.get(path), 404, "not_found", path)


@pytest.mark.parametrize("path", sorted({operation.path for operation in ALL}))
@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "TRACE", "BREW"])
def test_a_method_that_is_not_there(client: httpx.Client, method: str, path: str) -> None:
    known = {operation.method for operation in ALL if operation.path == path}
    method = "COPY" if method in known else method
    response = client.request(method, path)
    check_problem(response, 405, "bad_request", method)
    assert set(response.headers["allow"].split(", ")) == known


@pytest.mark.parametrize("path", ["/health", "/", "/openapi.json", "/v1/subscriptions"])
def test_head_says_what_get_says_without_the_body(client: httpx.Client, path: str) -> None:
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize(
    "path", [operation.path for operation in ALL if operation.body is not None]
)
def test_a_body_of_another_kind_is_refused(client: httpx.Client, path: str) -> None:
    method = next(o.method for o in ALL if o.path == path and o.body is not None)
    response = client.request(
        method, path, headers={"Content-Type": "application/x-www-form-urlencoded"}, content="a=b"
    )
    check_problem(response, 415, "bad_request", "application/json")


# --- the past ------------------------------------------------------------------------------------


def test_the_past_is_read_piece_by_piece(client: httpx.Client) -> None:
    first = publish(client, *({"past": n} for n in range(5)))
    query: dict[str, Any] = {"filter": "past >= 0", "start": first, "limit": 2}
    pieces: list[dict[str, Any]] = []
    while not pieces or pieces[-1]["next"] < pieces[-1]["end"]:
        response = client.get("/v1/history", params=query)
        assert response.status_code == 200, response.text
        pieces.append(response.json())
        query |= {"start": pieces[-1]["next"], "end": pieces[-1]["end"]}
    assert [event["data"]["past"] for piece in pieces for event in piece["events"]] == [*range(5)]
    assert [len(piece["events"]) for piece in pieces] == [2, 2, 1]


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ({"start": "tomorrow"}, "bad_request", "'tomorrow' is not a start"),
        ({"end": "tomorrow"}, "bad_request", "'tomorrow' is not a start"),
        ({"limit": 0}, "bad_request", "limit"),
        ({"limit": 1_001}, "bad_request", "limit"),
    ],
)
def test_what_cannot_be_read_of_the_past(
    client: httpx.Client, query: dict[str, Any], code: str, words: str
) -> None:
    check_problem(client.get("/v1/history", params=query), 400, code, words)
    check_problem(client.get("/v1/history?filter=a+<"), 422, "bad_filter", "missing at the end")


def test_no_answer_has_gone_wrong_inside(server: ServerProcess) -> None:
    assert server.errors == ""

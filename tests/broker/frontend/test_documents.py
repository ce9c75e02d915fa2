"""XML documents over HTTP: published as they are, and back in every form of delivery."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import pytest

from broker.document_cases import CHAIRS, MANY_CHAIRS, TABLES
from broker.server import running
from waiting import eventually

from .conftest import Guarded
from .test_http import fetch

XML = {"Content-Type": "application/xml"}


def publish(client: httpx.Client, body: str | bytes, content_type: str = "application/xml") -> int:
    """Publish a document, and return its sequence."""
    response = client.post("/v1/events", headers={"Content-Type": content_type}, content=body)
    assert response.status_code == 200, response.text
    first: int = response.json()["first"]
    return first


def subscribe(client: httpx.Client, name: str, text: str, language: str = "xql") -> None:
    wanted = {"id": name, "filter": text, "language": language}
    response = client.post("/v1/subscriptions", json=wanted)
    assert response.status_code == 201, response.text


def test_a_document_comes_back_as_it_was_sent(client: httpx.Client) -> None:
    subscribe(client, "chairs", MANY_CHAIRS)
    publish(client, TABLES)
    publish(client, CHAIRS)
    [delivery] = fetch(client, "chairs")
    assert (delivery["data"], delivery["format"]) == (CHAIRS, "xml")
    assert client.get("/v1/subscriptions/chairs").json()["residue"] == 1
    client.delete("/v1/subscriptions/chairs")


def test_the_next_event_comes_as_it_was_published(client: httpx.Client) -> None:
    subscribe(client, "one", MANY_CHAIRS)
    text = "<?xml version='1.0' encoding='iso-8859-1'?>" + CHAIRS.replace("table", "Hürde")
    publish(client, TABLES)
    sequence = publish(client, text.encode("latin-1"))
    found = client.post("/v1/subscriptions/one/next", json={"wait": 20})
    assert found.headers["Content-Type"] == "application/xml; charset=iso-8859-1"
    assert (found.status_code, found.content) == (200, text.encode("latin-1"))
    told = [found.headers[f"Tamis-{name}"] for name in ("Sequence", "Publisher", "Attempt")]
    assert told == [str(sequence), "anonymous", "1"]
    body = {"sequences": [sequence]}
    assert client.post("/v1/subscriptions/one/acknowledge", json=body).status_code == 204
    assert client.post("/v1/subscriptions/one/next", json={}).status_code == 204
    assert client.post("/v1/subscriptions/none/next", json={}).status_code == 404
    client.delete("/v1/subscriptions/one")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/xml", "<t>grün</t>".encode()),
        ("application/atom+xml; charset=utf-8", "<t>grün</t>".encode()),
        (
            "application/xml",
            "<?xml version='1.0' encoding='iso-8859-1'?><t>grün</t>".encode("latin-1"),
        ),
        ("application/xml; charset=ISO-8859-1", "<t>grün</t>".encode("latin-1")),
        ("application/xml", "<t>grün</t>".encode("utf-16")),
    ],
)
def test_documents_come_in_many_encodings(
    client: httpx.Client, content_type: str, body: bytes
) -> None:
    subscribe(client, "green", "t[. = 'grün']")
    publish(client, body, content_type)
    [delivery] = fetch(client, "green")
    assert delivery["data"].endswith("<t>grün</t>")
    client.delete("/v1/subscriptions/green")


@pytest.mark.parametrize(
    ("content_type", "encoding", "declared"),
    [
        ("application/xml", "utf-8", ""),
        ("application/xml", "iso-8859-1", "iso-8859-1"),
        ("application/xml", "utf-16", "UTF-16"),
        ("application/xml", "utf-16", ""),
        ("application/xml; charset=utf8", "utf-8", "iso-8859-1"),
        ("application/xml; charset=iso-8859-1", "iso-8859-1", "utf-8"),
        # The mark decides.
        ("application/xml; charset=iso-8859-1", "utf-8-sig", "iso-8859-1"),
    ],
)
def test_the_next_event_may_be_published_again_as_it_came(
    client: httpx.Client, content_type: str, encoding: str, declared: str
) -> None:
    subscribe(client, "green", "t[. = 'grün']")
    declaration = f"<?xml version='1.0' encoding='{declared}'?>" if declared else ""
    body = f"{declaration}<t>grün</t>".encode(encoding)
    for _ in range(3):
        publish(client, body, content_type)
        found = client.post("/v1/subscriptions/green/next", json={"wait": 20})
        assert found.status_code == 200
        assert found.text.endswith("<t>grün</t>")
        client.post(
            "/v1/subscriptions/green/acknowledge",
            json={"sequences": [int(found.headers["Tamis-Sequence"])]},
        )
        # As somebody does who has saved the body, and forgotten its headers.
        body, content_type = found.content, "application/xml"
    client.delete("/v1/subscriptions/green")


@pytest.mark.parametrize(
    ("content_type", "body", "status", "sentence"),
    [
        ("application/xml", "<a><b></a>", 422, "not well-formed"),
        ("application/xml", "<!DOCTYPE a><a/>", 422, "a document type declaration"),
        ("application/xml", b"\xff\xff", 422, "this is not utf-8"),
        ("application/xml; charset=ebcdic", "<a/>", 422, 'the encoding "ebcdic" is not read'),
        ("application/xml", "<a>" * 70 + "</a>" * 70, 413, "elements inside each other"),
        ("application/xml", f"<a>{'x' * 300_000}</a>", 413, "exceeds the limit of 262,144"),
        ("application/yaml", "a: 1", 415, "application/xml"),
    ],
)
def test_what_is_no_document_is_refused_with_a_sentence(
    client: httpx.Client, content_type: str, body: str | bytes, status: int, sentence: str
) -> None:
    response = client.post("/v1/events", headers={"Content-Type": content_type}, content=body)
    assert response.status_code == status, response.text
    assert sentence in response.json()["detail"]


def test_a_stream_has_only_what_matches_exactly(client: httpx.Client) -> None:
    start = publish(client, TABLES)
    publish(client, CHAIRS)
    query = {"filter": MANY_CHAIRS, "language": "xql", "start": str(start)}
    with client.stream("GET", "/v1/events", params=query) as response:
        lines = (line for line in response.iter_lines() if line.startswith("data: "))
        first = next(lines)
    assert "<sku>chair</sku><quantity>9</quantity>" in first


def test_history_has_only_what_matches_exactly(client: httpx.Client) -> None:
    start = publish(client, TABLES)
    publish(client, CHAIRS)
    query = {"filter": MANY_CHAIRS, "language": "xql", "start": str(start)}
    found = client.get("/v1/history", params=query).json()["events"]
    assert [one["data"] for one in found] == [CHAIRS]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at what a process has loaded")
def test_a_server_loads_what_parses_documents_before_the_first_comes(tmp_path: Path) -> None:
    # It takes a tenth of a second, for which whoever sends the first would have to wait and pay.
    with running(tmp_path) as server:
        assert server.process is not None
        loaded = Path(f"/proc/{server.process.pid}/maps")
        eventually(lambda: "lxml" in loaded.read_text())


def test_a_trader_from_whom_something_is_hidden_asks_by_no_query(guarded: Guarded) -> None:
    with guarded.server.client(guarded.trader) as trader:
        wanted = {"id": "q", "filter": "//secret", "language": "xql"}
        response = trader.post("/v1/subscriptions", json=wanted)
        assert response.status_code == 403
        assert "a query can ask for anything" in response.json()["detail"]
        assert trader.post("/v1/events", headers=XML, content=CHAIRS).status_code == 403

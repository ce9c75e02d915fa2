"""The token in the environment reaches only the broker that it belongs to."""

from __future__ import annotations

import pytest

from tamis.client.environment import broker_address, environment_token

TOKEN = "tamis_secret"  # noqa: S105


@pytest.mark.parametrize(
    ("home", "url", "is_sent"),
    [
        ("https://broker.example", None, True),
        ("https://broker.example", "https://broker.example", True),
        ("https://broker.example", "wss://BROKER.example:443/v1/connect", True),
        ("https://broker.example", "https://broker.example:8443", False),
        ("https://broker.example", "http://broker.example", False),
        ("https://broker.example", "https://evil.example", False),
        ("https://broker.example", "https://broker.example.evil.example", False),
        ("https://broker.example", "http://127.0.0.1:8765", False),
        ("nonsense", "http://127.0.0.1:8765", False),
        ("", None, True),
        ("", "http://127.0.0.1:9000", True),
        ("", "http://localhost:9000", True),
        ("", "https://[::1]", True),
        ("", "https://broker.example", False),
        ("", "http://192.0.2.1:8765", False),
    ],
)
def test_the_token_is_sent_only_to_the_broker_it_belongs_to(
    home: str,
    url: str | None,
    is_sent: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TAMIS_URL", home)
    monkeypatch.setenv("TAMIS_TOKEN", TOKEN)
    assert environment_token(broker_address(url)) == (TOKEN if is_sent else None)
    assert ("TAMIS_TOKEN is not sent to http" in caplog.text) is not is_sent
    assert TOKEN not in caplog.text


def test_without_a_token_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TAMIS_TOKEN", "")
    assert environment_token(broker_address("https://evil.example")) is None
    assert caplog.text == ""

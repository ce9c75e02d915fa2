"""`frontend/protocols.py` builds on internals of Uvicorn: here is what it relies on.

If one of these fails after an upgrade, compare the class in Uvicorn with `protocols.py`, adapt it,
and only then widen the range of versions in pyproject.toml.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

PROJECT = Path(__file__).parents[3] / "pyproject.toml"

METHODS: dict[type, dict[str, list[str]]] = {
    H11Protocol: {
        "__init__": ["self", "config", "server_state", "app_state", "_loop"],
        "connection_made": ["self", "transport"],
        "connection_lost": ["self", "exc"],
        "data_received": ["self", "data"],
        "handle_websocket_upgrade": ["self", "event"],
        "pause_writing": ["self"],
        "resume_writing": ["self"],
        "send_400_response": ["self", "msg"],
    },
    WebSocketsSansIOProtocol: {
        "connection_made": ["self", "transport"],
        "connection_lost": ["self", "exc"],
        "handle_text": ["self", "event"],
        "handle_bytes": ["self", "event"],
        "handle_cont": ["self", "event"],
        "send_receive_event_to_app": ["self"],
        "handle_parser_exception": ["self"],
        "pause_writing": ["self"],
        "resume_writing": ["self"],
        "send": ["self", "message"],
    },
    uvicorn.Server: {
        "startup": ["self", "sockets"],
        "shutdown": ["self", "sockets"],
        "capture_signals": ["self"],
        "handle_exit": ["self", "sig", "frame"],
    },
}

ATTRIBUTES: dict[type, list[str]] = {
    H11Protocol: ["conn", "cycle", "transport", "connections", "app_state", "loop", "config"],
    WebSocketsSansIOProtocol: [
        "conn",
        "queue",
        "transport",
        "writable",
        "disconnected",
        "close_sent",
        "close_timer",
        # Not empty while a message is in fragments, and only then.
        "frames",
        "curr_msg_data_type",
        "read_paused",
        "handshake_initiated",
        "handshake_complete",
        "initial_response",
    ],
}


@pytest.mark.parametrize("kind", METHODS)
def test_the_methods_that_are_overridden_or_called_have_these_parameters(kind: type) -> None:
    for name, parameters in METHODS[kind].items():
        found = getattr(kind, name, None)
        assert found is not None, f"Uvicorn {uvicorn.__version__}: {kind.__name__} has no {name}"
        actual = [*inspect.signature(found).parameters]
        assert actual == parameters, (
            f"Uvicorn {uvicorn.__version__}: {kind.__name__}.{name} takes {actual}"
        )


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_the_attributes_that_are_used_are_set_by_the_constructor(kind: type) -> None:
    source = inspect.getsource(kind.__init__)  # type: ignore[misc]
    for name in ATTRIBUTES[kind]:
        assert re.search(rf"self\.{name}\b.*=", source), (
            f"Uvicorn {uvicorn.__version__}: {kind.__name__}.__init__ does not set {name}"
        )


def test_uvicorn_refuses_to_send_on_closed_or_lost_websockets() -> None:
    """Our `send` writes frames by itself, so it must refuse where Uvicorn's does."""
    source = inspect.getsource(WebSocketsSansIOProtocol.send)
    for part in (
        "await self.writable.wait()",
        "if self.disconnected:\n            raise ClientDisconnected()",
        "except InvalidState:\n                raise ClientDisconnected()",
        'self.transport.write(b"".join(output))',
    ):
        assert part in source, f"Uvicorn {uvicorn.__version__} sends differently: no {part!r}"


def test_only_versions_that_were_tested_are_allowed() -> None:
    text = PROJECT.read_text(encoding="utf-8")
    major, minor, *_ = uvicorn.__version__.split(".")
    assert f'"uvicorn>={major}.{minor},<{major}.{int(minor) + 1}"' in text

"""Servers whose policy can change, readers of their streams, and JSON Web Tokens for both."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from websockets.exceptions import ConnectionClosed

from broker.authorization_clients import Data
from broker.frontend.sockets import Talk as SocketTalk
from broker.server import ServerProcess, make_token, running

# --- JSON Web Tokens -----------------------------------------------------------------------------

SECRET = "a secret of more than thirty-two bytes"  # noqa: S105 - for tests


def jwt_settings(folder: Path) -> dict[str, Any]:
    key = OctKey.import_key(SECRET)
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": [{**key.as_dict(private=True), "kid": "1"}]}))
    return {
        "jwt_keys": path,
        "jwt_issuer": "https://id.example",
        "jwt_audience": "tamis",
        "jwt_algorithms": "HS256",
        "jwt_leeway": 0,
    }


def jwt_for(name: str, roles: Sequence[str], expires_at: float) -> str:
    claims = {
        "iss": "https://id.example",
        "aud": "tamis",
        "sub": name,
        "roles": [*roles],
        "exp": int(expires_at),
    }
    header = {"alg": "HS256", "kid": "1"}
    return jwt.encode(header, claims, OctKey.import_key(SECRET))


# --- servers -------------------------------------------------------------------------------------

ADMIN_ROLE = """
[roles.admin]
admin = true
publish = true
see = true
"""


class PolicyServer:
    """A server process whose policy can change."""

    def __init__(self, folder: Path, policy: str) -> None:
        self.folder = folder
        self.policy = folder / "policy.toml"
        self.policy.write_text(ADMIN_ROLE + policy)
        self.tokens = {
            "root": make_token(folder, self.policy, "root", "admin"),
            "ann": make_token(folder, self.policy, "ann", "reader"),
            "bob": make_token(folder, self.policy, "bob", "reader"),
        }

    @contextmanager
    def running(self) -> Iterator[ServerProcess]:
        with running(self.folder, policy=self.policy, **jwt_settings(self.folder)) as server:
            yield server
            assert not [token for token in self.tokens.values() if token in server.log]


class Reader:
    """A reader of a server, by WebSocket and by Server-Sent Events."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self.client = server.client(token)
        self.streamed: list[Data] = []
        self.ended: list[float | str] = []
        """When the stream ended, and why."""
        self.connection = SocketTalk(server, hello=False)
        self.connection.say("hello", token=token)
        self.connection.hear("welcome")
        self.connection.ask("subscribe", "subscribed", filter="a > 0", credit=100_000)
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._stream, daemon=True)
        self._thread.start()
        assert self._has_begun.wait(20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.__exit__()
        self.client.close()

    def _stream(self) -> None:
        kind = ""
        with self.client.stream("GET", "/v1/events?filter=a>0") as response:
            for line in response.iter_lines():
                self._has_begun.set()
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind == "ended":
                    self.ended += [time.time(), json.loads(value)["reason"]]
                elif name == "data":
                    self.streamed.append(json.loads(value))
                    if is_last(self.streamed):
                        return

    def read_until_last(self) -> tuple[list[Data], list[Data]]:
        """Return the events of both streams, up to the last one."""
        got: list[Data] = []
        while not is_last(got):
            got += self.connection.hear("deliver")["events"]
        self._thread.join(20)
        assert is_last(self.streamed)
        return got, self.streamed

    def wait_for_end(self) -> float:
        """Return the time at which the server had ended both streams, with the reason."""
        self.connection.hear("refused")
        with pytest.raises(ConnectionClosed) as closed:
            self.connection.hear()
        moment, said = time.time(), closed.value.rcvd
        assert said is not None
        assert (said.code, said.reason) == (4401, CREDENTIAL_ENDED)
        self._thread.join(20)
        over, reason = self.ended
        assert reason == CREDENTIAL_ENDED
        assert isinstance(over, float)
        return max(moment, over)


CREDENTIAL_ENDED = "the credential is no longer valid"
LAST_VALUE = 1_000_000


def is_last(events: Sequence[Data]) -> bool:
    return bool(events) and events[-1]["data"]["a"] == LAST_VALUE

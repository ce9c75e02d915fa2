"""Servers whose policy can be rewritten, those who read there, and JSON Web Tokens for them."""

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

from broker.authorization_actors import Data
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

SERVED = """
[roles.admin]
admin = true
publish = true
see = true
"""


class Served:
    """A server process whose policy can be rewritten."""

    def __init__(self, folder: Path, policy: str) -> None:
        self.folder = folder
        self.policy = folder / "policy.toml"
        self.policy.write_text(SERVED + policy)
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
    """Someone who reads at a server, over a WebSocket and as Server-Sent Events."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self.client = server.client(token)
        self.streamed: list[Data] = []
        self.ended: list[float | str] = []
        """When the stream was over, and why."""
        self.talk = SocketTalk(server, hello=False)
        self.talk.say("hello", token=token)
        self.talk.hear("welcome")
        self.talk.ask("subscribe", "subscribed", filter="a > 0", credit=100_000)
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._stream, daemon=True)
        self._thread.start()
        assert self._has_begun.wait(20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.talk.__exit__()
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

    def until_last(self) -> tuple[list[Data], list[Data]]:
        """Return what came over both ways, up to the last event."""
        got: list[Data] = []
        while not is_last(got):
            got += self.talk.hear("deliver")["events"]
        self._thread.join(20)
        assert is_last(self.streamed)
        return got, self.streamed

    def until_the_end(self) -> float:
        """Return when the server has ended both ways, saying why."""
        self.talk.hear("refused")
        with pytest.raises(ConnectionClosed) as closed:
            self.talk.hear()
        moment, said = time.time(), closed.value.rcvd
        assert said is not None
        assert (said.code, said.reason) == (4401, NO_LONGER)
        self._thread.join(20)
        over, reason = self.ended
        assert reason == NO_LONGER
        assert isinstance(over, float)
        return max(moment, over)


NO_LONGER = "the credential is no longer valid"
LAST = 1_000_000


def is_last(events: Sequence[Data]) -> bool:
    return bool(events) and events[-1]["data"]["a"] == LAST

"""What an abusive client does at full speed, each in threads of a process of its own.

Each abuse is a function of a target. It goes on until it is told to stop, and takes every refusal
as an invitation to try again.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from threading import Event, Thread
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from websockets.exceptions import WebSocketException

from benchmarks.broker.wire import Wire
from tamis.errors import RefusedError
from tamis.protocol import Credit, encode_frame

TIMEOUT_SECONDS: Final = 30.0
DRIPPING: Final = 300
UNFINISHED: Final = 150
UNFINISHED_BYTES: Final = 4 << 20
SILENT: Final = 300
UNREAD_SUBSCRIPTIONS: Final = 3_000
LARGE_TEXT: Final = "x" * 60_000
LARGE_BODY: Final = json.dumps([{"n": n, "text": "x" * 900} for n in range(3_000)]).encode()
BACK_OFF_SECONDS: Final = 0.01


class Target(NamedTuple):
    """A broker, the abuser's token, the end of the abuse, and what came of it."""

    port: int
    token: str
    over: Event
    answers: Counter[int]
    """How many answers had each status; 0: there was none."""

    def call(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Make a request on a connection of its own; 0 if there was no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        known = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, sent, known | headers)
            answer = connection.getresponse()
            text = answer.read()
            self.answers[answer.status] += 1
            if answer.status >= http.client.BAD_REQUEST:
                time.sleep(BACK_OFF_SECONDS)
            return answer.status, json.loads(text) if text[:1] == b"{" else {}
        except (OSError, http.client.HTTPException, ValueError):
            self.answers[0] += 1
            time.sleep(BACK_OFF_SECONDS)
            return 0, {}
        finally:
            connection.close()

    def connect(self) -> socket.socket | None:
        """Open a connection; None if the broker takes no more."""
        with suppress(OSError):
            return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_SECONDS)
        return None

    def rounds(self) -> Iterator[int]:
        """Count until the end."""
        for number in count():
            if self.over.is_set():
                return
            yield number


class Abuse(NamedTuple):
    """What is done, in how many threads, and what is there before."""

    act: Callable[[Target], None]
    threads: int
    prepare: Callable[[Target], None] | None = None


# --- without a credential ------------------------------------------------------------------------


def dripping_bodies(target: Target) -> None:
    """Send requests that are refused, whose bodies never end."""
    head = b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{"
    _hold(target, DRIPPING, head, b" ")


def unfinished_frames(target: Target) -> None:
    """Open WebSockets and send nearly all of a first frame of 4 MiB."""
    head = (
        b"GET /v1/connect HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    frame = b"\x81\xff" + UNFINISHED_BYTES.to_bytes(8) + bytes(4) + b" " * (UNFINISHED_BYTES - 2)
    _hold(target, UNFINISHED, head + frame, b"")


def silent_connections(target: Target) -> None:
    """Open connections and say nothing."""
    _hold(target, SILENT, b"", b"")


def _hold(target: Target, most: int, head: bytes, drip: bytes) -> None:
    """Keep a number of connections open, each begun with some bytes, and feed them slowly."""
    held: list[socket.socket] = []
    for _ in target.rounds():
        if len(held) < most:
            opened = target.connect()
            if opened is not None:
                with suppress(OSError):
                    opened.sendall(head)
                held.append(opened)
        else:
            time.sleep(BACK_OFF_SECONDS)
        kept = []
        for one in held:
            try:
                if drip and random.random() < 1 / most:
                    one.send(drip)
                kept.append(one)
            except OSError:
                one.close()
        held = kept
    for one in held:
        one.close()


# --- with one ------------------------------------------------------------------------------------


def slow_patterns(target: Target) -> None:
    """Subscribe with patterns that take long, and publish long texts."""
    for pieces in (7_000, 2_000, 500, 120):
        wanted = {"filter": f"text like '{'%x' * pieces}y'", "id": f"pattern-{pieces}"}
        target.call("POST", "/v1/subscriptions", wanted)
    for _ in target.rounds():
        target.call("POST", "/v1/events", {"text": LARGE_TEXT})


def trials(target: Target) -> None:
    """Try filters on as many sample events as a request may have."""
    wide = " or ".join(f"(a{n} = {n} and b{n} contains 'x')" for n in range(400))
    events = [{f"a{n}": n, f"b{n}": "y" * 50} for n in range(400)]
    for _ in target.rounds():
        target.call("POST", "/v1/filters/try", {"filter": wide, "events": events})


def histories(target: Target) -> None:
    """Read the whole history, with a filter that matches little."""
    query = urlencode({"filter": "n < 0 or text contains 'zzz'", "start": "earliest"})
    for _ in target.rounds():
        target.call("GET", f"/v1/history?{query}")


def replays(target: Target) -> None:
    """Subscribe from the beginning, again and again."""
    own = random.randrange(1 << 30)
    for number in target.rounds():
        name = f"replay-{own}-{number}"
        wanted = {"filter": "n >= 0", "id": name, "start": "earliest"}
        target.call("POST", "/v1/subscriptions", wanted)
        target.call("DELETE", f"/v1/subscriptions/{name}")


def large_bodies(target: Target) -> None:
    """Publish bodies of 3 MB, beyond any quota."""
    for _ in target.rounds():
        target.call("POST", "/v1/events", LARGE_BODY)


def subscribe_unread(target: Target) -> None:
    """Make very many durable subscriptions that match."""
    for number in range(UNREAD_SUBSCRIPTIONS):
        wanted = {"filter": "abused >= 0", "id": f"unread-{number}"}
        target.call("POST", "/v1/subscriptions", wanted)


def unread_subscriptions(target: Target) -> None:
    """Publish what reaches all of them, read none, and list them."""
    for number in target.rounds():
        target.call("POST", "/v1/events", {"abused": number})
        if number % 10 == 0:
            target.call("GET", "/v1/subscriptions?limit=1000")


def multivalued(target: Target) -> None:
    """Publish another combination of attributes with several values each time."""
    names = [f"m{n}" for n in range(24)]
    wanted = {"filter": " or ".join(f"{name} = 1" for name in names), "id": "multivalued"}
    target.call("POST", "/v1/subscriptions", wanted)
    for _ in target.rounds():
        chosen = random.sample(names, random.randint(1, len(names)))
        target.call("POST", "/v1/events", {name: [1, 2, 3] for name in chosen})


def coming_and_going(target: Target) -> None:
    """Subscribe with new constants and delete again."""
    own = random.randrange(1 << 30)
    for number in target.rounds():
        name = f"churn-{own}-{number}"
        wanted = {"filter": f"x = {number} and t contains 'w{number}'", "id": name}
        target.call("POST", "/v1/subscriptions", wanted)
        target.call("DELETE", f"/v1/subscriptions/{name}")


def dead_letters(target: Target) -> None:
    """Reject large events in many subscriptions, so that each keeps a copy."""
    names = [f"dead-{n}" for n in range(20)]
    for name in names:
        wanted = {"filter": "large is present", "id": name, "max_attempts": 1}
        target.call("POST", "/v1/subscriptions", wanted)
    for _ in target.rounds():
        target.call("POST", "/v1/events", {"large": LARGE_TEXT})
        for name in names:
            _, found = target.call("POST", f"/v1/subscriptions/{name}/fetch", {"limit": 100})
            for event in found.get("events", ()):
                rejected = {"sequence": event["sequence"]}
                target.call("POST", f"/v1/subscriptions/{name}/reject", rejected)


def publisher_names(target: Target) -> None:
    """Publish each event under another name."""
    own = random.randrange(1 << 30)
    for number in target.rounds():
        headers = {"Tamis-Publisher": f"{own}-{number}", "Tamis-Sequence": "1"}
        target.call("POST", "/v1/events", {"n": number}, **headers)


def frames(target: Target) -> None:
    """Send small frames over a WebSocket, as many as the network takes, and read no answer."""
    frame = encode_frame(Credit(subscription="none", events=1))
    many = (b"\x81" + bytes([0x80 | len(frame)]) + bytes(4) + frame) * 1_000
    for _ in target.rounds():
        with (
            suppress(OSError, RefusedError, WebSocketException),
            Wire(target.port, token=target.token) as wire,
        ):
            wire.socket.settimeout(1.0)
            for _ in target.rounds():
                wire.socket.sendall(many)


ABUSES: Final[Mapping[str, Abuse]] = {
    "300 bodies that drip": Abuse(dripping_bodies, 1),
    "150 first frames of 4 MiB, unfinished": Abuse(unfinished_frames, 1),
    "300 silent connections": Abuse(silent_connections, 1),
    "patterns on long texts": Abuse(slow_patterns, 2),
    "8 trials at a time": Abuse(trials, 8),
    "20 histories at a time": Abuse(histories, 20),
    "50 replays at a time": Abuse(replays, 50),
    "bodies of 3 MB": Abuse(large_bodies, 4),
    "3,000 subscriptions that nobody reads": Abuse(unread_subscriptions, 4, subscribe_unread),
    "combinations of several values": Abuse(multivalued, 4),
    "subscriptions that come and go": Abuse(coming_and_going, 4),
    "dead letters": Abuse(dead_letters, 4),
    "names of publishers": Abuse(publisher_names, 4),
    "small frames": Abuse(frames, 2),
}


class Abuser:
    """Abuses a broker; the broker goes before it, so that it takes no processor away."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._answers = Counter[int]()
        self._over = Event()
        self._threads: list[Thread] = []

    def prepare(self, name: str) -> None:
        """Make what must be there before one of the abuses begins."""
        abuse = ABUSES[name]
        if abuse.prepare is not None:
            abuse.prepare(self._target())

    def begin(self, name: str) -> None:
        """Begin one of the abuses."""
        act, threads, _ = ABUSES[name]
        self._over = Event()
        target = self._target()
        self._threads = [Thread(target=act, args=(target,), daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def end(self) -> dict[int, int]:
        """Wait until it has ended; return how many answers had each status so far."""
        self._over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)
        return dict(self._answers)

    def _target(self) -> Target:
        return Target(self._port, self._token, self._over, self._answers)

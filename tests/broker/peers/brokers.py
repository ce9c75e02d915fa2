"""Several real brokers, linked through proxies that can fail."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from broker.server import ServerProcess
from waiting import eventually

from .proxy import LinkProxy

QUICK = {"peer_retry": 0.3, "peer_timeout": 1, "peer_ping_interval": 0.2}
"""Settings with which a dead connection is noticed soon."""


class LinkedBrokers:
    """Brokers by name, and a proxy for each link, by the names of the dialler and the dialled."""

    def __init__(
        self, folder: Path, links: Sequence[tuple[str, str]], settings: Mapping[str, object]
    ) -> None:
        self.links = links
        self.proxies = {link: LinkProxy() for link in links}
        # Certificates take a while to load, and there are none.
        self._client = httpx.Client(verify=False, timeout=30)  # noqa: S501
        names = dict.fromkeys(name for link in links for name in link)
        self.servers = {
            name: ServerProcess(folder / name, {"name": name, "accept_peers": True, **settings})
            for name in names
        }

    def __getitem__(self, name: str) -> ServerProcess:
        return self.servers[name]

    def start(self, name: str) -> None:
        """Start a broker, also after it ended; it keeps its port."""
        server = self.servers[name]
        dialled = [self.proxies[link].url for link in self.links if link[0] == name]
        if dialled:
            server.settings["peers"] = ",".join(dialled)
        server.start()
        server.settings["port"] = server.port
        for link, proxy in self.proxies.items():
            if link[1] == name:
                proxy.target_port = server.port

    def close(self) -> None:
        self._client.close()

    def kill(self, name: str) -> None:
        self.servers[name].kill()

    def get(self, name: str, path: str) -> Any:
        """Return what a broker answers."""
        response = self._client.get(f"{self.servers[name].url}{path}")
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, name: str, path: str, body: object) -> Any:
        """Return what a broker answers to a request with a body."""
        response = self._client.post(f"{self.servers[name].url}{path}", json=body)
        assert response.is_success, f"{response.text}\n{self.servers[name].errors[-3000:]}"
        return response.json() if response.content else None

    def subscribe(self, name: str, id_: str, filter_: str, **more: object) -> None:
        """Create a durable subscription."""
        self.post(name, "/v1/subscriptions", {"id": id_, "filter": filter_, **more})

    def unsubscribe(self, name: str, id_: str) -> None:
        url = f"{self.servers[name].url}/v1/subscriptions/{id_}"
        assert self._client.delete(url).is_success

    def publish(self, name: str, *events: object) -> None:
        self.post(name, "/v1/events", events)

    def take(self, name: str, id_: str, count: int, *, seconds: float = 20) -> list[Any]:
        """Return the data of the next events of a subscription, and acknowledge them.

        They are fewer only if none came for so many seconds; all may take longer than that.
        """
        found: list[Any] = []
        until = time.monotonic() + seconds
        while len(found) < count and time.monotonic() < until:
            body = {"limit": min(1_000, count - len(found)), "wait": min(1, seconds)}
            events = self.post(name, f"/v1/subscriptions/{id_}/fetch", body)["events"]
            found += [event["data"] for event in events]
            if events:
                last = {"up_to": events[-1]["sequence"]}
                self.post(name, f"/v1/subscriptions/{id_}/acknowledge", last)
                until = time.monotonic() + seconds
        return found

    def peers(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the links of a broker, by the name of the peer."""
        return {one.get("name", ""): one for one in self.get(name, "/v1/peers")["peers"]}

    def are_connected(self) -> bool:
        """Return whether all links are, from both sides."""
        return all(
            self.peers(one).get(other, {}).get("connected")
            for link in self.links
            for one, other in (link, link[::-1])
        )

    def wait_for_links(self) -> None:
        eventually(self.are_connected)

    def count_routes(self, name: str, peer: str) -> int:
        """Return how many filters a broker has from a peer."""
        return int(self.peers(name)[peer].get("routes", 0))

    def wait_for_routes(self, name: str, peer: str, count: int) -> None:
        eventually(lambda: self.count_routes(name, peer) == count)


@contextmanager
def linked(
    folder: Path, links: Sequence[tuple[str, str]], **settings: object
) -> Iterator[LinkedBrokers]:
    """Run brokers until the end of the block, each of them before those that dial it."""
    brokers = LinkedBrokers(folder, links, settings)
    with ExitStack() as stack:
        stack.callback(brokers.close)
        for proxy in brokers.proxies.values():
            stack.enter_context(proxy)
        for name in brokers.servers:
            stack.callback(_end, brokers.servers[name])
        dialled = {link[1] for link in links}
        for name in sorted(brokers.servers, key=lambda one: one not in dialled):
            brokers.start(name)
        brokers.wait_for_links()
        yield brokers


def _end(server: ServerProcess) -> None:
    if server.process is not None:
        with contextlib.suppress(AssertionError):
            server.kill()

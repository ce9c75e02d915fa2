"""A wire between machines and a store, which can stall, cut and refuse what goes over it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread

# A request for a file of a library, as Arrow's client writes it.
FETCH = b"GET /bucket/library/files/"
WRONG_KEY = "wrong"
_REFUSAL = (
    b"<?xml version='1.0'?><Error><Code>InvalidAccessKeyId</Code><Message>No.</Message></Error>"
)
_REFUSED = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_REFUSAL), _REFUSAL)
)
_BYTES = 65_536
# More than the head of an answer has, and less than the smallest file.
_FIRST_BYTES = 2_000


class Wire:
    """Carries bytes of connections, and knows which of them fetch files of the library."""

    def __init__(self, service: str) -> None:
        host, _, port = service.rpartition("://")[2].partition(":")
        self._service = (host, int(port))
        self._lock = Lock()
        self._stalls = self._cuts = 0
        self.fetches = 0
        self.is_stalled, self._released = Event(), Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def stall(self, fetches: int) -> None:
        """Stop in the middle of the next fetches, until they are released."""
        self.is_stalled.clear()
        self._released.clear()
        self._stalls = fetches

    def release(self) -> None:
        """Let what is stalled go on."""
        self._stalls = 0
        self._released.set()

    def cut(self, fetches: int) -> None:
        """End the connection in the middle of the next fetches."""
        self._cuts = fetches

    def serve(self) -> None:
        """Accept connections until the listener is closed."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._service) as server:
            fault = _Fault(self)
            answers = Thread(target=self._carry_answers, args=(client, server, fault), daemon=True)
            answers.start()
            self._carry_requests(client, server, fault)
            answers.join()

    def _carry_requests(self, client: socket.socket, server: socket.socket, fault: _Fault) -> None:
        with _both(client, server):
            while data := client.recv(_BYTES):
                if f"Credential={WRONG_KEY}/".encode() in data:
                    client.sendall(_REFUSED)
                    return
                if FETCH in data:
                    fault.choose()
                server.sendall(data)

    def _carry_answers(self, client: socket.socket, server: socket.socket, fault: _Fault) -> None:
        with _both(client, server):
            while data := server.recv(_BYTES):
                if not fault.kind or not data.startswith((b"HTTP/1.1 2",)):
                    client.sendall(data)
                    continue
                client.sendall(data[:_FIRST_BYTES])
                if fault.take() == "cut":
                    return
                self.is_stalled.set()
                self._released.wait(600)
                client.sendall(data[_FIRST_BYTES:])

    def next_fault(self) -> str:
        """Return what is to happen to a fetch."""
        with self._lock:
            self.fetches += 1
            if self._stalls:
                self._stalls -= 1
                return "stall"
            if self._cuts:
                self._cuts -= 1
                return "cut"
            return ""


class _Fault:
    """What is to happen to the answer that comes next on a connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.kind = ""

    def choose(self) -> None:
        self.kind = self._wire.next_fault()

    def take(self) -> str:
        kind, self.kind = self.kind, ""
        return kind


@contextmanager
def _both(client: socket.socket, server: socket.socket) -> Iterator[None]:
    try:
        with suppress(OSError):
            yield
    finally:
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def wire_to(service: str) -> Iterator[Wire]:
    """Run a wire to a service."""
    wire = Wire(service)
    Thread(target=wire.serve, daemon=True).start()
    try:
        yield wire
    finally:
        wire.release()
        # Closing it would not wake who accepts.
        wire.listener.shutdown(socket.SHUT_RDWR)
        wire.listener.close()

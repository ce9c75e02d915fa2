"""A WebSocket with control over when it is read and how much the kernel buffers.

The Tamis client reads as soon as data arrive, which rules out measuring a subscriber that does not
read, and it has one publication in flight at a time.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final, Self

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from tamis.errors import RefusedError
from tamis.protocol import Hello, Refused, Welcome, decode_reply, encode_frame
from tamis.protocol.frames import Reply, Request

CHUNK: Final = 1 << 16
LARGEST: Final = 64 << 20
# As on a network card; over loopback a segment has 64 KB, and buffers grow to megabytes with it.
SEGMENT: Final = 1448
SMALL_BUFFER: Final = 16 * 1024


class Wire:
    """One connection to a Tamis broker."""

    def __init__(self, port: int, *, small: bool = False, token: str | None = None) -> None:
        """Connect and say hello; a small connection buffers only a few unread kilobytes."""
        self.socket = socket.socket()
        if small:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        uri = parse_uri(f"ws://127.0.0.1:{port}/v1/connect")
        self._protocol = ClientProtocol(uri, max_size=LARGEST)
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        while not self._protocol.events_received():
            self._read()
        if self._protocol.handshake_exc is not None:
            raise self._protocol.handshake_exc
        self.send(Hello(token=token))
        self.expect(Welcome)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def fileno(self) -> int:
        """Return the file descriptor, for selectors."""
        return self.socket.fileno()

    def send(self, frame: Request) -> None:
        """Send a frame."""
        self._protocol.send_text(encode_frame(frame))
        self._flush()

    def replies(self) -> Iterator[Reply]:
        """Read what is available and yield the complete frames."""
        self._read()
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                yield _granted(decode_reply(bytes(event.data)))

    def expect(self, kind: type[Reply]) -> Reply:
        """Wait for a reply of some kind and discard others before it."""
        while True:
            for reply in self.replies():
                if isinstance(reply, kind):
                    return reply

    def _read(self) -> None:
        data = self.socket.recv(CHUNK)
        if not data:
            raise ConnectionError("the broker has closed the connection")
        self._protocol.receive_data(data)
        # Pings are answered.
        self._flush()

    def _flush(self) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data:
            self.socket.sendall(data)


def _granted(reply: Reply) -> Reply:
    """Return the broker's frame, unless it is a refusal."""
    if isinstance(reply, Refused):
        raise RefusedError(reply.code, reply.message)
    return reply

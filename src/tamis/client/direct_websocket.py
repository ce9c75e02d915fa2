"""A WebSocket that hands frames on where they are read, without a queue and a task in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.protocol import State

FrameHandler = Callable[[bytes], None]
"""Takes a frame at once; what it raises ends the connection."""

_HEAD_END: Final = b"\r\n\r\n"
# RFC 6455, 5.2: the first byte of a message in one frame, and the bits of any frame.
_WHOLE_MESSAGES: Final = frozenset({0x81, 0x82})
_OPCODE: Final = 0x0F
_MESSAGE_OPCODES: Final = frozenset({1, 2})
_CONTROL_OPCODES: Final = frozenset(range(8, 16))
_MASKED: Final = 0x80
_TWO_BYTE_LENGTH: Final = 126
_EIGHT_BYTE_LENGTH: Final = 127
_MAX_BYTES_BEGUN: Final = 64 * 1024


class DirectWebSocket(WebSocket):
    """Hands on the messages that are in one frame each; the library does the rest.

    The rest is the handshake, control frames, fragments, large messages that take several reads,
    and whatever is wrong. Messages of these wait in the queue of the library, and so do all after
    them until `next_frame` has returned the last, so that the order of messages stays.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._handler: FrameHandler | None = None
        self._largest = 0
        self._is_aligned = False
        """Whether it is known where frames begin."""
        self._begun = b""
        """The beginning of a frame, of which nobody has seen anything."""
        self._missing = 0
        """Bytes that the library still needs of the frame which it reads."""
        self._queued = 0
        """Messages that the library reads, or has read, and that `next_frame` has not returned."""
        self._error: Exception | None = None

    def hand_on(self, handler: FrameHandler | None, largest: int = 0) -> None:
        """Call a function with messages of at most `largest` bytes from now on; None: queue all."""
        self._handler = handler
        self._largest = largest

    async def next_frame(self) -> bytes:
        """Return the next message that was not handed on, or raise what the handler has raised."""
        frame = await self.recv(decode=False)
        self._queued -= 1
        if self._error is not None:
            raise self._error
        return frame

    @property
    def is_ready(self) -> bool:
        """Return whether it is open, and the system has taken all that was sent."""
        return self.state is State.OPEN and not self.transport.get_write_buffer_size()

    def send_now(self, message: bytes) -> None:
        """Send a message as text at once; only if it is ready."""
        self.protocol.send_text(message)
        self.send_data()

    def data_received(self, data: bytes) -> None:
        """Take what one read brought."""
        if not self._is_aligned:
            self._read_head(data)
            return
        data, self._begun = self._begun + data, b""
        place = self._missing
        if place:
            self._feed(data, 0, place)
        while place < len(data):
            payload = _payload(data, place)
            is_direct = (
                payload is not None
                and data[place] in _WHOLE_MESSAGES
                and not data[place + 1] & _MASKED
                and payload.stop - payload.start <= self._largest
                and self._handler is not None
                and not self._queued
                and self.protocol.state is State.OPEN
            )
            # Only a small one waits for its rest here, because each read copies it.
            is_begun = payload is not None and len(data) < payload.stop <= place + _MAX_BYTES_BEGUN
            if payload is None or (is_direct and is_begun):
                self._begun = data[place:]
                return
            if not (is_direct and payload.stop <= len(data) and self._handed_on(data[payload])):
                if (data[place] & _OPCODE) in _CONTROL_OPCODES:
                    self._feed(data, place, payload.stop)
                else:
                    self._queue(data, place)
                    return
            place = payload.stop

    def _read_head(self, data: bytes) -> None:
        is_before = self.response is None
        super().data_received(data)
        # A broker says nothing before the client does, so that the first frame begins with a read.
        # Where it does not, the library reads everything.
        _, end, rest = data.partition(_HEAD_END)
        self._is_aligned = is_before and self.response is not None and bool(end) and not rest

    def _handed_on(self, message: bytes) -> bool:
        try:
            # It does not wait, so that nothing piles up behind it, as nothing did in the queue. All
            # that it keeps is bounded by credit for events, and by requests with one answer each.
            cast("FrameHandler", self._handler)(message)
        except Exception as error:
            # The message goes to the queue, which wakes `next_frame`; nothing overtakes it.
            self._error = error
            return False
        return True

    def _queue(self, data: bytes, place: int) -> None:
        """Let the library read a message, and everything after it."""
        end = place
        while end < len(data) and (payload := _payload(data, end)) is not None:
            self._queued += (data[end] & _OPCODE) in _MESSAGE_OPCODES
            end = payload.stop
        self._begun = data[end:]
        self._feed(data, place, end)

    def _feed(self, data: bytes, begin: int, end: int) -> None:
        """Let the library read a part, which may end after what has come so far."""
        self._missing = max(0, end - len(data))
        super().data_received(data[begin:end])


def _payload(data: bytes, place: int) -> slice | None:
    """Return where the payload of the frame at a place is; None if its header is incomplete."""
    begin = place + 2
    if len(data) < begin:
        return None
    length = data[place + 1] & ~_MASKED
    if length >= _TWO_BYTE_LENGTH:
        begin += 8 if length == _EIGHT_BYTE_LENGTH else 2
        if len(data) < begin:
            return None
        length = int.from_bytes(data[place + 2 : begin])
    return slice(begin, begin + length)

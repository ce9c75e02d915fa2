"""A WebSocket that hands frames on where they are read, without a queue and a task in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from os import urandom
from typing import Any, Final

from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.frames import apply_mask  # type: ignore[attr-defined] # compiled, if it can be
from websockets.protocol import State

from tamis.protocol.websocket_frames import (
    CONTROL_OPCODES,
    MASK_BYTES,
    MASKED,
    MESSAGE_OPCODES,
    OPCODE,
    WHOLE_MESSAGES,
    payload_at,
    text_header,
)

FrameHandler = Callable[[bytes], None]
"""Takes a frame at once; what it raises ends the connection."""
FrameSource = Callable[[], bytes | None]
"""Returns the next frame to send, None if there is none."""

_HEAD_END: Final = b"\r\n\r\n"
_MAX_BYTES_BEGUN: Final = 64 * 1024
# What one read may bring, as much as asyncio would read into new memory each time; that takes ten
# times as long, because the system gives and takes back so many pages.
_READ_BYTES: Final = 256 * 1024
_TLS_RECORD_BYTES: Final = 16 * 1024


class DirectWebSocket(WebSocket, asyncio.BufferedProtocol):
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
        self._buffer = memoryview(bytearray(_READ_BYTES))

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

    def send_now(self, next_frame: FrameSource) -> bool:
        """Send frames as text while the system takes all at once; return whether it was all."""
        while self.protocol.state is State.OPEN and not self.transport.get_write_buffer_size():
            frame = next_frame()
            if frame is None:
                return True
            mask = urandom(MASK_BYTES)
            header = text_header(len(frame), MASKED)
            self.transport.write(b"".join((header, mask, apply_mask(frame, mask))))
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to put what is read; over TLS, this many bytes wait to be decrypted."""
        # At the end of a connection asyncio reads only once more, so all of it must fit, with the
        # record that is decrypted in part.
        if sizehint + _TLS_RECORD_BYTES > len(self._buffer):
            self._buffer = memoryview(bytearray(sizehint + _TLS_RECORD_BYTES))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was put there."""
        data, self._begun = self._begun + self._buffer[:nbytes], b""
        if not self._is_aligned:
            self._read_head(data)
            return
        place = self._missing
        if place:
            self._feed(data, 0, place)
        while place < len(data):
            payload = payload_at(data, place)
            # Who takes it here, if anybody.
            handler = (
                self._handler
                if payload is not None
                and data[place] in WHOLE_MESSAGES
                and not data[place + 1] & MASKED
                and payload.stop - payload.start <= self._largest
                and not self._queued
                and self.protocol.state is State.OPEN
                else None
            )
            # Only a small one waits for its rest here, because each read copies it.
            is_begun = payload is not None and len(data) < payload.stop <= place + _MAX_BYTES_BEGUN
            if payload is None or (handler is not None and is_begun):
                self._begun = data[place:]
                return
            if handler is not None and payload.stop <= len(data):
                try:
                    # It does not wait, so that nothing piles up behind it, as nothing did in the
                    # queue. All that it keeps is bounded by credit for events, and by requests with
                    # one answer each.
                    handler(data[payload])
                except Exception as error:
                    # The message goes to the queue, which wakes `next_frame`; nothing overtakes it.
                    self._error = error
                    self._queue(data, place)
                    return
            elif (data[place] & OPCODE) in CONTROL_OPCODES:
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

    def _queue(self, data: bytes, place: int) -> None:
        """Let the library read a message, and everything after it."""
        end = place
        while end < len(data) and (payload := payload_at(data, end)) is not None:
            self._queued += (data[end] & OPCODE) in MESSAGE_OPCODES
            end = payload.stop
        self._begun = data[end:]
        self._feed(data, place, end)

    def _feed(self, data: bytes, begin: int, end: int) -> None:
        """Let the library read a part, which may end after what has come so far."""
        self._missing = max(0, end - len(data))
        super().data_received(data[begin:end])

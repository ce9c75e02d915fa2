"""The frames of a WebSocket (RFC 6455, 5.2), as far as both ends read and write them directly.

A message in one frame is the usual case. It takes a few operations here, and some 30 microseconds
more through the generators of a library, which does all the rest.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

WHOLE_TEXT: Final = 0x81
"""The first byte of a text in one frame."""
WHOLE_MESSAGES: Final = frozenset({WHOLE_TEXT, 0x82})
"""The first byte of a message in one frame."""
OPCODE: Final = 0x0F
"""The bits of the first byte that tell the kind of a frame."""
MESSAGE_OPCODES: Final = frozenset({1, 2})
"""The kinds of frames that begin a message."""
CONTROL_OPCODES: Final = frozenset(range(8, 16))
"""The kinds that may come between the fragments of a message."""
MASKED: Final = 0x80
"""The bit of the second byte that says whether the payload is masked: a client's must be."""
MASK_BYTES: Final = 4
"""The length of the mask, which precedes the payload."""
TWO_BYTE_LENGTH: Final = 126
"""The first length that follows in two bytes, and what is in its place then."""
MAX_TWO_BYTE_LENGTH: Final = 0xFFFF
"""The last of them."""
EIGHT_BYTE_LENGTH: Final = 127
"""In place of a length: it follows in eight bytes."""
SHORT_HEADER: Final = Struct("!BB").pack
MEDIUM_HEADER: Final = Struct("!BBH").pack
LONG_HEADER: Final = Struct("!BBQ").pack
"""Headers for lengths in the second byte, and in two or eight bytes after it."""


def payload_at(data: bytes, place: int) -> slice | None:
    r"""Return where the payload of the frame at a place is; None if its header is incomplete.

    >>> payload_at(b"..\x81\x05hello", 2)
    slice(4, 9, None)
    """
    begin = place + 2
    if len(data) < begin:
        return None
    length = data[place + 1] & ~MASKED
    if length >= TWO_BYTE_LENGTH:
        begin += 8 if length == EIGHT_BYTE_LENGTH else 2
        if len(data) < begin:
            return None
        length = int.from_bytes(data[place + 2 : begin])
    if data[place + 1] & MASKED:
        begin += MASK_BYTES
    return slice(begin, begin + length)


def text_header(length: int, mask_bit: int = 0) -> bytes:
    r"""Return what comes before a text in one frame, or before its mask.

    >>> text_header(5), text_header(300, MASKED)
    (b'\x81\x05', b'\x81\xfe\x01,')
    """
    if length < TWO_BYTE_LENGTH:
        return SHORT_HEADER(WHOLE_TEXT, mask_bit | length)
    if length <= MAX_TWO_BYTE_LENGTH:
        return MEDIUM_HEADER(WHOLE_TEXT, mask_bit | TWO_BYTE_LENGTH, length)
    return LONG_HEADER(WHOLE_TEXT, mask_bit | EIGHT_BYTE_LENGTH, length)


class FrameFollower:
    """Knows whether a stream of bytes is between two frames, while somebody else reads them."""

    __slots__ = ("_head", "_missing", "is_between")

    def __init__(self) -> None:
        self.is_between = True
        """Whether the next byte begins a frame."""
        self._head = b""
        """The beginning of a header."""
        self._missing = 0
        """Bytes until the next frame begins."""

    def follow(self, data: bytes, most: int) -> int:
        """Follow the next bytes up to so many frames; return how many bytes these are."""
        known, place, frames = len(self._head), self._missing, 0
        data = self._head + data
        while place < len(data) and frames < most:
            payload = payload_at(data, place)
            if payload is None:
                break
            place, frames = payload.stop, frames + 1
        if frames == most and place < len(data):
            data = data[:place]
        self._head = data[place:]
        self._missing = max(0, place - len(data))
        self.is_between = place == len(data)
        return len(data) - known

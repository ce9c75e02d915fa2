"""A record of the log as bytes.

::

    mark 4 | crc 4 | size 4 | sequence 8 | time 8 | publisher's sequence 8 | place 4 | group 4
    | format 1 | length of the publisher's name 2 | name | origin 48, if there is one | payload

    origin: broker 16 | sequence 8 | time 8 | hop 16

All numbers are little-endian. The size is that of the whole record; the CRC-32 covers everything
after itself. The mark is random for each segment: it locates the next record after a damaged one,
and since no publisher can know it, no payload can pose as a record. Records that were appended
together form a group, which survives a crash as a whole or not at all; each record has its place in
the group, from 0, and the size of the group.

An event that was published at another broker has its origin: that broker, its sequence and time in
that broker's log, and the hop, the neighbour from which it came. The highest bit of the format says
so. Segments of version 1 have no origins.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tamis.errors import LimitError

MARK_BYTES: Final = 4
MAX_PAYLOAD_BYTES: Final = 64 << 20
MAX_NAME_BYTES: Final = (1 << 16) - 1
MAX_FORMAT: Final = (1 << 7) - 1
ID_BYTES: Final = 16
"""Of the id of a broker."""
MAX_SEQUENCE: Final = (1 << 63) - 1

_FIELDS: Final = struct.Struct("<4sIIQdQIIBH")
# The part that the checksum covers, and where it begins.
_COVERED: Final = struct.Struct("<IQdQIIBH")
_PREFIX: Final = struct.Struct("<4sI")
_SIZE: Final = struct.Struct("<I")
_ORIGIN: Final = struct.Struct(f"<{ID_BYTES}sQd{ID_BYTES}s")
_HAS_ORIGIN: Final = 1 << 7
_COVERED_FROM: Final = _PREFIX.size
MIN_RECORD_BYTES: Final = _FIELDS.size
MAX_RECORD_BYTES: Final = MIN_RECORD_BYTES + MAX_NAME_BYTES + _ORIGIN.size + MAX_PAYLOAD_BYTES


class EventOrigin(NamedTuple):
    """Where an event was published, and the neighbour that it came from."""

    broker: str
    """The id of the broker: 32 hexadecimal digits."""
    sequence: int
    """Its sequence in that broker's log."""
    time: float
    """Its time there."""
    hop: str
    """The id of the neighbour."""

    @property
    def publisher(self) -> str:
        """Return the name under which its sequence is kept, as a publisher's number.

        No publisher of a client can have it: theirs begin with the name of a principal.
        """
        return f"/{self.broker}"


class NewRecord(NamedTuple):
    """An event to append."""

    publisher: str
    publisher_sequence: int
    """0 for none."""
    format: int
    payload: bytes
    origin: EventOrigin | None = None
    """None for an event that was published here."""


class Record(NamedTuple):
    """An event in the log."""

    sequence: int
    time: float
    publisher: str
    publisher_sequence: int
    format: int
    payload: bytes
    origin: EventOrigin | None = None
    """None for an event that was published here."""


class LocatedRecord(NamedTuple):
    """A record, its offset in the segment, and its place in its group."""

    offset: int
    end: int
    place: int
    group: int
    record: Record


def encode(
    records: Sequence[NewRecord], sequence: int, time: float, mark: bytes
) -> tuple[bytes, list[int]]:
    """Return the bytes of a group of records, and their offsets; LimitError if too long."""
    parts: list[bytes] = []
    starts: list[int] = []
    at, group = 0, len(records)
    for place, record in enumerate(records):
        publisher, publisher_sequence, format_, payload, origin = record
        name = publisher.encode()
        if (
            len(payload) > MAX_PAYLOAD_BYTES
            or len(name) > MAX_NAME_BYTES
            or not 0 <= publisher_sequence <= MAX_SEQUENCE
            or not 0 <= format_ <= MAX_FORMAT
        ):
            raise _too_large(record, name)
        name_bytes = len(name)
        if origin is not None:
            name, format_ = name + _encode_origin(origin), format_ | _HAS_ORIGIN
        size = MIN_RECORD_BYTES + len(name) + len(payload)
        fields = (size, sequence + place, time, publisher_sequence, place, group, format_)
        covered = _COVERED.pack(*fields, name_bytes) + name
        crc = zlib.crc32(payload, zlib.crc32(covered))
        parts += (_PREFIX.pack(mark, crc), covered, payload)
        starts.append(at)
        at += size
    return b"".join(parts), starts


def _too_large(record: NewRecord, name: bytes) -> LimitError:
    limits = {
        "a payload's bytes": (len(record.payload), MAX_PAYLOAD_BYTES),
        "a publisher's name in bytes": (len(name), MAX_NAME_BYTES),
        "a publisher's sequence": (record.publisher_sequence, MAX_SEQUENCE),
        "a format": (record.format, MAX_FORMAT),
    }
    what, (actual, limit) = next(
        (what, (actual, limit))
        for what, (actual, limit) in limits.items()
        if not 0 <= actual <= limit
    )
    return LimitError(what, actual=actual, limit=limit)


def _encode_origin(origin: EventOrigin) -> bytes:
    broker, sequence, time, hop = origin
    if not 0 <= sequence <= MAX_SEQUENCE:
        raise LimitError("a sequence at another broker", actual=sequence, limit=MAX_SEQUENCE)
    return _ORIGIN.pack(bytes.fromhex(broker), sequence, time, bytes.fromhex(hop))


def _decode_origin(data: bytes, at: int) -> EventOrigin:
    broker, sequence, time, hop = _ORIGIN.unpack_from(data, at)
    return EventOrigin(broker.hex(), sequence, time, hop.hex())


def decode(data: bytes, mark: bytes, at: int, base: int) -> Iterator[LocatedRecord]:
    """Yield the complete consecutive records in `data`, which begins at offset `base`."""
    view, length = memoryview(data), len(data)
    while at + MIN_RECORD_BYTES <= length:
        found, crc, size, sequence, time, own, place, group, format_, name = _FIELDS.unpack_from(
            data, at
        )
        end, name_end = at + size, at + MIN_RECORD_BYTES + name
        start = name_end
        if format_ & _HAS_ORIGIN:
            start += _ORIGIN.size
        # The size cannot be trusted before the checksum is verified.
        if found != mark or not start <= end <= length:
            return
        if zlib.crc32(view[at + _COVERED_FROM : end]) != crc:
            return
        try:
            publisher = data[at + MIN_RECORD_BYTES : name_end].decode()
        except UnicodeDecodeError:
            return
        origin = None
        if start > name_end:
            origin, format_ = _decode_origin(data, name_end), format_ & ~_HAS_ORIGIN
        record = Record(sequence, time, publisher, own, format_, data[start:end], origin)
        yield LocatedRecord(base + at, base + end, place, group, record)
        at = end


def claimed_size(data: bytes, at: int, mark: bytes) -> int:
    """Return the size that a record claims; 0 if there is none."""
    if at + MIN_RECORD_BYTES > len(data) or not data.startswith(mark, at):
        return 0
    return int(_SIZE.unpack_from(data, at + _COVERED_FROM)[0])

"""Frames to try a broker with: right ones, damaged ones, and bytes that are none."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Iterator
from typing import Any

NAMES = ["a", "b", "sub-1", "", "x/y", "ü" * 3, "n" * 201]
FILTERS = ["true", "price < 5", "a = 1 or b = 2", "price <", "", "(" * 50, "x in (1, 2)"]
NUMBERS = [0, 1, 2, 5, -1, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 1.5, -0.5, 1e300]
STARTS: list[Any] = ["latest", "earliest", 0, 1, 10**20, -5, "2026-01-01", "soon", 1.5]
EVENTS: list[Any] = [{"price": 3}, {}, {"a": [1, "x"]}, [], 17, None, {"a": {"b": {"c": 1}}}, "x"]


def frame(draw: random.Random) -> dict[str, Any]:
    """Return a frame with the fields it should have; their values need not make sense."""
    name, number = draw.choice(NAMES), draw.choice(NUMBERS)
    match draw.randrange(8):
        case 0:
            return {"type": "hello", "token": draw.choice([None, "tamis_x", name])}
        case 1:
            events = draw.choices(EVENTS, k=draw.randrange(3))
            given = {"type": "publish", "ref": number, "events": events}
            return given | _some(draw, publisher=name, sequence=number, format="cloudevents")
        case 2:
            given = {"type": "subscribe", "ref": number, "filter": draw.choice(FILTERS)}
            return given | _some(
                draw,
                durable=name,
                credit=draw.choice(NUMBERS),
                start=draw.choice(STARTS),
                lifetime=draw.choice(NUMBERS),
                overflow=draw.choice(["wait", "drop", "disconnect", "hope"]),
                acknowledge=draw.choice(["auto", "manual"]),
                language=draw.choice(["tamis", "jms", "siena", "latin"]),
                mode=draw.choice(["sql", "strict", "total", "default", "none"]),
                max_attempts=draw.choice(NUMBERS),
            )
        case 3:
            return {"type": "credit", "subscription": name, "events": number}
        case 4:
            sequences = draw.choices(NUMBERS, k=draw.randrange(3))
            return {"type": "ack", "subscription": name, "sequences": sequences, "up_to": number}
        case 5:
            given = {"type": "nack", "subscription": name, "sequence": number}
            return given | _some(draw, delay=draw.choice(NUMBERS), reason=name)
        case 6:
            given = {"type": "unsubscribe", "ref": number, "subscription": name}
            return given | _some(draw, delete=True)
        case _:
            return {"type": "ping"} | _some(draw, ref=number)


def _some(draw: random.Random, **fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if draw.random() < 0.5}


def text(draw: random.Random) -> bytes:
    """Return the bytes of a message: a frame, a damaged one, or none at all."""
    match draw.randrange(6):
        case 0 | 1:
            return json.dumps(frame(draw)).encode()
        case 2 | 3:
            return damaged(json.dumps(frame(draw)).encode(), draw)
        case 4:
            return json.dumps(misplaced(frame(draw), draw)).encode()
        case _:
            return draw.randbytes(draw.randrange(40))


def misplaced(given: dict[str, Any], draw: random.Random) -> Any:
    """Return a frame in which one thing is of another kind, missing or unknown."""
    values: list[Any] = [None, True, [], {}, "text", "\x00", -1, 1e308, [[]], {"type": "ping"}]
    name = draw.choice([*given])
    match draw.randrange(4):
        case 0:
            return {key: value for key, value in given.items() if key != name}
        case 1:
            return given | {"unknown": draw.choice(values)}
        case 2:
            return draw.choice([[given], given["type"], {"frame": given}])
        case _:
            return given | {name: draw.choice(values)}


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Return bytes with something wrong in them."""
    place = draw.randrange(len(data) + 1)
    end = min(len(data), place + draw.randrange(1, 9))
    match draw.randrange(6):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + data[end:]
        case 2:
            return data[:place] + draw.randbytes(draw.randrange(1, 5)) + data[place:]
        case 3:
            return data[:end] + data[place:]
        case 4:
            return (
                data[:place] + draw.choice([b"[", b'{"a":']) * draw.randrange(2000) + data[place:]
            )
        case _:
            return data[:place] + draw.choice([b'"', b"}", b"\\", b"\xff", b"9" * 400]) + data[end:]


# --- below the messages: WebSocket's own frames --------------------------------------------------


def websocket_frame(
    payload: bytes, draw: random.Random, *, opcode: int = 1, fin: bool = True, masked: bool = True
) -> bytes:
    """Return a WebSocket frame as a client sends it."""
    first = (0x80 if fin else 0) | opcode
    mask_bit = 0x80 if masked else 0
    length = len(payload)
    if length < 126:
        head = struct.pack("!BB", first, mask_bit | length)
    elif length < 65536:
        head = struct.pack("!BBH", first, mask_bit | 126, length)
    else:
        head = struct.pack("!BBQ", first, mask_bit | 127, length)
    if not masked:
        return head + payload
    mask = draw.randbytes(4)
    return head + mask + bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))


def websocket_bytes(draw: random.Random) -> Iterator[bytes]:
    """Yield what a bad client could send after the handshake, in pieces."""
    payload = text(draw)
    match draw.randrange(8):
        case 0:
            yield draw.randbytes(draw.randrange(1, 60))
        case 1:
            yield websocket_frame(payload, draw, masked=False)
        case 2:
            yield websocket_frame(payload, draw, opcode=draw.randrange(16), fin=draw.random() < 0.5)
        case 3:
            half = len(payload) // 2
            yield websocket_frame(payload[:half], draw, fin=False)
            yield websocket_frame(payload[half:], draw, opcode=draw.choice([0, 0, 0, 1, 9]))
        case 4:
            yield damaged(websocket_frame(payload, draw), draw)
        case 5:
            yield struct.pack("!BBQ", 0x81, 0xFF, draw.choice([2**63, 2**40, 2**22 + 1, 0]))
        case 6:
            code = draw.choice([0, 999, 1000, 1005, 4999, 65535])
            yield websocket_frame(struct.pack("!H", code) + draw.randbytes(3), draw, opcode=8)
        case _:
            whole = websocket_frame(payload, draw)
            yield whole[:3]
            yield whole[3:]


def seed() -> int:
    """Return the seed of this run, which can be given to repeat it."""
    return int(os.environ.get("FUZZ_SEED", "5"))

"""The projecting reader accepts what the strict one accepts, with the same values, and no more."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from events.json_texts import JsonTexts
from seeds import seeds
from tamis.errors import TamisError
from tamis.events import Event, EventLimits, Schema, attribute, decode_json
from tamis.events.json_columns import JsonColumnReader
from tamis.events.json_kernels import scan_event, scan_lines

VOLUME = int(os.environ.get("TAMIS_JSON_TEXTS", "2_000_000"))
"""How many texts the slow suite draws; each is read as a line, and as a single event."""
TEXTS_PER_SEED = 20_000

WANTED = ("a", "b", "price", "a.b", "order.price", "items.a", "näme")
SCHEMAS = (
    None,
    Schema({"a": int, "price": float, "b": attribute("str", many=True)}),
    Schema({"a": "timestamp", "price": attribute("bits", default=0), "c": bool}),
)


def read(lines: Sequence[bytes], reader: JsonColumnReader) -> list[Event | TamisError]:
    """Read lines as columns, and return them as events of the wanted attributes."""
    data = b"\n".join(lines)
    sizes = np.array([len(line) for line in lines], np.int64)
    ends = np.cumsum(sizes + 1) - 1
    batch = reader.read(data, ends - sizes, ends)
    return [
        batch.errors[number] if number in batch.errors else batch.event(number)
        for number in range(len(lines))
    ]


def strictly(line: bytes, schema: Schema | None, names: Sequence[str]) -> Event | TamisError:
    try:
        event = decode_json(line, schema=schema)
    except TamisError as error:
        return error
    return Event.of_checked({name: event[name] for name in names if name in event})


def same(one: Event | TamisError, other: Event | TamisError) -> bool:
    if isinstance(one, TamisError) or isinstance(other, TamisError):
        return str(one) == str(other) and type(one) is type(other)
    # Columns keep the values of one kind together.
    return {n: sorted(map(repr, v)) for n, v in one.items()} == {
        n: sorted(map(repr, v)) for n, v in other.items()
    }


def disagreements(seed: int, count: int) -> list[tuple[bytes, object, object]]:
    texts = JsonTexts(seed)
    schema = SCHEMAS[seed % len(SCHEMAS)]
    names = sorted({*WANTED, *(schema or ())})
    draws = (texts.plain, texts.draw, texts.draw, texts.similar, texts.draw, texts.draw)
    lines = [draws[n % len(draws)]() for n in range(count)]
    reader = JsonColumnReader(WANTED, schema)
    found = read(lines, reader)
    singly = [read_one(line, reader, names) for line in lines]
    wanted = [strictly(line, schema, names) for line in lines]
    pairs = zip([*lines, *lines], [*found, *singly], [*wanted, *wanted], strict=True)
    return [(line, a, b) for line, a, b in pairs if not same(a, b)]


def read_one(line: bytes, reader: JsonColumnReader, names: Sequence[str]) -> Event | TamisError:
    """Read one event, and keep only what is wanted of one that was left to the strict reader."""
    try:
        event = reader.read_event(line)
    except TamisError as error:
        return error
    return Event.of_checked({name: event[name] for name in names if name in event})


@pytest.mark.parametrize("seed", seeds(6, by_default=3))
def test_both_readers_agree(seed: int) -> None:
    assert disagreements(seed, 2_000) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + VOLUME // TEXTS_PER_SEED))
def test_both_readers_agree_in_volume(seed: int) -> None:
    assert disagreements(seed, TEXTS_PER_SEED) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": 1e400}',
        '{"c": 1e400}',
        '{"a.b": 1, "a": {"b": 2}}',
        '{"a": {"b": 1}, "a.b": 2}',
        '{"c": "\\ud800"}',
        '{"": 1}',
        '{"a": 1} x',
        "[1]",
        "",
        '{"a": NaN}',
        '{"c": 12345678901234567890123}',
        '{"a": "' + "x" * 100 + '"}',
        "{" + ",".join(f'"n{n}": {n}' for n in range(9)) + "}",
        '{"c": ' + "[" * 6 + "]" * 6 + "}",
    ],
)
def test_what_the_strict_reader_refuses_is_refused_in_the_same_words(text: str) -> None:
    limits = EventLimits(size=100, depth=5, attributes=8)
    reader = JsonColumnReader(WANTED, limits=limits)
    with pytest.raises(TamisError) as wanted:
        decode_json(text, limits=limits)
    [found] = read([text.encode()], reader)
    assert str(found) == str(wanted.value)


CASES = tomllib.loads(Path(__file__).with_name("json_cases.toml").read_text(encoding="utf-8"))
REFUSED = [*(text.encode() for text in CASES["refused"]), *map(bytes.fromhex, CASES["hex"])]


@pytest.mark.parametrize("text", CASES["accepted"])
def test_both_readers_accept_what_is_json(text: str) -> None:
    wanted = strictly(text.encode(), None, WANTED)
    assert isinstance(wanted, Event)
    [found] = read([text.encode()], JsonColumnReader(WANTED))
    assert same(found, wanted)


@pytest.mark.parametrize("text", REFUSED)
def test_both_readers_refuse_what_is_not(text: bytes) -> None:
    wanted = strictly(text, None, WANTED)
    assert isinstance(wanted, TamisError)
    [found] = read([text], JsonColumnReader(WANTED))
    assert same(found, wanted)


def test_names_that_are_too_long_to_be_expected_are_not_taken_for_others() -> None:
    rng, wrong = Random(5), list[bytes]()
    # Some two of them fill the memory for names.
    names = ["x" * 1_020, "y" * 1_020, "z" * 100, "w" * 700, "a", "b"]
    reader = JsonColumnReader(("b",))
    accepted = 0
    for _ in range(20_000):
        chosen = [name for name in names if rng.random() < 0.7] or names
        if rng.random() < 0.3:
            chosen = [*chosen, rng.choice(chosen[-2:])]
        members = ",".join(f'"{name}":1' for name in chosen)
        line = b"{%s}" % members.encode()
        if reader.is_sure_of([line]):
            accepted += 1
            if len({*chosen}) < len(chosen):
                wrong.append(line)
    assert wrong == []
    assert accepted > 5_000


def test_lines_of_other_shapes_in_turn_are_read_alike() -> None:
    shapes = [b'{"a":1,"b":"x"}', b'{"b":"x","a":1}', b'{"a":1}', b'{"a":1,"b":"x","price":2.5}']
    lines = [shapes[n * 7 % 4] for n in range(100)]
    found = read(lines, JsonColumnReader(WANTED))
    assert found == [strictly(line, None, WANTED) for line in lines]


def test_kernels_are_compiled_once_whatever_memory_holds_the_text() -> None:
    reader = JsonColumnReader(["a"])
    starts, ends = np.array([0]), np.array([8])
    for text in (b'{"a": 1}', memoryview(bytearray(b'{"a": 2}'))):
        assert len(reader.read(text, starts, ends)) == 1
        reader.read_event(bytes(text))
    assert len(scan_lines.signatures) == 1  # type: ignore[attr-defined]
    # None if those that call it are in the cache.
    assert len(scan_event.signatures) <= 1  # type: ignore[attr-defined]

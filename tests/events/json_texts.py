"""JSON texts, most of them events, many of them wrong, drawn at random."""

from __future__ import annotations

import json
from random import Random

NAMES = ("a", "b", "c", "price", "order", "a.b", "näme", "x" * 30, "", "a\\u0062", "😀", "items")
SIMILAR_NAMES = ("a", "x" * 1_000, "b", "y" * 900, "price", "z" * 200, "order", "c")
WORDS = (
    *("", "x", "IBM", "ä", "😀", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\n", '\\"', "\\x", "\t"),
)
NUMBERS = (
    *("0", "-0", "1", "-1", "007", "1.5", "-0.0", "1e5", "1E-3", "1.", ".5", "-", "1e", "1e400"),
    *("-1e400", "0.1", "123456789012345678", "9223372036854775807", "9223372036854775808"),
    *("1" * 30, "1.7976931348623157e308", "4.9e-324", "1e-400", "3.141592653589793238"),
    *("0.000001", "12345678.12345678", "9007199254740993", "9007199254740993.0", "1" + "0" * 23),
    *("1e22", "1e23", "5e-22", "5e-23", "NaN", "Infinity", "-Infinity", "+1", "0x1"),
)
SPACES = ("", "", "", " ", "\t", "\n ", "\r", "\f", "\u00a0")
BYTES = b'{}[]",:\\ \x00\x1f\x7f\x80\xc3\xa9\xed\xa0\x80\xf0\x9f\x98\x80\xff0123456789-+.eEtrufalsn'


class JsonTexts:
    """Draws texts from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def draw(self) -> bytes:
        """Return an event, or what was one before it was damaged."""
        text = self._space() + self._object(self._rng.choice((1, 2, 3))) + self._space()
        data = text.encode("utf-8", "surrogatepass")
        for _ in range(self._rng.choice((0, 0, 0, 0, 1, 2))):
            data = self._mutated(data)
        return data.replace(b"\n", b" ")

    def plain(self) -> bytes:
        """Return an event such as most are."""
        rng = self._rng
        values = (rng.randint(-9, 99), rng.random() * 100, rng.choice(("IBM", "näe")), None, True)
        return json.dumps(
            {name: rng.choice(values) for name in rng.sample(NAMES[:6], rng.randint(0, 5))},
            ensure_ascii=rng.random() < 0.5,
        ).encode()

    def similar(self) -> bytes:
        """Return an event of almost the same names as those before, some of them very long."""
        rng = self._rng
        chosen = [name for name in SIMILAR_NAMES if rng.random() < 0.8]
        if chosen and rng.random() < 0.3:
            chosen.insert(rng.randint(0, len(chosen)), rng.choice(chosen))
        return ("{" + ",".join(f'"{name}":{rng.randint(0, 9)}' for name in chosen) + "}").encode()

    def _space(self) -> str:
        return self._rng.choice(SPACES[: self._rng.choice((6, 6, 6, 9))])

    def _object(self, depth: int) -> str:
        count = self._rng.choice((0, 1, 1, 2, 3, 5))
        members = [f"{self._name()}{self._space()}:{self._value(depth)}" for _ in range(count)]
        return "{" + ",".join(members) + self._rng.choice(("", "", "", "", ",")) * bool(count) + "}"

    def _name(self) -> str:
        return f'{self._space()}"{self._rng.choice(NAMES)}"'

    def _value(self, depth: int) -> str:
        rng = self._rng
        match rng.randrange(8 if depth else 6):
            case 0 | 1 | 2:
                body = rng.choice(NUMBERS[: rng.choice((4, len(NUMBERS)))])
            case 3 | 4:
                body = f'"{rng.choice(WORDS)}{rng.choice(WORDS)}"'
            case 5:
                body = rng.choice(("true", "false", "null", "nul", "True", "truee"))
            case 6:
                items = (self._value(depth - 1) for _ in range(rng.choice((0, 1, 2, 3))))
                body = "[" + ",".join(items) + "]"
            case _:
                body = self._object(depth - 1)
        return f"{self._space()}{body}{self._space()}"

    def _mutated(self, data: bytes) -> bytes:
        rng = self._rng
        at = rng.randrange(len(data) + 1)
        new = bytes([rng.choice(BYTES)])
        return rng.choice(
            (data[:at], data[:at] + new + data[at:], data[:at] + new + data[at + 1 :],
             data[:at] + data[at + 1 :], data + new)
        )  # fmt: skip

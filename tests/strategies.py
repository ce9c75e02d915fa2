"""Random schemas, filters and events, over domains so small that they meet.

One generator serves both kinds of test: a seeded `random.Random` gives volume, and Hypothesis'
`randoms()` gives the same choices with shrinking.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from random import Random
from typing import Final
from uuid import UUID

from hypothesis import strategies as st

from tamis.events import Attribute, Bits, Event, Kind, Schema, Type, Value
from tamis.events.kinds import KIND_OF_TYPE
from tamis.filters import FALSE, TRUE, Filter, all_of, any_of, attr
from tamis.filters.any_text import any_text, text_attributes
from tamis.filters.boolean import Xor
from tamis.filters.build import (
    Attr,
    Term,
    between,
    comparison_of,
    has_bits,
    ignoring_case,
    membership_of,
    text_test,
)
from tamis.filters.printing import ANY

NAMES: Final = ("a", "b.c", "unit price")

INSTANTS: Final = tuple(datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))
DAYS: Final = (date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3))
UUIDS: Final = (UUID(int=1), UUID(int=2), UUID(int=2**127))

CONSTANTS: Final[dict[Kind, Sequence[Value]]] = {
    Kind.NUMBER: (0, 1, 2, 1.5, -1, 2**53, 2**53 + 1),
    Kind.TEXT: ("", "a", "b", "ab", "ba", "aa"),
    Kind.BOOLEAN: (True, False),
    Kind.TIMESTAMP: INSTANTS,
    Kind.BITS: tuple(map(Bits.from_mask, range(8))),
    Kind.DATE: DAYS,
    Kind.UUID: UUIDS,
    Kind.BYTES: (b"", b"a", b"a\0", b"\xff"),
}

VALUES: Final[dict[Kind, Sequence[Value]]] = {
    Kind.NUMBER: (*CONSTANTS[Kind.NUMBER], 0.5, 1.25, 3, -2.5, float(2**53), math.inf, -math.inf),
    Kind.TEXT: (
        *CONSTANTS[Kind.TEXT],
        *("!", "a!", "abc", "aab", "bab", "abab", "zz", "é", "a\0"),
        *("A", "aB", "AB", "Ba", "É", "ß", "aSs", "SSA"),
        *("10.1.2.3", "10.200.0.1", "11.0.0.0", "2001:DB8::1", "::1"),
    ),
    Kind.BOOLEAN: (True, False),
    Kind.TIMESTAMP: (*INSTANTS, datetime(2026, 1, 1, 12, tzinfo=UTC)),
    Kind.BITS: (*CONSTANTS[Kind.BITS], Bits((0, 63))),
    Kind.DATE: (*DAYS, date.min, date.max),
    Kind.UUID: (*UUIDS, UUID(int=0), UUID(int=2**128 - 1)),
    Kind.BYTES: (*CONSTANTS[Kind.BYTES], b"a\0\0", b"b", b"\x80"),
}

NETWORKS: Final = (
    *("10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9", "10.1.2.3/32", "11.0.0.0/8", "0.0.0.0/0"),
    *("::/0", "2001:db8::/32", "::1/128", "2001:db8::/127"),
)
CASELESS: Final = ("", "A", "b", "aB", "É", "ß", "s", "sS", "1")
CASELESS_LIKE: Final = ("A%", "%B", "%aB%", "A_b", "%ß", "_", "é%")
CASELESS_REGULAR: Final = ("A", "^aB", "S$", "[A]b", "ß", "^é", "[^a]", "A+B")
LIKE_PATTERNS: Final = ("%", "a%", "%b", "%ab%", "a_b", "a%b", "_", "", "%a%b%", "ab", "\\%")
REGULAR: Final = ("a", "^a", "b$", "^ab$", "a+b", "^(a|b)*$", "[^a]", "")


class World:
    """The attributes that a case speaks of: typed by a schema, or open."""

    def __init__(self, names: Sequence[str], schema: Schema | None, *, exact: bool) -> None:
        self.names = names
        self.schema = schema
        self.exact = exact
        """Only tests for which the relations promise exact answers."""

    @property
    def has_texts(self) -> bool:
        """Return whether filters may test any attribute for a text."""
        return self.schema is None or bool(text_attributes(self.schema))

    def kinds(self, name: str) -> Sequence[Kind]:
        """Return the kinds that a filter may ask of an attribute."""
        return tuple(Kind) if self.schema is None else (self.schema[name].kind,)


def random_world(rng: Random, *, typed: bool, exact: bool = False, most: int = 3) -> World:
    names = NAMES[: rng.randint(1, most)]
    declared = {name: _random_attribute(rng, exact=exact) for name in names} if typed else None
    schema = None if declared is None else Schema(declared)
    return World(names, schema, exact=exact)


def _random_attribute(rng: Random, *, exact: bool) -> Attribute:
    type_ = rng.choice(list(Type))
    pool = [v for v in VALUES[KIND_OF_TYPE[type_]] if fits(v, type_)]
    default = rng.choice(pool) if rng.random() < 0.5 else None
    caseless = type_ is Type.STR and not exact and rng.random() < 0.3
    return Attribute(type_, default, rng.random() < 0.3, caseless)


def fits(value: Value, type_: Type) -> bool:
    """Return whether a number of the pools is one of the type."""
    return type_ not in (Type.INT, Type.FLOAT) or isinstance(value, float) == (type_ is Type.FLOAT)


def random_event(rng: Random, world: World, *, total: bool = False) -> Event:
    held: dict[str, tuple[Value, ...]] = {}
    for name in world.names:
        if total or rng.random() < 0.75:
            declared = world.schema[name] if world.schema else None
            several = declared.many if declared else rng.random() < 0.3
            count = rng.choice((1, 1, 2, 3)) if several else 1
            held[name] = tuple(_random_value(rng, declared) for _ in range(count))
    return Event({}).with_values(held)


def _random_value(rng: Random, declared: Attribute | None) -> Value:
    if declared is None:
        return math.nan if rng.random() < 0.05 else rng.choice(VALUES[rng.choice(list(Kind))])
    if declared.type is Type.FLOAT and rng.random() < 0.05:
        return math.nan
    return rng.choice([v for v in VALUES[declared.kind] if fits(v, declared.type)])


def random_filter(rng: Random, world: World, depth: int = 3) -> Filter:
    if depth == 0 or rng.random() < 0.25:
        return random_atom(rng, world)
    match rng.randrange(8):
        case 0 | 1 | 2:
            return all_of(*_random_terms(rng, world, depth))
        case 3 | 4 | 5:
            return any_of(*_random_terms(rng, world, depth))
        case 6:
            return Xor.of(_random_terms(rng, world, depth))
        case _:
            return ~random_filter(rng, world, depth - 1)


def _random_terms(rng: Random, world: World, depth: int) -> list[Filter]:
    return [random_filter(rng, world, depth - 1) for _ in range(rng.choice((2, 2, 3)))]


def random_atom(rng: Random, world: World) -> Filter:
    name = rng.choice(world.names)
    roll = rng.random()
    if roll < 0.08:
        return attr(name).is_present() if rng.random() < 0.5 else attr(name).is_absent()
    if roll < 0.12:
        return attr(name).is_a(rng.choice(list(Kind)))
    if roll < 0.14:
        return rng.choice((TRUE, FALSE))
    if roll < 0.22 and not world.exact:
        return _random_relation(rng, world)
    if roll < 0.3 and world.has_texts:
        return any_text(_random_value_atom(rng, world, ANY, Kind.TEXT))
    return _random_value_atom(rng, world, name, rng.choice(world.kinds(name)))


def _random_value_atom(rng: Random, world: World, name: str, kind: Kind) -> Filter:
    if kind is Kind.BITS:
        bits = rng.choice(CONSTANTS[kind])
        assert isinstance(bits, Bits)
        return has_bits(name, rng.choice(("all", "any")), bits)
    if kind is Kind.TEXT and rng.random() < 0.6:
        return _random_text_atom(rng, world, name)
    constant = rng.choice(CONSTANTS[kind])
    if rng.random() < 0.2:
        return membership_of(name, rng.choices(CONSTANTS[kind], k=rng.randint(1, 3)))
    if kind is Kind.BOOLEAN:
        return comparison_of(name, rng.choice(("=", "!=")), constant)
    if rng.random() < 0.2:
        return between(name, constant, rng.choice(CONSTANTS[kind]))
    return comparison_of(name, rng.choice(("=", "!=", "<", "<=", ">", ">=")), constant)


def _random_text_atom(rng: Random, world: World, name: str) -> Filter:
    text = rng.choice(CONSTANTS[Kind.TEXT])
    if world.exact:
        return text_test(name, rng.choice(("starts with", "within")), text)
    if rng.random() < 0.3:
        return _random_caseless_atom(rng, name)
    if rng.random() < 0.1:
        return Attr(name).in_network(*rng.choices(NETWORKS, k=rng.randint(1, 2)))
    match rng.randrange(4):
        case 0:
            return Attr(name).like(rng.choice(LIKE_PATTERNS))
        case 1:
            return Attr(name).matches(rng.choice(REGULAR))
        case _:
            op = rng.choice(("contains", "within", "starts with", "ends with"))
            return text_test(name, op, text)


def _random_caseless_atom(rng: Random, name: str) -> Filter:
    match rng.randrange(5):
        case 0:
            return Attr(name).caseless.like(rng.choice(CASELESS_LIKE))
        case 1:
            return Attr(name).caseless.matches(rng.choice(CASELESS_REGULAR))
        case 2:
            return Attr(name).caseless.in_(*rng.choices(CASELESS, k=rng.randint(1, 3)))
        case 3:
            op = rng.choice(("=", "!=", "<", "<=", ">", ">="))
            return ignoring_case(comparison_of(name, op, rng.choice(CASELESS)))
        case _:
            op = rng.choice(("contains", "within", "starts with", "ends with"))
            return ignoring_case(text_test(name, op, rng.choice(CASELESS)))


def _random_relation(rng: Random, world: World) -> Filter:
    names = list(world.names)
    if world.schema is not None:
        kind = world.schema[rng.choice(names)].kind
        names = [name for name in names if world.schema[name].kind is kind]
        if kind is Kind.BITS:
            return attr(names[0]).is_present()
        left: Term = attr(rng.choice(names))
        right: Term = attr(rng.choice(names))
        if kind is Kind.BOOLEAN:
            return left == right
        if kind is not Kind.NUMBER:
            return left < right
    else:
        left, right = attr(rng.choice(names)), attr(rng.choice(names))
    if rng.random() < 0.5:
        return left < right
    return _random_sum(rng, left, right) >= rng.choice((0, 1, 1.5))


def _random_sum(rng: Random, left: Term, right: Term) -> Term:
    match rng.randrange(4):
        case 0:
            return left + right
        case 1:
            return left - right
        case 2:
            return left * right
        case _:
            return left / right


def generators() -> st.SearchStrategy[Random]:
    """Return the source of choices for tests that Hypothesis drives."""
    return st.randoms(use_true_random=False, note_method_calls=False)

"""A filter as data is exactly the filter, and data that is none is refused by a sentence."""

from __future__ import annotations

import copy
import json
import math
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given

from seeds import seeds
from strategies import generators, random_event, random_filter, random_world
from tamis import FilterLimits, FilterStructureError, LimitError, attr, parse
from tamis.events import Bits, Schema
from tamis.filters import FALSE, TRUE, Filter, any_attr
from tamis.filters.arithmetic import Arithmetic, Literal, Relation
from tamis.filters.atoms import In
from tamis.filters.boolean import MAX_DEPTH, And, Not
from tamis.filters.build import Attr
from tamis.filters.structure import digest, from_structure, to_structure

PER_SEED = 400

CODECS = {
    "JSON": lambda data: msgspec.json.decode(msgspec.json.encode(data)),
    "Python's JSON": lambda data: json.loads(json.dumps(data)),
    "MessagePack": lambda data: msgspec.msgpack.decode(msgspec.msgpack.encode(data)),
}


def same(one: object, other: object) -> bool:
    """Return whether two nodes are equal, and so are the types of their constants."""
    return one == other and repr(one) == repr(other)


# --- round trip ------------------------------------------------------------------------------


@given(generators())
def test_a_filter_comes_back_from_its_structure(rng: Random) -> None:
    check_round_trip(rng)


@pytest.mark.parametrize("seed", seeds(100))
def test_many_filters_come_back_from_their_structures(seed: int) -> None:
    rng = Random(seed)
    for _ in range(PER_SEED):
        check_round_trip(rng)


def check_round_trip(rng: Random) -> None:
    world = random_world(rng, typed=rng.random() < 0.3)
    filter_ = random_filter(rng, world)
    if world.schema is not None and rng.random() < 0.5:
        filter_ = filter_.bind(world.schema)
    structure = CODECS[rng.choice([*CODECS])](to_structure(filter_))
    read = from_structure(structure)
    assert same(read, filter_)
    assert to_structure(read) == structure
    assert digest(read) == digest(filter_)
    event = random_event(rng, world)
    assert read.truth(event, schema=world.schema) == filter_.truth(event, schema=world.schema)


NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)

EXACT: list[Filter] = [
    TRUE,
    FALSE,
    attr("n") == 2**53 + 1,
    attr("n") == -(2**63),
    attr("n") == 2**63 - 1,
    attr("n") == 1e300,
    attr("n") == 5e-324,
    attr("n") == 0.1,
    attr("n") == True,  # noqa: E712
    attr("n").in_(True, False),
    attr("t") < NOON,
    attr("t").between(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
    attr("b").has_all_bits(Bits(range(64))),
    attr("b").has_any_bit(0),
    attr("x\0\u20ac\U0001f600") == "\0\u20ac\U0001f600'\"\\",
    attr("in").like("a\\%b_%"),
    attr("name").caseless.matches("Stra\u00dfe [A-Z]+"),
    any_attr.caseless == "\u00c9",
    any_attr.in_network("10.0.0.0/8", "::1"),
    attr("a") + 2.0 > attr("b"),
    attr("a") - -0.0 > attr("b"),
    attr("a") * 2**62 >= 1,
    (attr("a") - attr("b")) / attr("c") != attr("d") * (attr("e") + 1),
    attr("a") * attr("b") == "text",
    # Two texts that a schema turns into one timestamp.
    attr("t").in_("2026-01-01", "2026-01-01T00:00Z").bind(Schema({"t": "timestamp"})),
    parse("not (a = 1 or b = 2) xor c is absent xor d is text"),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("filter_", EXACT, ids=str)
def test_values_of_every_kind_come_back_exactly(filter_: Filter, codec: str) -> None:
    read = from_structure(CODECS[codec](to_structure(filter_)))
    assert same(read, filter_)
    assert type(read) is type(filter_)


def test_a_negative_zero_keeps_its_sign() -> None:
    filter_ = attr("a") - -0.0 > attr("b")
    read = from_structure(to_structure(filter_))
    assert isinstance(read, Relation)
    assert isinstance(read.left, Arithmetic)
    assert isinstance(read.left.right, Literal)
    assert str(read.left.right.constant) == "-0.0"


def test_equal_numbers_have_one_digest() -> None:
    assert digest(attr("n").in_(5, 0)) == digest(from_structure([1, ["in", "n", FIVES]]))
    assert digest(attr("n") == 5) != digest(attr("n") == 6)


FIVES = [{"float": 5.0}, {"float": -0.0}]


def test_repetitions_in_a_list_stay() -> None:
    filter_ = In("n", (attr("n") == 1).kind, (1, 1))  # type: ignore[attr-defined]
    assert same(from_structure(to_structure(filter_)), filter_)


def test_a_deep_filter_is_written_and_read() -> None:
    filter_: Filter = attr("a") == 0
    for number in range(MAX_DEPTH // 2):
        filter_ = (filter_ & (attr("a") == number)) | (attr("b") == number)
    limits = FilterLimits(depth=MAX_DEPTH)
    assert same(from_structure(to_structure(filter_), limits), filter_)
    with pytest.raises(LimitError, match="levels inside the filter"):
        from_structure([*to_structure(filter_), ["not"]], limits)


def test_shared_parts_cannot_make_a_structure_endless() -> None:
    filter_: Filter = attr("a") == 0
    for _ in range(60):
        filter_ = And((filter_, filter_), depth=filter_.depth + 1)
    with pytest.raises(LimitError, match="nodes in the filter: more than 200,000"):
        to_structure(filter_)


# --- mistakes --------------------------------------------------------------------------------

MISTAKES: list[tuple[Any, int | None, str]] = [
    ({}, None, "the structure of a filter is a list of its version and its nodes, not {}"),
    ([], None, "the structure of a filter is a list of its version and its nodes, not []"),
    (
        [3, ["true"]],
        None,
        (
            "the structure of a filter has version 3, but this Tamis knows only versions 1 and 2: "
            "update the older of the two"
        ),
    ),
    (
        [True, ["true"]],
        None,
        (
            "the structure of a filter has version True, but this Tamis knows only versions 1 and "
            "2: update the older of the two"
        ),
    ),
    ([1], None, "the filter has no nodes; one that always holds is ['true']"),
    ([1, ["true"], ["true"]], None, "the nodes end with 2 parts that nothing joins"),
    ([1, ["attribute", "a"]], None, "the nodes end with a, which nothing compares"),
    ([1, "true"], 1, "a node is a list that begins with a word"),
    ([1, [[]]], 1, "a node is a list that begins with a word"),
    ([1, ["maybe"]], 1, "'maybe' is not a word that begins a node"),
    ([1, ["not"]], 1, "there is nothing before it"),
    ([1, ["true"], ["not", 1]], 2, "it takes 0 operands, not 1"),
    ([1, ["true"], ["and", 2]], 2, "it joins 2 filters, but there are only 1 before it"),
    ([1, ["true"], ["or", 1]], 2, "it joins 2 filters or more, not 1"),
    ([1, ["true"], ["true"], ["xor", True]], 3, "it joins 2 filters or more, not True"),
    ([1, ["attribute", "a"], ["not"]], 2, "it takes a filter, but a is a value"),
    (
        [1, ["true"], ["attribute", "a"], ["compute", "+"]],
        3,
        "it takes a value, but true is a filter",
    ),
    (
        [1, ["attribute", "a"], ["attribute", "b"], ["compute", "%"]],
        3,
        "'%' is none of +, -, *, /, div",
    ),
    (
        [1, ["attribute", "a"], ["attribute", "b"], ["compare", "~="]],
        3,
        "'~=' is none of =, !=, <, <=, >, >=",
    ),
    (
        [1, ["attribute", "a"], ["constant", 1], ["compare", "<"]],
        3,
        (
            "a < 1 compares an attribute with a constant, which is a node of its own, such "
            'as ["<", "price", 5]'
        ),
    ),
    (
        [1, ["constant", 1], ["constant", 2], ["compute", "+"]],
        3,
        "1 and 2 are two constants; write what they give",
    ),
    (
        [1, ["attribute", "a"], ["constant", "x"], ["compute", "+"]],
        3,
        '"x" is not a number, so a + "x" has no value',
    ),
    ([1, ["present", ""]], 1, "an attribute's name is a text that is not empty, not ''"),
    ([1, ["present", None]], 1, "an attribute's name is a text that is not empty, not None"),
    (
        [1, ["present", "\ud800"]],
        1,
        "the text has a lone surrogate (U+D800) at character 1, so it is not valid Unicode",
    ),
    (
        [1, ["contains", "a", "x\udfff"]],
        1,
        "the text has a lone surrogate (U+DFFF) at character 2, so it is not valid Unicode",
    ),
    (
        [1, ["kind", "a", "colour"]],
        1,
        "'colour' is none of number, text, boolean, timestamp, bits, date, uuid, bytes",
    ),
    ([1, ["=", "a"]], 1, "it takes 2 operands, not 1"),
    (
        [1, ["=", "a", None]],
        1,
        (
            "None is not a value; write an integer, a text or a boolean, or an object with "
            "one key of float, timestamp, bits, date, uuid, bytes"
        ),
    ),
    (
        [1, ["=", "a", 1.5]],
        1,
        (
            "1.5 is not a value; write an integer, a text or a boolean, or an object with "
            "one key of float, timestamp, bits, date, uuid, bytes"
        ),
    ),
    (
        [1, ["=", "a", 9223372036854775808]],
        1,
        "the integer 9223372036854775808 does not fit in 64 bits; send it as text or as a float",
    ),
    (
        [1, ["=", "a", {"float": math.nan}]],
        1,
        "an attribute cannot be compared with nan: use a finite number",
    ),
    (
        [1, ["=", "a", {"float": 9007199254740993}]],
        1,
        "the integer 9007199254740993 has no exact float; declare the attribute as 'int'",
    ),
    ([1, ["=", "a", {"float": True}]], 1, "True is not a value of type 'float'"),
    (
        [1, ["<", "a", {"timestamp": "noon"}]],
        1,
        "'noon' is not a timestamp such as 2026-11-15T04:02:00Z",
    ),
    ([1, ["has any bit", "a", 5]], 1, "has any bit takes a bit set, such as {'bits': 5}, not 5"),
    ([1, ["has any bit", "a", {"bits": -1}]], 1, "-1 is not a value of type 'bits'"),
    ([1, ["in", "a", 5]], 1, "it takes a list, not 5"),
    ([1, ["in", "a", []]], 1, "a in (): the list is empty, so nothing could match"),
    (
        [1, ["in", "a", [1, "x"]]],
        1,
        "a is compared with a number and with text in one list; join two tests with or",
    ),
    ([1, ["<", "a", True]], 1, "a < true: < has no meaning for a boolean; only = and != have"),
    ([1, ["contains", "a", 5]], 1, "a contains 5: contains takes a text"),
    ([1, ["matches", "a", "("]], 1, "the pattern '(' has a ( that nothing closes"),
    (
        [1, ["in network", "a", ["10.0.0.1/8"]]],
        1,
        "10.0.0.1/8 has more bits than 8: write 10.0.0.0/8",
    ),
    (
        [1, ["~=", "a", "IBM"]],
        1,
        'a = "IBM" is to ignore case, but its text is not folded: write a = "ibm"',
    ),
    (
        [1, ["~matches", "a", "IBM"]],
        1,
        'a matches "IBM" is to ignore case, but its text is not folded: write a matches "(?i)IBM"',
    ),
    ([1, ["~=", "a", 5]], 1, "a = 5 has no variant that ignores case: only tests of texts do"),
    (
        [1, ["=", None, 5]],
        1,
        (
            "any = 5: any attribute can only be tested for a text in quotes; an attribute "
            "that is called any stands in backticks"
        ),
    ),
]


@pytest.mark.parametrize(("structure", "number", "reason"), MISTAKES, ids=range(len(MISTAKES)))
def test_what_is_no_filter_is_refused_by_a_sentence(
    structure: Any, number: int | None, reason: str
) -> None:
    with pytest.raises(FilterStructureError) as error:
        from_structure(structure)
    assert (error.value.number, error.value.reason) == (number, reason)
    place = f"node {number} of the filter, {structure[number]!r}: " if number else ""
    assert str(error.value) == f"{place}{reason}"


LIMITS = FilterLimits(text=100, atoms=10, depth=3, steps=20)

TOO_LARGE: list[tuple[Any, str]] = [
    ([1, *[["true"]] * 61], "nodes in the filter: 61 exceeds the limit of 60"),
    ([1, ["present", "a" * 101]], "characters in the filter: 101 exceeds the limit of 100"),
    ([1, ["in", "a", ["b" * 60, "c" * 60]]], "characters in the filter: 121 exceeds"),
    ([1, ["in", "a", [*range(61)]]], "names and constants in the filter: 62 exceeds"),
    ([1, ["in", "a", [*range(11)]]], "atoms in the filter: 11 exceeds the limit of 10"),
    ([1, ["true"], *[["not"]] * 4], "levels inside the filter: 4 exceeds the limit of 3"),
    ([1, ["true"], *[["true"], ["and", 2]] * 4], "levels inside the filter: 4 exceeds"),
    ([1, ["matches", "a", ".{30}"]], "steps for one character in the regular expressions"),
]


@pytest.mark.parametrize(("structure", "sentence"), TOO_LARGE, ids=range(len(TOO_LARGE)))
def test_a_filter_beyond_the_limits_is_refused(structure: Any, sentence: str) -> None:
    with pytest.raises(LimitError) as error:
        from_structure(structure, LIMITS)
    assert str(error.value).startswith(sentence)


def test_what_nests_deeply_is_refused_without_recursion() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for structure in ([1, nested], [1, ["in", "a", nested]], [1, ["=", "a", {"float": nested}]]):
        with pytest.raises(FilterStructureError):
            from_structure(structure)
    with pytest.raises(LimitError, match="levels inside"):
        from_structure([1, ["attribute", "a"], *[["attribute", "a"], ["compute", "+"]] * 300])


# --- damage ----------------------------------------------------------------------------------

STRANGE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "and",
    "~",
    "=",
    [],
    [[]],
    {},
    {"float": "x"},
    {1: 2},
)


def damaged(rng: Random, structure: list[Any]) -> list[Any]:
    """Return a copy with one part replaced, removed, repeated or moved."""
    changed = copy.deepcopy(structure)
    part = changed
    while rng.random() < 0.6:
        inner = [one for one in part if isinstance(one, list) and one]
        if not inner:
            break
        part = rng.choice(inner)
    if not part:
        return changed
    place = rng.randrange(len(part))
    match rng.randrange(4):
        case 0:
            part[place] = copy.deepcopy(rng.choice(STRANGE))
        case 1:
            del part[place]
        case 2:
            part.insert(place, copy.deepcopy(rng.choice(part)))
        case _:
            part.insert(0, part.pop(place))
    return changed


@pytest.mark.parametrize("seed", seeds(100))
def test_damaged_structures_are_filters_or_refused(seed: int) -> None:
    rng = Random(seed)
    refused = 0
    for _ in range(PER_SEED):
        structure = to_structure(random_filter(rng, random_world(rng, typed=False)))
        for _ in range(rng.randint(1, 3)):
            structure = damaged(rng, structure)
        try:
            read = from_structure(structure, FilterLimits(steps=10_000))
        except (FilterStructureError, LimitError):
            refused += 1
        else:
            # It means something, and that can be written, printed and read again.
            assert isinstance(str(read), str)
            assert same(from_structure(to_structure(read), FilterLimits(steps=10_000)), read)
            read.matches({"a": 1})
    assert PER_SEED // 4 < refused < PER_SEED


def test_double_negations_and_an_attribute_called_any_stay_as_they_are() -> None:
    read = from_structure([1, ["true"], ["not"], ["not"]])
    assert same(read, Not(Not(TRUE, depth=1), depth=2))
    assert same(from_structure(to_structure(Attr("any") == 1)), Attr("any") == 1)

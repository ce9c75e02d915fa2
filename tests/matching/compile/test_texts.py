"""Texts that are compiled together become what the parser makes of each, or are left to it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis import Engine, FilterLimits, Mode, Schema, Subscription, attribute
from tamis.errors import TamisError
from tamis.languages import parse
from tamis.matching import engine as engine_module
from tamis.matching import subscriptions
from tamis.matching.compile.programs import compile_filter
from tamis.matching.compile.texts import TextCompiler
from tamis.matching.compile.vocabulary import Vocabulary

NAMES = ("a", "b.c", "_x9", "note", "order", "And2", "x.1")
OPERATORS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=")
CONSTANTS = ("0", "7", "007", "-5", "1.5", "2.0", '"t"', "'it'", '""', "'a and b'", '"(x"')
# Each of these is for the parser, or is an error.
ODDITIES = (
    *("true", "a", "5", "=", "===", "=<", "=>", "=~", "!", "!=", "<=>", "and", "or", "xor", "not"),
    *("between", "between 1 and 5", "between 1 and", "contains", 'contains "x"', 'starts "x"'),
    *("in", "in ()", "in (1, 2)", 'in (1, "x")', "in (1,)", "is present", 'matches "a+"', "with"),
    *("+ 1", "- 1", "0x1F", "1e5", "like", "IN (1)", "Between 1 And 2", "[", ",", 'like "\\"'),
    *("5a", "1.", ".5", "9999999999999999999", "9223372036854775808", '"open', '"\\n"', '"é"'),
    *("`unit price`", "é", "\t", "\n", "\v", "\x1c", "(", ")", "date = 5", "in = 5", "a.", "Ⅳ"),
)


TESTS = (
    *("between {0} and {1}", "in ({0})", "in ( {0},{1} , {0})", "in({0}, {1})"),
    *('contains "{0}"', "starts with 'x'", "ends with'y'", 'within "abc"', 'like "a%"'),
)


def random_atom(rng: Random) -> str:
    if rng.random() < 0.3:
        text = rng.choice(TESTS).format(*rng.sample(range(-2, 3), 2))
        return f"{rng.choice(NAMES)} {text}"
    space = rng.choice(("", " ", "  "))
    return space.join((rng.choice(NAMES), rng.choice(OPERATORS), rng.choice(CONSTANTS)))


def random_text(rng: Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return random_atom(rng)
    if rng.random() < 0.25:
        return f"{rng.choice(('not', 'NOT', 'Not'))} {random_term(rng, depth)}"
    word = rng.choice(("and", "or", "xor", "AND", "Or", "xOR"))
    words = (word, rng.choice((word, "and", "or", "xor")))
    terms = [random_term(rng, depth) for _ in range(rng.choice((2, 2, 3)))]
    return terms[0] + "".join(f" {one} {term}" for one, term in zip(words, terms[1:], strict=False))


def random_term(rng: Random, depth: int) -> str:
    text = random_text(rng, depth - 1)
    return f"({text})" if rng.random() < 0.6 else text


def disturbed(rng: Random, text: str) -> str:
    place = rng.randrange(len(text) + 1)
    match rng.randrange(3):
        case 0:
            return f"{text[:place]} {rng.choice(ODDITIES)} {text[place:]}"
        case 1:
            return text[:place] + rng.choice(ODDITIES) + text[place:]
        case _:
            return text[:place] + text[place + 1 :]


def compare(texts: list[str], mode: Mode, limits: FilterLimits, schema: Schema | None) -> int:
    """Compare with the parser; return how many texts were compiled together."""
    vocabulary = Vocabulary(schema)
    programs = TextCompiler(limits).compile(texts, mode, vocabulary)
    assert len(programs) == len(texts)
    for text, program in zip(texts, programs, strict=True):
        if program is not None:
            filter_ = parse(text, limits=limits)
            limits.check(filter_)
            assert program.tolist() == compile_filter(filter_, mode, vocabulary), text
    return sum(program is not None for program in programs)


@pytest.mark.parametrize("seed", range(4))
def test_programs_are_those_of_the_parser(seed: int) -> None:
    rng = Random(seed)
    texts = [random_text(rng, rng.choice((0, 1, 2, 4))) for _ in range(500)]
    assert compare(texts, rng.choice((Mode.SQL, Mode.DEFAULT)), FilterLimits(), None) > 450
    texts = [disturbed(rng, text) for text in texts]
    assert compare(texts, Mode.SQL, FilterLimits(), None) > 20


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from((*NAMES, *OPERATORS, *CONSTANTS, *ODDITIES)), max_size=12),
        max_size=20,
    ),
    st.sampled_from(("", " ")),
)
def test_any_words_are_read_as_the_parser_reads_them(words: list[list[str]], space: str) -> None:
    compare([space.join(some) for some in words], Mode.SQL, FilterLimits(), None)


@pytest.mark.parametrize(
    "text",
    [
        "f0 = 936 and f1 = 75 and f2 = 58",
        "not (f859 > 6 or f897 = 53)",
        "not not (a = 1 and b = 2) and c = 3",
        "a = 1 xor b = 2 xor (c = 3 xor d = 4)",
        'symbol="IBM"and(price<-5.25)',
        'a in (1, 2) and b between 1 and 2 or c contains "x" and d starts with "y"',
    ],
)
def test_plain_filters_are_not_left_to_the_parser(text: str) -> None:
    assert compare([text], Mode.SQL, FilterLimits(), None) == 1


@pytest.mark.parametrize(
    "limits",
    [
        FilterLimits(text=30),
        FilterLimits(atoms=2),
        FilterLimits(depth=1),
        FilterLimits(depth=16),
        FilterLimits(depth=20),
    ],
)
def test_limits_hold(limits: FilterLimits) -> None:
    rng = Random(1)
    compare(
        [random_text(rng, depth) for depth in range(7) for _ in range(60)], Mode.SQL, limits, None
    )


def test_nesting_that_is_too_deep_is_left_to_the_parser() -> None:
    nested = [f"{'(' * n}a = 1{')' * n}" for n in range(90)]
    negated = ["not " * n + "a = 1" for n in range(90)]
    assert compare(nested + negated, Mode.SQL, FilterLimits(), None) > 20


def given_rows(rng: Random) -> Iterator[Subscription | dict[str, object]]:
    for number in range(300):
        text = random_text(rng, rng.choice((0, 1, 2)))
        if rng.random() < 0.3:
            text = disturbed(rng, text)
        id_ = rng.choice((number, f"{number}", number // 2))
        mode = rng.choice((None, None, None, "strict", "nonsense"))
        language = rng.choice(("tamis", "tamis", "tamis", "jms"))
        expires_at = rng.choice((None, None, 5.0, float("nan")))
        if rng.random() < 0.1:
            yield {"id": id_, "filter": text}
        elif rng.random() < 0.1:
            yield Subscription(True, text)
        else:
            yield Subscription(id_, text, language, mode, expires_at)


SCHEMAS = (
    None,
    Schema({"a": attribute("int"), "b.c": attribute("str"), "note": attribute("float")}),
)


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("rows_per_batch", [7, 1_000])
def test_many_subscriptions_are_accepted_and_refused_as_one_by_one(
    schema: Schema | None, rows_per_batch: int
) -> None:
    alone, together = Engine(schema), Engine(schema)
    alone_added = alone.add_many(given_rows(Random(3)))
    with (
        patch.object(engine_module, "MIN_TEXTS", 1),
        patch.object(subscriptions, "SUBSCRIPTIONS_PER_COMPILATION", rows_per_batch),
    ):
        added = together.add_many(given_rows(Random(3)))
    assert added == alone_added
    assert 0 < added.added < 300
    assert together.ids() == alone.ids()
    for id_ in alone.ids():
        assert together.filter(id_) == alone.filter(id_)
    for event in ({}, {"a": 7, "b.c": "t"}, {"a": 0, "note": 1.5}):
        assert together.match(event) == alone.match(event)


@pytest.mark.parametrize("repeated", [(), (3,), (40,), (7, 40, 41)])
@pytest.mark.parametrize("known", [0, 5])
def test_rows_of_nothing_but_texts_are_added_as_one_by_one(
    repeated: tuple[int, ...], known: int
) -> None:
    rng = Random(5)
    rows = [Subscription(number, random_text(rng, 2)) for number in range(90)]
    # In the first batch, so that some come twice in it, and others again later.
    rows[10:10] = [Subscription(number, "a = 1") for number in repeated]
    rows += [Subscription(f"{number}", "a = 7 and b.c <") for number in repeated]
    alone, together = Engine(), Engine()
    for engine in (alone, together):
        for number in range(known):
            engine.add(number, "a > 5")
        engine.match_batch([{}])
    alone_added = alone.add_many(rows)
    with (
        patch.object(engine_module, "MIN_TEXTS", 1),
        patch.object(subscriptions, "SUBSCRIPTIONS_PER_COMPILATION", 30),
    ):
        added = together.add_many(rows)
    assert added == alone_added
    assert added.added == 90 - known
    assert len(added.rejected) == known + 2 * len(repeated)
    assert together.ids() == alone.ids()
    assert len(together) == len(alone) == 90
    for event in ({}, {"a": 7, "b.c": "t"}, {"a": 0, "note": 1.5}, {"a": 1}):
        assert together.match(event) == alone.match(event)


def test_rows_before_an_error_of_their_source_are_added() -> None:
    def rows() -> Iterator[Subscription]:
        yield Subscription(1, "a = 1")
        yield Subscription(2, "a = 2")
        raise OSError("the source is gone")

    engine = Engine()
    with patch.object(engine_module, "MIN_TEXTS", 1), pytest.raises(OSError, match="is gone"):
        engine.add_many(rows())
    assert engine.ids() == [1, 2]


def test_a_refused_filter_has_the_sentence_of_the_parser() -> None:
    engine = Engine()
    with patch.object(engine_module, "MIN_TEXTS", 1):
        (rejected,) = engine.add_many([Subscription(1, "a = 1 and b ="), Subscription(2, "a = 1")])[
            1
        ]
    with pytest.raises(TamisError) as caught:
        parse("a = 1 and b =")
    assert rejected == (1, 1, str(caught.value))

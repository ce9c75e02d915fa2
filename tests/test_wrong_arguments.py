"""Wrong arguments to public functions are answered with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tamis import (
    Engine,
    Schema,
    Space,
    TamisError,
    all_of,
    any_of,
    attr,
    compare,
    connect,
    covers,
    decode_json,
    decode_schema,
    equivalent,
    intersects,
    is_always,
    is_never,
    parse,
    simplify,
)

FILTER = parse("a = 1")
# What a type checker would refuse.
WRONG: Any = {"a": "int"}
TEXT: Any = "a < 1"
NUMBER: Any = 5


def filled() -> Engine:
    engine = Engine()
    engine.add("x", FILTER)
    engine.match({"a": 1})
    return engine


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: parse(None), "a filter is a text, not None"),  # type: ignore[arg-type]
        (lambda: parse(NUMBER), "a filter is a text, not 5"),
        (lambda: parse(b"a = 1"), "a filter is a text, not b'a = 1'; decode it first"),  # type: ignore[arg-type]
        (lambda: parse(FILTER), "a filter is a text, not <Filter a = 1>, which is parsed already"),  # type: ignore[arg-type]
        (lambda: parse("a = 1", NUMBER), "5 is not a language that Tamis reads; it reads 'tamis'"),
        (
            lambda: Engine(WRONG),
            "a schema is a Schema, not {'a': 'int'}: write Schema({'a': 'int'})",
        ),
        (lambda: Space("sql", WRONG), "a schema is a Schema, not {'a': 'int'}"),
        (lambda: FILTER.matches({}, schema=WRONG), "a schema is a Schema, not {'a': 'int'}"),
        (lambda: FILTER.bind(WRONG), "a schema is a Schema, not {'a': 'int'}"),
        (lambda: covers(FILTER, FILTER, schema=TEXT), "a schema is a Schema, not 'a < 1'"),
        (lambda: compare(TEXT, TEXT), "a Filter is needed, not 'a < 1': write parse('a < 1')"),
        (lambda: covers(TEXT, FILTER), "a Filter is needed, not 'a < 1': write parse('a < 1')"),
        (lambda: covers(FILTER, None), "a Filter is needed, not None"),  # type: ignore[arg-type]
        (lambda: intersects(FILTER, TEXT), "a Filter is needed, not 'a < 1'"),
        (lambda: equivalent(NUMBER, FILTER), "a Filter is needed, not 5"),
        (lambda: is_never(TEXT), "a Filter is needed, not 'a < 1'"),
        (lambda: is_always(TEXT), "a Filter is needed, not 'a < 1'"),
        (lambda: simplify(TEXT), "a Filter is needed, not 'a < 1'"),
        (lambda: all_of(TEXT), "a Filter is needed, not 'a < 1'"),
        (lambda: any_of([FILTER]), "a Filter is needed, not [<Filter a = 1>]: write any_of(*"),  # type: ignore[arg-type]
        (
            lambda: is_never(attr("a")),  # type: ignore[arg-type]
            "a Filter is needed, not <Attr a>, which is no condition: compare it, as in a = 5",
        ),
        (lambda: attr("a").is_a("number"), "a kind is one of Kind.NUMBER, "),  # type: ignore[arg-type]
        (lambda: Schema(NUMBER), "a schema is made from a mapping of names to types, not 5"),
        (lambda: decode_schema(WRONG), "a schema is JSON text, not {'a': 'int'}: write Schema("),
        (
            lambda: Engine().add("x", FILTER, expires_at="soon"),  # type: ignore[arg-type]
            "expires_at is a datetime or seconds since 1970, not 'soon'",
        ),
        (
            lambda: attr("a").in_([1, 2]),
            "in_ takes the values one by one, not a list of them; write in_(*values)",
        ),
        (
            lambda: Engine().add("x", FILTER, expires_at=datetime(2026, 1, 31)),
            "expires_at is 2026-01-31 00:00:00, which has no time zone; use datetime.now(UTC)",
        ),
        (lambda: Engine().add_many(NUMBER), "subscriptions are an iterable, an Arrow table or"),
        (lambda: Engine().match_batch(NUMBER), "events are an iterable of events or an Arrow"),
        (
            lambda: Engine().match_json({"a": 1}),  # type: ignore[arg-type]
            "an event in JSON is text or bytes, not {'a': 1}; a mapping needs no decoding, so call",
        ),
        (lambda: Engine().match_json(None), "an event in JSON is text or bytes, not None"),  # type: ignore[arg-type]
        (lambda: filled().match_json({"a": 1}), "an event in JSON is text or bytes, not {'a'"),  # type: ignore[arg-type]
        (lambda: filled().match_json(None), "an event in JSON is text or bytes, not None"),  # type: ignore[arg-type]
        (lambda: decode_json(NUMBER), "an event in JSON is text or bytes, not 5"),
        (
            lambda: filled().explain({"a": 1}, "x"),  # type: ignore[arg-type]
            "explain takes the id of a subscription first, and then the event",
        ),
        (lambda: filled().explain([1], {"a": 1}), "an id is a text or an integer, not [1]"),  # type: ignore[arg-type]
        (lambda: filled().remove(WRONG), "an id is a text or an integer, not {'a': 'int'}"),
        (lambda: filled().filter(WRONG), "an id is a text or an integer, not {'a': 'int'}"),
        (lambda: Engine().match_batch({"a": 1}), "this is one event: call match, or put it in"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named_in_a_sentence(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(TamisError) as caught:
        call()
    assert str(caught.value).startswith(sentence), str(caught.value)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (5, "a subscription is a Subscription or a mapping, not 5"),
        ({"id": 1}, '"filter" is missing'),
        ({"id": 1, "filter": "a = 1", "expires": 5}, '"expires" is unknown'),
    ],
)
def test_a_wrong_row_is_named_in_a_sentence(row: Any, sentence: str) -> None:
    [rejected] = Engine().add_many([row]).rejected
    assert sentence in rejected.reason
    assert "()" not in rejected.reason


def test_a_bus_for_asyncio_in_a_plain_with_names_the_other_one() -> None:
    wrong: Any = connect()
    with pytest.raises(TypeError, match='write "async with", or use connect_sync'), wrong:
        pass

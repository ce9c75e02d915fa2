"""Data that does not fit is named in a sentence, whatever the decoder says."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from tamis.mismatches import find_mismatch


class Item(msgspec.Struct, forbid_unknown_fields=True):
    x: int


class Page(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="page"):
    limit: Annotated[int, Meta(ge=1, le=9)] = 1
    name: Annotated[str, Meta(min_length=2, max_length=3)] = "ab"
    word: Annotated[str, Meta(pattern="^[a-z]+$")] = "a"
    policy: Literal["wait", "drop"] | None = None
    items: Annotated[list[Item], Meta(max_length=2)] = []
    start: int | str | None = None
    wait: Annotated[float, Meta(gt=0)] = 1.0


class Other(msgspec.Struct, tag_field="type", tag="other"):
    q: int = 0


def said(text: str | bytes, type_: object = Page) -> str:
    decoder = msgspec.json.Decoder(type_)
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError, RecursionError)) as raised:
        decoder.decode(text)
    return find_mismatch(raised.value, type_, text=text).sentence("the body")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"type":"page","limit":0}', "limit in the body must be an integer of at least 1"),
        ('{"type":"page","limit":10}', "limit in the body must be an integer of at most 9"),
        ('{"type":"page","limit":"x"}', "limit in the body must be an integer, not a text"),
        ('{"type":"page","wait":0}', "wait in the body must be a number greater than 0"),
        ('{"type":"page","name":"a"}', "name in the body must be a text of at least 2 characters"),
        ('{"type":"page","word":"A"}', "word in the body must be a text that matches ^[a-z]+$"),
        (
            '{"type":"page","policy":"bogus"}',
            "policy in the body is 'bogus'; it must be one of drop, wait",
        ),
        (
            '{"type":"page","items":[{},{},{}]}',
            'items[0] in the body lacks the field "x"',
        ),
        (
            '{"type":"page","items":[{"y":1}]}',
            'items[0] in the body has no field "y"; the fields are x',
        ),
        (
            '{"type":"page","start":[]}',
            "start in the body must be an integer or a text or null, not an array",
        ),
        ('{"type":"page","limti":1}', 'the body has no field "limti"; did you mean "limit"?'),
        ("[]", "the body must be an object, not an array"),
        ("5", "the body must be an object, not an integer"),
        ('{"type":"page"', "the body ends before the JSON is complete"),
        ("", "the body ends before the JSON is complete"),
        ('{"limit":}', "the body is not JSON: invalid character at byte 9"),
        (b'{"type":"page","name":"\xff"}', "the body is not UTF-8 text"),
        (
            '{"type":"page","name":"\\ud800"}',
            "the body has a lone surrogate (U+D800) at byte 23, so it is not valid Unicode",
        ),
        (
            '{"type":"page","name":"\\\\ud800 \\ud83d\\ude00 \\ude00"}',
            "the body has a lone surrogate (U+DE00) at byte 44, so it is not valid Unicode",
        ),
        ('{"type":"page","name":"\\\\ud800', "the body ends before the JSON is complete"),
        ('{"type":"page","name":"\\ud83d\\ude00', "the body ends before the JSON is complete"),
    ],
)
def test_a_sentence_says_what_does_not_fit(text: str | bytes, sentence: str) -> None:
    assert said(text) == sentence


def test_a_wrong_tag_is_answered_with_the_right_ones() -> None:
    sentence = said('{"type":"paeg"}', Page | Other)
    assert sentence == "type in the body is 'paeg'; it must be one of other, page"
    assert said("{}", Page | Other) == 'the body lacks the field "type"'


def test_other_words_may_be_used_for_types() -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert([], Item)
    words = {"object": "a table", "array": "a list"}
    assert find_mismatch(raised.value, Item, words).reason == ("must be a table, not a list")

"""Texts that stay bytes: as a sequence, and ranked as Python ranks them."""

from __future__ import annotations

import json
from bisect import bisect_right
from random import Random

import numpy as np

from tamis import Engine, Subscription
from tamis.events.undecoded_texts import UndecodedTexts
from tamis.filters import attr
from tamis.matching.evaluate.text_order_kernels import encoded, enter_texts, rank_texts

ALPHABET = "ab\x7f\x80é߿ࠀ€퟿\ue000\uffff😀\U0010ffff"


def drawn(rng: Random, count: int) -> list[str]:
    """Draw texts that have long beginnings in common."""
    begins = ["", *("".join(rng.choices(ALPHABET, k=rng.randrange(12))) for _ in range(6))]
    return [
        rng.choice(begins) + "".join(rng.choices(ALPHABET, k=rng.randrange(4)))
        for _ in range(count)
    ]


def undecoded(texts: list[str]) -> UndecodedTexts:
    parts = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return UndecodedTexts(np.frombuffer(b"".join(parts), np.uint8), ends[:-1], ends[1:])


def test_they_are_a_sequence_of_the_texts() -> None:
    texts = ["", "é", "a", "😀", "a"]
    found = undecoded(texts)
    assert (len(found), list(found), found[3], found[1:3]) == (5, texts, "😀", ["é", "a"])
    assert found == texts
    assert found != texts[:-1]


def test_texts_are_ranked_as_python_ranks_them() -> None:
    rng = Random(5)
    for _ in range(30):
        known = sorted(set(drawn(rng, rng.choice((1, 2, 40, 300)))))
        asked = drawn(rng, 200) + rng.choices(known, k=20)
        texts, given = encoded(known), undecoded(asked)
        enter_texts(texts, 0, len(known), 0)
        ranks = np.empty(len(asked), np.int32)
        rank_texts(texts, given.data, given.starts, given.ends, ranks)
        assert ranks.tolist() == [bisect_right(known, text) for text in asked]


def test_json_lines_and_mappings_find_the_same_texts() -> None:
    rng = Random(6)
    known, asked = drawn(rng, 60), drawn(rng, 300)
    engine = Engine()
    engine.add_many(Subscription(n, attr("x") <= text) for n, text in enumerate(known))
    engine.add("part", 'x contains "é"')
    wanted = [
        [*(n for n, text in enumerate(known) if each <= text), *(["part"] if "é" in each else [])]
        for each in asked
    ]
    lines = [json.dumps({"x": each}, ensure_ascii=rng.random() < 0.3) for each in asked]
    assert list(engine.match_json_lines(lines)) == wanted
    assert list(engine.match_batch([{"x": each} for each in asked])) == wanted

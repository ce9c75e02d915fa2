"""Load kernels before they are needed: compile them on first use, then read the cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from typing import Final

import pyarrow as pa

from tamis.covering.warming import use_covering_kernels
from tamis.diagrams import covers
from tamis.filters import FilterLimits, Mode
from tamis.jit import announced_in_terminals_only
from tamis.languages import parse
from tamis.matching.compile.texts import TextCompiler
from tamis.matching.compile.vocabulary import Vocabulary
from tamis.matching.engine import Engine
from tamis.matching.subscriptions import Subscription

_RARE: Final = 'text = "a{0}" and number < {0}'
_RARE_COUNT: Final = 2_000
"""So many of these, each with a value of its own, are indexed by it."""
_VARIED: Final = (
    "number < {0} and flag = true",
    "number between {0} and {0} + 3 or other > {0}",
    'text starts with "a{0}" or text ends with "b{0}"',
    'text contains "c{0}" and not flag = true',
    "number is absent and other is present",
    "number + other < {0}",
    'number + other > {0} and (text = "d{0}" or not (flag = true or other <> number))',
)
_SIMPLE_COUNT: Final = 50
_SINGLE_TEXTS: Final = ('{"text": "a\\u0031", "number": 0}', '{"text": ["a1", "b"], "number": 0}')
_WIDE: Final = " or ".join(
    f"(x{n} < 1 and x{(7 * n + 3) % 30} > 2 and x{(11 * n + 5) % 30} > {n})" for n in range(60)
)
"""A filter whose diagram would be too large."""
_EVENTS: Final = [
    {"number": n, "other": n / 2, "text": f"a{n + 1}", "flag": n > 3} for n in range(70)
]


def load_kernels(*, announced: bool = True) -> None:
    """Load all kernels, by matching something of every kind one by one and as a batch.

    The first process on a machine compiles them, which takes about a minute, and caches
    them beside the modules or in NUMBA_CACHE_DIR; others load them in less than a second. If they
    must be compiled, a line on standard error says so; if not `announced`, only in a terminal.
    A process that has them, from an earlier call or because it was forked, does nothing.
    """
    with nullcontext() if announced else announced_in_terminals_only():
        _use_kernels()


@cache
def _use_kernels() -> None:
    engine = Engine()
    engine.add_many(_subscriptions())
    engine.match(_EVENTS[0])
    engine.remove(1)
    engine.match_batch([*_EVENTS, {**_EVENTS[0], "text": ["a1", "a2"]}]).pairs()
    engine.match_json_lines(map(json.dumps, _EVENTS)).counts()
    engine.match_json(json.dumps(_EVENTS[0]))
    # Tests of single attributes have a quick path for single events; arithmetic declined it.
    simple = Engine()
    simple.add_many(Subscription(number, _RARE.format(number)) for number in range(_SIMPLE_COUNT))
    simple.add("part", 'text contains "a"')
    # A batch has them compiled at once, rather than in the background.
    simple.match_batch(_EVENTS[:1])
    simple.match(_EVENTS[0])
    for text in _SINGLE_TEXTS:
        simple.match_json(text)
    TextCompiler(FilterLimits()).compile([_RARE], Mode.SQL, Vocabulary(None))
    wide = Engine()
    wide.add("wide", _WIDE)
    wide.match_batch(_EVENTS)
    for numbers in ([1, None], [1.5, None], [1, 2], [1.5, 2.5]):
        wide.match_batch(pa.table({f"x{n}": numbers for n in range(30)}))
    covers(parse('number < 5 or text contains "a"'), parse("number < 4"))
    use_covering_kernels()


def _subscriptions() -> Iterator[Subscription]:
    for number in range(_RARE_COUNT):
        yield Subscription(number, _RARE.format(number))
    for number in range(_RARE_COUNT, _RARE_COUNT + 300):
        yield Subscription(number, _VARIED[number % len(_VARIED)].format(number))

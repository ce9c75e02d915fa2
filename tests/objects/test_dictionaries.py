"""Keys, values and items of dictionaries: every evaluator says the same of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any

import pytest

from tamis import Engine, message, where
from tamis.objects.accessors import AccessorFailures, ByName
from tamis.objects.patterns import ObjectFilter, require_object_filter
from tamis.objects.schemes import ByType, InvocationTree, StaticCode

WORDS = ("a", "b", "c", "")


@dataclass
class Labelled:
    labels: Mapping[str, str] = field(default_factory=dict)
    counts: dict[int, float] = field(default_factory=dict)
    loose: Any = None


m = message(Labelled)
FILTERS: list[tuple[ObjectFilter, Callable[[Labelled], bool]]] = [
    (m.labels.values().contains("a"), lambda each: "a" in each.labels.values()),
    (m.labels.keys().contains("b"), lambda each: "b" in each.labels),
    (m.counts.keys().contains(1), lambda each: 1 in each.counts),
    (m.counts.values().any(lambda v: v > 1), lambda each: any(v > 1 for v in each.counts.values())),
    (
        where(Labelled, lambda each: any(v == "c" for v in each.labels.values())),
        lambda each: any(v == "c" for v in each.labels.values()),
    ),
    (
        where(Labelled, lambda each: all(v < 2 for v in each.counts.values())),
        lambda each: all(v < 2 for v in each.counts.values()),
    ),
    (
        where(Labelled, lambda each: "a" in each.labels and "b" not in each.labels),
        lambda each: "a" in each.labels and "b" not in each.labels,
    ),
    (
        where(Labelled, lambda each: any(i[0] == "a" and i[1] == "b" for i in each.labels.items())),
        lambda each: ("a", "b") in each.labels.items(),
    ),
    (
        m.loose.values().contains("a"),
        lambda each: isinstance(each.loose, Mapping) and "a" in each.loose.values(),
    ),
]


def random_objects(rng: Random, count: int) -> list[Labelled]:
    makes: list[Any] = [dict, OrderedDict, MappingProxyType]
    found = []
    for _ in range(count):
        words = {rng.choice(WORDS): rng.choice(WORDS) for _ in range(rng.randrange(4))}
        numbers = {rng.randrange(3): rng.choice((0.5, 1.5, 2.5)) for _ in range(rng.randrange(3))}
        loose = rng.choice((None, words, 5, ["a"], {"x": "a"}))
        found.append(Labelled(rng.choice(makes)(words), numbers, loose))
    return found


@pytest.mark.parametrize("place", range(len(FILTERS)))
def test_every_evaluator_says_what_python_says(place: int) -> None:
    filter_, expected = FILTERS[place]
    objects = random_objects(Random(place), 200)
    engine = Engine()
    engine.add("it", filter_)
    batch = engine.match_batch(objects)
    failures = AccessorFailures()
    tree = InvocationTree([filter_], failures)
    for number, each in enumerate(objects):
        found = {
            "reference": require_object_filter(filter_).matches(each),
            **{
                type(read).__name__: filter_.truth(each, read) is True
                for read in (ByName(failures), ByType(failures), StaticCode(failures))
            },
            "tree": filter_.truth(each, tree.reader(each)) is True,
            "one": engine.match(each) == ["it"],
            "batch": batch[number] == ["it"],
        }
        assert set(found.values()) == {expected(each)}, (each, found)


def test_what_is_no_event_is_refused_alike() -> None:
    engine = Engine()
    engine.add("it", m.labels.values().contains("a"))
    for given in (None, 5, "text", Labelled):
        batch = engine.match_batch([given, Labelled({"x": "a"})])
        with pytest.raises(
            Exception, match="an event is a mapping of names to values, not "
        ) as one:
            engine.match(given)
        assert str(batch.errors[0]) == str(one.value)
        assert batch[1] == ["it"]

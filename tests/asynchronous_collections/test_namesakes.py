"""Several classes under one name: a reader gets its own class, or a refusal that is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Any

import pytest

from tamis import Engine, message, message_class, open_bus_sync, where
from tamis.collections import SyncDABag, SyncDAQueue
from tamis.objects import object_filter_from_structure, object_filter_to_structure
from waiting import eventually

BAGS: Any = SyncDABag


def versions(name: str) -> tuple[Any, Any, Any]:
    """Make three versions of a class: the second has a default, the third needs what is new."""

    @message_class(name, version=1)
    @dataclass
    class First:
        number: int

    @message_class(name, version=2)
    @dataclass
    class Second:
        number: int
        word: str = "none"

    @message_class(name, version=3)
    @dataclass
    class Third:
        number: int
        word: str

    return First, Second, Third


def namesake(*fields: Any) -> Any:
    """Make one of several local classes that have the same name."""
    return make_dataclass("Namesake", fields, namespace={"__module__": __name__})


@pytest.mark.parametrize("decorated_last", [0, 1])
def test_every_version_of_a_class_reads_all_as_its_own(decorated_last: int) -> None:
    first, second, _ = versions(f"tests.Versions{decorated_last}")
    kinds = [first, second]
    message(kinds[decorated_last])
    with open_bus_sync() as bus:
        seen: dict[Any, list[Any]] = {kind: [] for kind in kinds}
        bags: dict[Any, Any] = {kind: BAGS[kind]("/all", bus) for kind in kinds}
        for kind, bag in bags.items():
            bag.contains(message(kind).number > 0, seen[kind].append)
        bags[first].add(first(1))
        bags[second].add(second(2, "two"))
        bags[first].add(first(3))
        assert eventually(lambda: [*map(len, seen.values())] == [3, 3])
        assert seen[first] == [*bags[first]] == [first(1), first(2), first(3)]
        assert seen[second] == [*bags[second]] == [second(1), second(2, "two"), second(3)]


def test_a_version_that_cannot_be_read_is_counted_and_told() -> None:
    first, _, third = versions("tests.Refused")
    with open_bus_sync() as bus:
        seen: list[Any] = []
        bag: Any = BAGS[third]("/all", bus)
        watching = bag.contains(message(third).number > 0, seen.append)
        with bus.subscribe(message(third).number > 0) as consumer:
            bus.publish(first(1))
            with pytest.raises(TimeoutError):
                consumer.next(timeout=0.1)
            assert eventually(lambda: consumer.refused == 1)
        BAGS[first]("/all", bus).add(first(1))
        assert eventually(lambda: watching.refused == 1)
        assert [*bag] == seen == []
        assert bag.refused == 1
        queue: Any = SyncDAQueue[third]("/all", bus)  # type: ignore[valid-type]
        assert queue.pull() is None
        assert queue.refused >= 1  # A queue tries again.
    for told in (watching.refusals, bag.refusals, consumer.refusals, queue.refusals):
        [sentence] = {*told}
        assert "word: it is missing, and the class has no default for it" in sentence


CLASSES: list[Callable[[], tuple[Any, Any]]] = [
    lambda: (namesake(("number", int)), namesake(("number", int), ("word", str, "none"))),
    lambda: (namesake(("number", int), ("word", str, "none")), namesake(("number", int))),
]


@pytest.mark.parametrize("make", CLASSES)
def test_of_local_classes_with_one_name_each_reader_gets_its_own(
    make: Callable[[], tuple[Any, Any]],
) -> None:
    kinds = make()
    with open_bus_sync() as bus:
        for mine, other in (kinds, kinds[::-1]):
            with bus.subscribe(message(mine).number == 7) as consumer:
                message(other)
                bus.publish(other(7))
                bus.publish(mine(7))
                assert [type(consumer.next(timeout=10)) for _ in range(2)] == [mine, mine]


def test_an_engine_tells_classes_with_one_name_apart() -> None:
    old, new = namesake(("number", int)), namesake(("number", int))
    engine = Engine()
    engine.add("old", message(old).number == 7)
    engine.add("new", where(new, lambda each: each.number == 7))
    engine.add("any", message().number == 7)
    assert (engine.match(old(7)), engine.match(new(7))) == (["old", "any"], ["new", "any"])
    assert [*engine.match_batch([old(7), new(7)])] == [["old", "any"], ["new", "any"]]
    assert repr(message(new).number == 7) == "message(Namesake).number == 7"


def test_a_number_of_this_process_is_not_told_to_others() -> None:
    old, new = namesake(("number", int)), namesake(("number", int))
    for kind in (old, new):
        asked = (message(kind).number == 7) & message(kind).is_a(kind)
        structure = object_filter_to_structure(asked)
        assert "(" not in str(structure)
        assert object_filter_from_structure(structure, kind) == asked

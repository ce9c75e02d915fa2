"""No kernel is compiled in the middle of work: all are there after `load_kernels`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

from numba.core.dispatcher import Dispatcher

from strategies import random_event, random_filter, random_world
from tamis.covering import CoveringIndex
from tamis.covering.index import COMPILED_FROM
from tamis.errors import JSONError
from tamis.events import Event, encode_json
from tamis.matching import Engine, Subscription, load_kernels

WORLDS = 8


def loaded() -> set[tuple[str, str]]:
    """Return the kernels of this process, with the types that they are for."""
    return {
        (f"{name}.{known_as}", str(signature))
        for name, module in [*sys.modules.items()]
        if name.startswith("tamis.")
        for known_as, kernel in vars(module).items()
        if isinstance(kernel, Dispatcher)
        for signature in kernel.signatures
    }


def work(rng: Random) -> None:
    """Use an engine in every way."""
    world = random_world(rng, typed=rng.random() < 0.5)
    engine = Engine(world.schema)
    for number in range(rng.choice((3, 30, 300))):
        engine.add(number, random_filter(rng, world, rng.randrange(5)))
    events = [random_event(rng, world) for _ in range(70)]
    with tempfile.TemporaryDirectory() as folder:
        engine.match(events[0])
        engine.match_batch(events).pairs()
        texts = encoded(events)
        engine.match_json(texts[0])
        engine.match_json_lines(texts).pairs()
        engine.remove(0)
        engine.save(Path(folder, "engine"))
        restored = Engine.load(Path(folder, "engine"))
        restored.match(events[0])
        restored.add(0, random_filter(rng, world, 3))
        restored.match_batch(events).pairs()


def encoded(events: Iterable[Event]) -> list[str]:
    """Return events as JSON, without those that have no form in it."""
    texts = []
    for event in events:
        with suppress(JSONError):
            texts.append(encode_json(event))
    return texts


def match_simple_filters() -> None:
    """Use the quick path of single events, which takes only tests of values."""
    engine = Engine()
    engine.add_many(Subscription(n, f'text = "a{n}" and number < {n}') for n in range(50))
    engine.add("part", 'text contains "a"')
    engine.match_batch([{"text": "a1", "number": 0}])
    engine.match({"text": "a1", "number": 0})
    engine.match_json(b'{"text": "a\\u0031", "number": 0, "other": 1.5}')
    engine.match_json(b'{"text": ["a1", "b"], "number": 0}')


def compare(rng: Random) -> None:
    """Use a covering index in every way."""
    world = random_world(rng, typed=rng.random() < 0.5)
    index = CoveringIndex(schema=world.schema)
    filters = [random_filter(rng, world, rng.randrange(4)) for _ in range(COMPILED_FROM + 40)]
    index.add_many(enumerate(filters))
    for asked in filters[:20]:
        index.covering(asked)
        index.covered_by(asked)
        index.intersecting(asked)
    for number in range(20):
        index.remove(number)


def test_all_kernels_are_loaded_before_work() -> None:
    tests = Path(__file__).parents[1]
    # In a clone, PYTHONPATH says which tree is tested.
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    finished = subprocess.run(  # noqa: S603 - this file
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), *inherited])},
    )
    assert finished.stdout == "set()\n", finished.stdout + finished.stderr


if __name__ == "__main__":
    load_kernels()
    before = loaded()
    assert len(before) > 30
    for seed in range(WORLDS):
        work(Random(seed))
    match_simple_filters()
    compare(Random(0))
    print(loaded() - before)

"""Events: the distributions that the file asks for, the same for every way to draw them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from seeds import in_volume
from tamis.events import Schema, attribute
from tamis.events.arrow import batch_of_arrow
from tamis.workloads import Workload, shipped
from tamis.workloads.distributions import RandomStream
from tamis.workloads.event_columns import sampled

COUNT = 20_000


def column(declared: str, count: int = COUNT) -> list[object]:
    """Return the values of an attribute declared in this way."""
    workload = Workload(f'attributes.x = {{ {declared} }}\nrules.filter = "x is present"')
    return list(workload.events(0, count, seed=1).column("x").to_pylist())


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", shipped())
@pytest.mark.parametrize("density", [None, 0.3])
def test_an_event_does_not_depend_on_the_batch_it_is_drawn_in(
    name: str, density: float | None
) -> None:
    random = Random(name)
    workload = Workload.load(name)
    for _ in range(in_volume(2)):
        seed = random.getrandbits(70)
        first, middle, last = sorted(random.randrange(500) for _ in range(3))
        whole = workload.events(first, last, seed, density)
        parts = [
            workload.events(*ends, seed, density) for ends in ((first, middle), (middle, last))
        ]
        assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches([whole])
        assert whole.schema == workload.event_schema
        whole.validate(full=True)


def test_what_a_seed_gives_never_changes() -> None:
    # Results of experiments are compared over years: a change here is a change of all of them.
    event = Workload.load("market").events(1_000_000, 1_000_001, seed=7).to_pylist()[0]
    assert {name: value for name, value in event.items() if value is not None} == MARKET


MARKET = {
    "symbol": "BOINS",
    "exchange": "XNYS",
    "at": datetime(2026, 3, 2, 10, 2, 11, 497_000, tzinfo=UTC),
    "bid": 9.11,
    "spread": 0.06,
}


@pytest.mark.parametrize("name", shipped())
def test_events_fit_the_schema(name: str) -> None:
    workload = Workload.load(name)
    batch = batch_of_arrow(workload.events(0, 200, seed=1), workload.schema)
    assert not batch.errors
    assert len(batch) == 200


def test_another_attribute_changes_nothing_for_those_there_were() -> None:
    text = """
        attributes.x = { type = "int", range = [0, 99], present = 0.5 }
        rules.filter = "x = 1"
    """
    before = Workload(text).events(0, 99, seed=1)
    after = Workload('attributes.a = { type = "bool" }\n' + text).events(0, 99, seed=1)
    assert before.column("x") == after.column("x")


def test_bad_arguments_are_refused() -> None:
    workload = Workload.load("be-a")
    with pytest.raises(ValueError, match="not a range of numbers from 0 on"):
        workload.events(5, 4, seed=1)
    with pytest.raises(ValueError, match=r"density 1\.5 should lie between 0 and 1"):
        workload.events(0, 4, seed=1, density=1.5)


def test_a_stream_is_one_sequence_wherever_one_begins_to_read() -> None:
    for width in (1, 2, 3, 5, 64):
        stream = RandomStream(9, "x", width=width)
        whole = stream.rows(0, 50)
        for first in range(50):
            assert np.array_equal(stream.rows(first, 50), whole[first:])
    assert not np.array_equal(RandomStream(9, "x").rows(0, 5), RandomStream(9, "y").rows(0, 5))
    assert not np.array_equal(RandomStream(8, "x").rows(0, 5), RandomStream(9, "x").rows(0, 5))


# --- distributions ------------------------------------------------------------------------------


def test_ranges_are_drawn_evenly_up_to_both_ends() -> None:
    for declared, expected in {
        'type = "int", range = [3, 6]': [3, 4, 5, 6],
        'type = "int", range = [-2, 2], step = 2': [-2, 0, 2],
        'type = "float", range = [0, 0.3], step = 0.1': [0.0, 0.1, 0.2, 0.3],
        'type = "float", range = [-1.5, 0], step = 0.75': [-1.5, -0.75, 0.0],
        'type = "str", texts = ["a", "b\\n", "ü"]': ["a", "b\n", "ü"],
        'type = "bool"': [False, True],
    }.items():
        drawn = Counter(column(declared))
        assert sorted(drawn) == expected  # type: ignore[type-var]
        for count in drawn.values():
            assert count / COUNT == pytest.approx(1 / len(expected), abs=0.02)


def test_floats_without_a_step_have_full_precision() -> None:
    drawn = np.array(column('type = "float", range = [2, 3]'))
    assert len(np.unique(drawn)) == COUNT
    assert drawn.min() >= 2
    assert drawn.max() <= 3
    assert drawn.mean() == pytest.approx(2.5, abs=0.01)


def test_percentages_are_kept() -> None:
    drawn = Counter(column('type = "str", texts = { a = 70, b = 30 }'))
    assert drawn["a"] / COUNT == pytest.approx(0.7, abs=0.02)
    assert np.mean(np.array(column('type = "bool", true = 0.1'))) == pytest.approx(0.1, abs=0.01)


def test_zipf_is_zipf() -> None:
    weights = np.arange(1, 6.0) ** -1.5
    for declared in (
        'type = "int", range = [1, 5], zipf = 1.5',
        'type = "str", texts = ["1", "2", "3", "4", "5"], zipf = 1.5',
    ):
        drawn = Counter(int(str(value)) for value in column(declared))
        shares = np.array([drawn[n] for n in range(1, 6)]) / COUNT
        assert np.allclose(shares, weights / weights.sum(), atol=0.02)


def test_bells_have_their_middle_and_their_width() -> None:
    scale = 'type = "float", step = 0.01'
    bell = "normal = { mean = 100, deviation = 15 }"
    normal = np.array(column(f"{scale}, range = [0, 200], {bell}"))
    assert normal.mean() == pytest.approx(100, abs=0.5)
    assert normal.std() == pytest.approx(15, abs=0.5)
    bell = "lognormal = { median = 50, deviation = 0.7 }"
    logarithms = np.log(np.array(column(f"{scale}, range = [0.01, 9999], {bell}")))
    assert np.exp(np.median(logarithms)) == pytest.approx(50, rel=0.03)
    assert logarithms.std() == pytest.approx(0.7, abs=0.02)


def test_timestamps_lie_in_their_range() -> None:
    ends = "2026-01-01T00:00:00Z, 2026-01-01T00:00:01Z"
    drawn = Counter(column(f'type = "timestamp", range = [{ends}], step = 0.5'))
    moments = sorted(drawn)  # type: ignore[type-var]
    assert len(moments) == 3
    assert moments[1] == datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)


def test_texts_are_multiplied() -> None:
    workload = Workload("""
        values.who = { type = "str", texts = { A = 75, B = 25 } }
        attributes.x = { type = "str", texts = ["{who} {1..2}", "{?} {}"] }
        rules.filter = "x is present"
    """)
    drawn = Counter(workload.events(0, COUNT, seed=1).column("x").to_pylist())
    expected = {"A 1": 0.1875, "A 2": 0.1875, "B 1": 0.0625, "B 2": 0.0625, "{?} {}": 0.5}
    assert set(drawn) == set(expected)
    for text, share in expected.items():
        assert drawn[text] / COUNT == pytest.approx(share, abs=0.02)


# --- presence -----------------------------------------------------------------------------------

FORMS = """
rules.filter = "a = 1"

[attributes]
a = { type = "int", range = [0, 9] }
b = { type = "str", texts = ["x", "y"], present = 0.4 }
c = { type = "int", range = [1, 1], many = [1, 3], present = 0.5 }
"g0..g9" = { type = "int", range = [5, 5] }
h = { type = "bool" }

[[events]]
weight = 75
has = ["a", "b", "c"]

[[events]]
weight = 25
has = ["a"]
choose = [{ count = 3, of = ["g0..g9"] }, { count = 1, of = ["h"] }]
"""


def test_attributes_are_there_as_often_as_they_should_be() -> None:
    events = Workload(FORMS).events(0, COUNT, seed=3)
    shares = {name: 1 - events.column(name).null_count / COUNT for name in events.schema.names}
    expected = {"a": 1, "b": 0.75 * 0.4, "c": 0.75 * 0.5, "h": 0.25}
    expected |= {f"g{n}": 0.25 * 0.3 for n in range(10)}
    assert shares == pytest.approx(expected, abs=0.02)


def test_an_event_of_a_form_has_what_the_form_says() -> None:
    for event in Workload(FORMS).events(0, 2000, seed=3).to_pylist():
        chosen = [event[f"g{n}"] for n in range(10) if event[f"g{n}"] is not None]
        assert chosen in ([], [5, 5, 5])
        assert (event["h"] is not None) == bool(chosen)
        assert not (chosen and (event["b"] or event["c"]))


def test_several_values_are_as_many_as_they_should_be() -> None:
    lists = Workload(FORMS).events(0, COUNT, seed=3).column("c").drop_null().to_pylist()
    counts = Counter(len(values) for values in lists)
    assert set(counts) == {1, 2, 3}
    for count in counts.values():
        assert count / len(lists) == pytest.approx(1 / 3, abs=0.03)


def test_a_density_goes_before_what_the_file_says() -> None:
    events = Workload(FORMS).events(0, COUNT, seed=3, density=0.6)
    for name in events.schema.names:
        in_forms = {"a": 1, "b": 0.75, "c": 0.75}.get(name, 0.25)
        share = 1 - events.column(name).null_count / COUNT
        assert share == pytest.approx(0.6 * in_forms, abs=0.02)


def test_the_schema_knows_types_and_several_values() -> None:
    schema = Workload(FORMS).schema
    assert schema["c"] == attribute("int", many=True)
    assert list(schema) == ["a", "b", "c", *(f"g{n}" for n in range(10)), "h"]
    assert isinstance(schema, Schema)


@pytest.mark.parametrize(("width", "choices"), [(1, 1), (2, 5), (5, 5), (3, 4)])
def test_every_choice_of_some_is_equally_likely(width: int, choices: int) -> None:
    rows = RandomStream(1, "choices", width=width).rows(0, COUNT)
    found = Counter(frozenset(row) for row in sampled(rows, choices).tolist())
    assert all(len(row) == width for row in found)
    expected = COUNT / len(found)
    assert len(found) == len({frozenset(row) for row in found})
    assert max(abs(count - expected) for count in found.values()) < 6 * expected**0.5

"""Leaves in columns have the variables that each of them would have on its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import numpy as np
import pytest

from seeds import seeds
from strategies import random_atom, random_world
from tamis.diagrams.kernels import FREE, NONE
from tamis.diagrams.value_order import Breakpoint, Partition
from tamis.errors import FilterError
from tamis.events import Kind, Schema, attribute
from tamis.filters import Filter
from tamis.filters.atoms import Atom, Between, Compare, In
from tamis.matching.compile.leaves import AbsenceRule, Leaf, Predicate, Side, make_leaf
from tamis.matching.compile.variables import Variables
from tamis.matching.compile.vocabulary import Vocabulary

SCHEMAS = (
    None,
    Schema({"a": "int", "b": "float", "c": "int", "d": attribute("int", default=7)}),
)
INTEGERS = (0, 1, 2, 3, 5, 7, -1, -8, 2**53 - 1, 2**53, -(2**53), 2**60, 2**63 - 1, -(2**63))
NUMBERS = (*INTEGERS, 0.5, 2.0, -0.0, 1e300, float(2**53))


def random_numbers_atom(rng: Random) -> Filter:
    name = rng.choice("abcd")
    values = NUMBERS if rng.random() < 0.2 else INTEGERS[:8] if rng.random() < 0.7 else INTEGERS
    match rng.randrange(3):
        case 0:
            op = rng.choice(("=", "!=", "<", "<=", ">", ">="))
            return Compare(name, Kind.NUMBER, op, rng.choice(values))
        case 1:
            return Between(name, Kind.NUMBER, rng.choice(values), rng.choice(values))
        case _:
            some = rng.sample(values, rng.randrange(1, 5))
            return In(name, Kind.NUMBER, tuple(dict.fromkeys(some)))


def leaves_alone(vocabulary: Vocabulary, given: Iterable[tuple[Filter, AbsenceRule]]) -> list[Leaf]:
    """Return what each atom is on its own."""
    return [
        make_leaf(
            atom, rule, vocabulary.value_order(atom.attribute) if isinstance(atom, Atom) else None
        )
        for atom, rule in given
    ]


class PlainVariables:
    """Variables numbered leaf by leaf, without kernels."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        points: dict[str, set[Breakpoint]] = {}
        predicates: dict[str, dict[Predicate, None]] = {}
        for leaf in leaves:
            for side in (leaf.true, leaf.false):
                if leaf.attribute:
                    own = points.setdefault(leaf.attribute, set())
                    own.update(point for interval in side.intervals for point in interval)
                if side.predicate is not None:
                    predicates.setdefault(leaf.attribute, {})[side.predicate] = None
        if "" in predicates:
            points[""] = set()
        self.blocks: dict[str, tuple[Partition, int]] = {}
        self.predicates: dict[Predicate, int] = {}
        self.chains: list[int] = []
        for name, own in points.items():
            partition = Partition(own)
            self.blocks[name] = partition, len(self.chains)
            self.chains += [len(self.chains)] * len(partition.breakpoints)
            for predicate in predicates.get(name, ()):
                self.predicates[predicate] = len(self.chains)
                self.chains.append(FREE)

    def toggles(self, name: str, side: Side) -> tuple[bool, list[int]]:
        if side.predicate is not None and not side.negated:
            return True, [self.predicates[side.predicate]]
        if not name:
            return bool(side.intervals), []
        partition, first = self.blocks[name]
        ends = [partition.number(point) for interval in side.intervals for point in interval]
        inside = bool(ends) and ends[0] == 0
        return inside, [first + n - 1 for n in ends if 0 < n < partition.size]

    def guard(self, side: Side) -> int:
        return self.predicates[side.predicate] if side.predicate and side.negated else NONE


def assert_same(variables: Variables, leaves: Sequence[Leaf]) -> None:
    plain = PlainVariables(leaves)
    assert list(variables.blocks) == list(plain.blocks)
    for name, (partition, first) in plain.blocks.items():
        assert variables.blocks[name].first == first
        assert variables.blocks[name].partition.breakpoints == partition.breakpoints
    assert dict(variables.predicates) == plain.predicates
    assert variables.chains.tolist() == plain.chains
    found, names = variables.leaves, list(plain.blocks)
    assert found.starts.dtype == found.variables.dtype == found.guard.dtype == np.int32
    for number, leaf in enumerate(leaves):
        assert found.block[number] == (names.index(leaf.attribute) if leaf.attribute else NONE)
        for place, side in enumerate((leaf.true, leaf.false), start=2 * number):
            inside, toggles = plain.toggles(leaf.attribute, side)
            assert found.begins_inside[place] == inside
            own = found.variables[found.starts[place] : found.starts[place + 1]]
            assert own.tolist() == toggles
            assert found.guard[place] == plain.guard(side)


def fits(atom: Filter, schema: Schema | None) -> bool:
    try:
        return schema is None or atom.bind(schema) is not None
    except FilterError:
        return False


@pytest.mark.parametrize("seed", seeds(200, by_default=12))
def test_leaves_have_the_variables_that_they_have_alone(seed: int) -> None:
    rng = Random(seed)
    typed = rng.random() < 0.5
    world = random_world(rng, typed=typed)
    is_mixed = rng.random() < 0.5
    schema = world.schema if is_mixed else rng.choice(SCHEMAS)
    total = schema is not None and rng.random() < 0.3
    rules = [AbsenceRule.FALSE] if total else [AbsenceRule.UNKNOWN, AbsenceRule.DEFAULT]
    vocabulary = Vocabulary(schema, total=total)
    atoms = [
        random_atom(rng, world) if is_mixed and rng.random() < 0.7 else random_numbers_atom(rng)
        for _ in range(rng.choice((1, 10, 150)))
    ]
    atoms = [atom for atom in atoms if fits(atom, schema)]
    known: dict[int, tuple[Filter, AbsenceRule]] = {}
    for atom in atoms:
        rule = rng.choice(rules)
        bound = atom if schema is None else atom.bind(schema)
        number = vocabulary.leaf(atom, rule)
        known.setdefault(number, (bound, rule))
        assert vocabulary.leaf(bound, rule) == number
        assert str(vocabulary.atom_of(number)) == str(known[number][0])
        assert known[number] == (bound, rule)
    for _ in range(2):
        used = [number for number in sorted(known) if rng.random() < 0.8]
        constants = [0, 1] if rng.random() < 0.5 else []
        given = vocabulary.leaf_set(np.array([*constants, *used], np.int32))
        leaves = leaves_alone(vocabulary, [known[number] for number in used])
        whole = [shape.leaf for shape in given.shapes[: len(constants)]]
        assert_same(Variables.of(given), [*whole, *leaves])
        # What is kept of it says the same under other numbers.
        kept = vocabulary.some(np.array(used, np.int32))
        for number, old in enumerate(used, start=2):
            assert kept.atom_of(number) == vocabulary.atom_of(old)
            assert kept.leaf(*known[old]) == number
        vocabulary, known = kept, {n: known[old] for n, old in enumerate(used, start=2)}
    assert [vocabulary.saved().read(n - 2) for n in known] == list(known.values())

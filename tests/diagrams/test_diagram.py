"""The diagram itself: canonical on possible assignments, and equal to other packages' BDDs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from random import Random
from typing import Any

import pytest
from dd.autoref import BDD
from oxidd.bdd import BDDManager

from seeds import seeds
from tamis.diagrams.diagram import BudgetExceededError, Diagram, Node
from tamis.diagrams.kernels import FALSE, FREE, TRUE

# Two lines of three cuts and two free variables.
LINES = [0, 0, 0, FREE, 4, 4, 4, FREE]


def possible_assignments(lines: list[int]) -> Iterator[tuple[bool, ...]]:
    """Yield the assignments in which a true cut makes the later ones of its line true."""
    for bits in product((False, True), repeat=len(lines)):
        if all(
            bits[later]
            for cut in range(len(lines))
            for later in range(cut + 1, len(lines))
            if bits[cut] and lines[cut] == lines[later] != FREE
        ):
            yield bits


POSSIBLE = list(possible_assignments(LINES))


def values(diagram: Diagram, root: Node, assignments: Iterable[tuple[bool, ...]]) -> list[bool]:
    variable, low, high = diagram.nodes()
    found = []
    for bits in assignments:
        node = root
        while node > TRUE:
            node = (high if bits[variable[node]] else low)[node]
        found.append(node == TRUE)
    return found


def random_expression(rng: Random, variables: int, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.1:
        return rng.randrange(variables)
    op = rng.choice(("and", "or", "xor", "not"))
    count = 1 if op == "not" else 2
    return (op, *(random_expression(rng, variables, depth - 1) for _ in range(count)))


def build(expression: Any, literal: Callable[[int], Any], ops: dict[str, Any]) -> Any:
    if isinstance(expression, int):
        return literal(expression)
    op, *terms = expression
    return ops[op](*(build(term, literal, ops) for term in terms))


def ours(diagram: Diagram) -> dict[str, Any]:
    return {
        "and": diagram.both,
        "or": diagram.either,
        "xor": diagram.differ,
        "not": diagram.negate,
    }


PLAIN: dict[str, Any] = {
    "and": bool.__and__,
    "or": bool.__or__,
    "xor": bool.__xor__,
    "not": lambda a: not a,
}

THEIRS: dict[str, Any] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
}


@pytest.mark.parametrize("seed", seeds(3))
def test_functions_that_agree_on_possible_assignments_have_one_node(seed: int) -> None:
    rng = Random(seed)
    diagram = Diagram(LINES, budget=10**6)
    node_of: dict[tuple[bool, ...], Node] = {}
    for _ in range(1500):
        expression = random_expression(rng, len(LINES), rng.randrange(1, 6))
        node = build(expression, diagram.literal, ours(diagram))
        truths = [build(expression, bits.__getitem__, PLAIN) for bits in POSSIBLE]
        assert values(diagram, node, POSSIBLE) == truths
        assert node_of.setdefault(tuple(truths), node) == node
    diagram.assert_consistent()
    assert len(node_of) > 400


@pytest.mark.parametrize("seed", seeds(3))
def test_over_free_variables_it_is_the_reduced_bdd_of_other_packages(seed: int) -> None:
    rng = Random(seed)
    names = [f"v{number}" for number in range(8)]
    dd = BDD()
    dd.configure(reordering=False)
    dd.declare(*names)
    manager = BDDManager(100_000, 100_000, 1)
    manager.add_vars(len(names))
    ox = [manager.var(number) for number in range(len(names))]
    for _ in range(200):
        expression = random_expression(rng, len(names), 5)
        diagram = Diagram([FREE] * len(names), budget=10**6)
        node = build(expression, diagram.literal, ours(diagram))
        xor = {"xor": lambda a, b: dd.apply("xor", a, b)}
        theirs = build(expression, lambda v: dd.var(names[v]), THEIRS | xor)
        models = sum(values(diagram, node, product((False, True), repeat=8)))
        assert models == dd.count(theirs, nvars=8)
        # Like ours, oxidd's has no complemented edges; it counts the terminals as well.
        others = build(expression, ox.__getitem__, THEIRS)
        assert len(diagram.reachable(node)) == others.node_count() - _terminals(diagram, node)


def _terminals(diagram: Diagram, root: Node) -> int:
    if root <= TRUE:
        return 1
    inner, (_, lows, highs) = diagram.reachable(root), diagram.nodes()
    return len({c for n in inner for c in (lows[n], highs[n]) if c <= TRUE})


def test_paths_lead_to_true_and_cover_it() -> None:
    rng = Random(5)
    diagram = Diagram(LINES, budget=10**6)
    for _ in range(50):
        root = build(random_expression(rng, len(LINES), 4), diagram.literal, ours(diagram))
        paths = list(diagram.paths(root))
        truths = values(diagram, root, POSSIBLE)
        for bits, truth in zip(POSSIBLE, truths, strict=True):
            taken = [all(bits[v] is a for v, a in path.items()) for path in paths]
            assert sum(taken) == truth


def test_a_diagram_deeper_than_pythons_stack_is_no_matter() -> None:
    count = 20_000
    diagram = Diagram([FREE] * count, budget=10**6)
    conjunction = diagram.all([diagram.literal(v) for v in range(count)])
    assert len(diagram.reachable(conjunction)) == count
    assert diagram.both(conjunction, diagram.negate(conjunction)) == FALSE


def test_work_past_the_budget_stops() -> None:
    diagram = Diagram([FREE] * 40, budget=50)
    with pytest.raises(BudgetExceededError, match="budget"):
        diagram.all(
            [diagram.differ(diagram.literal(v), diagram.literal(v + 20)) for v in range(20)]
        )

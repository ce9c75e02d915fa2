"""Every pair of Siena's operators, on many small constants, against brute force.

The values tried stand for all there are. Between two neighbouring integers lies a half, and some
numbers lie outside of all constants. Texts are tried up to twice the length of the longest constant
over an alphabet that has, beside the letters of the constants, one letter below them and one above:
whatever satisfies one predicate and satisfies, or not, another can be shortened and its other
letters replaced until it is one of these.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product
from random import Random
from typing import Any, NamedTuple

import pytest

from tamis.languages.siena import covers, intersects

ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
TEXT: dict[str, Callable[[str, str], bool]] = {
    **ORDER,
    ">*": str.startswith,
    "*<": str.endswith,
    "*": operator.contains,
}
BITS: dict[str, Callable[[int, int], bool]] = {
    "all-bits": lambda held, mask: held & mask == mask,
    "any-bit": lambda held, mask: held & mask != 0,
}


class Predicate(NamedTuple):
    """An operator with its constant, and which values of the domain satisfy it, as bits."""

    kind: str
    op: str
    constant: Any
    satisfied: int


def words(letters: str, longest: int) -> list[str]:
    return ["".join(w) for n in range(longest + 1) for w in product(letters, repeat=n)]


NUMBERS = [n / 2 if n % 2 else n // 2 for n in range(-4, 15)]


def all_predicates(longest: int) -> list[Predicate]:
    """Return every operator with every constant, those of text up to a length."""
    letters = words("Aabc", max(5, 2 * longest))
    domains: dict[str, list[Any]] = {
        "number": NUMBERS,
        "text": letters,
        "boolean": [False, True],
        "bits": list(range(16)),
    }
    equality = {op: ORDER[op] for op in ("=", "!=")}
    tables: dict[str, tuple[dict[str, Callable[..., bool]], list[Any]]] = {
        "number": (ORDER, list(range(5))),
        "text": (TEXT, words("ab", longest)),
        "boolean": (equality, [False, True]),
        "bits": (BITS, list(range(8))),
    }
    predicates, below = [], 0
    for kind, (ops, constants) in tables.items():
        # The bits of one kind lie above those of the kinds before it: no two kinds meet.
        for (op, holds), constant in product(ops.items(), constants):
            satisfied = as_bits(holds(value, constant) for value in domains[kind]) << below
            predicates.append(Predicate(kind, op, constant, satisfied))
        below += len(domains[kind])
    return [*predicates, Predicate("any", "any", None, (1 << below) - 1)]


def as_bits(truths: Iterable[bool]) -> int:
    return int("".join("1" if truth else "0" for truth in truths)[::-1], 2)


def compare_all(predicates: list[Predicate], share: float = 1.0) -> Counter[str]:
    """Compare all pairs, or a random share of them."""
    tally: Counter[str] = Counter()
    pairs, rng = product(predicates, repeat=2), Random(7)
    for one, other in (pair for pair in pairs if rng.random() < share):
        shown = f"({one.op} {one.constant!r}) and ({other.op} {other.constant!r})"
        exact = "text" not in (one.kind, other.kind)
        for what, answer, expected, safe in (
            (
                "covers",
                covers(one.op, one.constant, other.op, other.constant),
                other.satisfied & ~one.satisfied == 0,
                False,
            ),
            (
                "intersects",
                intersects(one.op, one.constant, other.op, other.constant),
                one.satisfied & other.satisfied != 0,
                True,
            ),
        ):
            tally[what] += 1
            if answer.exact:
                assert bool(answer) is expected, f"wrong: {what} of {shown}: {answer}"
            else:
                assert not exact, f"an exact answer was promised: {what} of {shown}: {answer}"
                assert bool(answer) is safe, f"unsafe: {what} of {shown}: {answer}"
                tally[f"not exact {what}"] += 1
                tally["to be safe, but wrong"] += bool(answer) is not expected
    return tally


def show(tally: Counter[str]) -> None:
    for what in ("covers", "intersects"):
        inexact, count = tally[f"not exact {what}"], tally[what]
        print(f"{what}: {inexact:,} of {count:,} answers safe, not exact ({inexact / count:.2%})")
    print(f"of the inexact answers, {tally['to be safe, but wrong']:,} are not the true one")


def test_no_answer_about_a_pair_of_operators_is_wrong() -> None:
    show(compare_all(all_predicates(longest=2), share=0.2))


@pytest.mark.slow
def test_no_answer_about_any_pair_of_operators_is_wrong() -> None:
    show(compare_all(all_predicates(longest=2)))


@pytest.mark.slow
def test_no_answer_about_a_pair_of_operators_on_longer_texts_is_wrong() -> None:
    show(compare_all(all_predicates(longest=3)))


def test_the_brute_force_would_see_a_wrong_answer() -> None:
    named = {f"{p.op} {p.constant!r}": p.satisfied for p in all_predicates(longest=2)}
    assert named["< 3"] & ~named["<= 2"]
    assert named["> 'a'"] & named["< 'aa'"]
    assert named[">* 'ab'"] & named["*< 'ba'"] & named["* 'bb'"]
    assert named["any None"] & ~named["!= 'a'"]
    assert not named["= True"] & named["= 1"]

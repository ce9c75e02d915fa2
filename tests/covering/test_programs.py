"""Filters as programs: what is found out about one before it meets others."""

from __future__ import annotations

from tamis.covering.compiled import ComparedProgram, CompiledFilters
from tamis.covering.cubes import Geometry
from tamis.diagrams import Space
from tamis.filters import Mode
from tamis.languages import parse


def compiled(text: str) -> tuple[CompiledFilters, ComparedProgram | None]:
    filters = CompiledFilters(Geometry(Mode.SQL, None, many=False))
    return filters, filters.program(parse(text))


def test_a_contradiction_behind_many_alternatives_is_found() -> None:
    alternatives = " and ".join(f"(a{n} = 1 or b{n} > 2 or c{n} in (3, 4))" for n in range(8))
    text = f"{alternatives} and late <= 35 and late = 43"
    assert Space().is_never(parse(text)).yes
    _, program = compiled(text)
    assert program is not None
    assert program.is_never


def test_cubes_around_a_conjunction_have_all_of_its_tests() -> None:
    filters, program = compiled("a = 1 and not (b = 2 and c = 3) and d > 4 and (e = 5 or f = 6)")
    assert program is not None
    [cube] = filters.outer(program) or ()
    assert cube.positions.keys() == {"a", "d"}


def test_cubes_around_alternatives_have_what_both_require() -> None:
    filters, program = compiled("(a = 1 or b = 2) and c > 3 and c < 5 and d < 5")
    assert program is not None
    found = filters.outer(program) or ()
    assert all({"c", "d"} <= cube.positions.keys() for cube in found)


def test_a_negated_conjunction_requires_none_of_its_tests() -> None:
    filters, program = compiled("not (a = 1 and b = 2)")
    assert program is not None
    found = [sorted(cube.positions) for cube in filters.outer(program) or ()]
    assert sorted(found) == [["a"], ["b"]]

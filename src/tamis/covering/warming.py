"""Load the kernels of a covering index before they are needed."""

from __future__ import annotations

from typing import Final

from tamis.covering.compiled import CompiledFilters
from tamis.covering.cubes import Geometry
from tamis.covering.filter_sets import FilterSet
from tamis.filters import Filter, Mode, attr

_FILTERS: Final[tuple[Filter, ...]] = (
    attr("a") < 5,
    (attr("a") < 4) & (attr("b") == "x"),
    (attr("a") < 9) | ~(attr("c") > 2),
)


def use_covering_kernels() -> None:
    """Use each kernel once: the first process of a machine compiles them, others load them."""
    compiled = CompiledFilters(Geometry(Mode.SQL, None, many=False))
    every = FilterSet()
    for number, filter_ in enumerate(_FILTERS):
        program = compiled.program(filter_)
        if program is not None:
            compiled.add(number, program)
            every.add(number)
    asked = compiled.program(_FILTERS[0])
    if asked is not None:
        list(compiled.wider(asked, every, None))
        compiled.narrower(asked, every, None)
        compiled.meeting(asked, every)
        compiled.covers(asked.words, asked.words)
    compiled.remove(0)
    compiled.compact()

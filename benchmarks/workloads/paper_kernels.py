"""Drawing filters by a grammar, a million in a second."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.forms import AND, NOT, OR
from tamis.jit import kernel

# The tokens of `forms.connective`, which a kernel cannot call.
_AND_2, _OR_2, _NOT_1 = -1 - (AND | 2 << 2), -1 - (OR | 2 << 2), -1 - (NOT | 1 << 2)


class Grammar(NamedTuple):
    """Probabilities of the productions."""

    groups: NDArray[np.float64]
    """Cumulated, for one group, two, three …"""
    terms: NDArray[np.float64]
    conjunction: float
    negated_group: float
    negated_atom: float


@kernel
def draw_programs(
    rng: np.random.Generator,
    grammar: Grammar,
    atoms: int,
    code: NDArray[np.int32],
    start: NDArray[np.int64],
) -> None:
    """Fill in postfix programs; the atoms of one are drawn independently."""
    end = 0
    for program in range(len(start) - 1):
        groups = 1 + np.searchsorted(grammar.groups, rng.random())
        for group in range(groups):
            terms = 1 + np.searchsorted(grammar.terms, rng.random())
            for term in range(terms):
                code[end] = int(rng.random() * atoms)
                end += 1
                if rng.random() < grammar.negated_atom:
                    code[end] = _NOT_1
                    end += 1
                if term > 0:
                    code[end] = _AND_2 if rng.random() < grammar.conjunction else _OR_2
                    end += 1
            # A group of one is an atom, which has had its turn.
            if terms > 1 and rng.random() < grammar.negated_group:
                code[end] = _NOT_1
                end += 1
            if group > 0:
                code[end] = _AND_2 if rng.random() < grammar.conjunction else _OR_2
                end += 1
        start[program + 1] = end

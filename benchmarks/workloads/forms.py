"""Subscriptions and events as the flat arrays that the baselines read.

A subscription is a postfix program. A token that is not negative pushes the truth of that
predicate; a negative token is a connective with its number of operands.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

AND: Final = 0
OR: Final = 1
XOR: Final = 2
NOT: Final = 3

EQ, NE, LT, LE, GT, GE, BETWEEN, IN, TEXT = range(9)
COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")


def connective(op: int, operands: int) -> int:
    """Return the token of a connective; the kernels decode it from `-1 - token`.

    >>> token = connective(OR, 3)
    >>> (-1 - token) & 3 == OR, (-1 - token) >> 2
    (True, 3)
    """
    return -1 - (op | operands << 2)


class Predicates(NamedTuple):
    """Tests of one attribute each, numbered by position."""

    attribute: NDArray[np.int32]
    op: NDArray[np.int8]
    low: NDArray[np.float64]
    """The constant; of BETWEEN the lower end."""
    high: NDArray[np.float64]
    """Of BETWEEN the upper end; of TEXT the row of `texts`."""
    member_start: NDArray[np.int32]
    """Where the constants of an IN begin in `members`; one entry more than predicates."""
    members: NDArray[np.float64]
    texts: NDArray[np.bool_]
    """The result of each text test for every text in events: looked up, not computed."""


class Programs(NamedTuple):
    """Subscriptions as postfix programs, one after the other."""

    code: NDArray[np.int32]
    start: NDArray[np.int64]
    """One entry more than programs."""

    def __len__(self) -> int:
        return len(self.start) - 1


class Rows(NamedTuple):
    """Events as the attributes they have, without absent ones."""

    start: NDArray[np.int64]
    """One entry more than events."""
    attribute: NDArray[np.int32]
    value: NDArray[np.float64]
    """Numbers as such, texts by their number."""

    def part(self, first: int, last: int) -> Rows:
        """Return some of the events."""
        start = self.start[first : last + 1]
        cells = slice(start[0], start[-1])
        return Rows(start - start[0], self.attribute[cells], self.value[cells])


def predicates(
    attribute: NDArray[np.int32],
    op: NDArray[np.int8],
    low: NDArray[np.float64],
    high: NDArray[np.float64] | None = None,
) -> Predicates:
    """Return predicates without lists of constants and without texts."""
    return Predicates(
        attribute,
        op,
        low,
        low if high is None else high,
        member_start=np.zeros(len(op) + 1, np.int32),
        members=np.zeros(0, np.float64),
        texts=np.zeros((0, 0), np.bool_),
    )

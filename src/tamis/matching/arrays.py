"""Lists of programs and of regions as flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.matching.row_kernels import Regions, number_regions
from tamis.matching.variables import Variables


class Programs(NamedTuple):
    """Filters in postfix, one after the other, over the leaves of one vocabulary."""

    codes: NDArray[np.int32]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, programs: Sequence[NDArray[np.int32]]) -> Programs:
        """Put programs one after the other."""
        starts = np.zeros(len(programs) + 1, np.int64)
        np.cumsum([len(program) for program in programs], out=starts[1:])
        return cls(np.concatenate([np.empty(0, np.int32), *programs]), starts)

    def renumbered(self) -> tuple[NDArray[np.int32], Programs]:
        """Return the leaves in use, and the programs with the leaves numbered among those."""
        is_leaf = self.codes >= 0
        used, local = np.unique(self.codes[is_leaf], return_inverse=True)
        codes = self.codes.copy()
        codes[is_leaf] = local
        return used, Programs(codes, self.starts)

    def some(self, numbers: NDArray[np.int32]) -> Programs:
        """Return the programs of these numbers."""
        if len(numbers) == len(self.starts) - 1:
            return self
        starts, taken = gathered(self.starts, numbers)
        return Programs(self.codes[taken], starts)

    def part(self, first: int, last: int) -> Programs:
        """Return some of the programs."""
        starts = self.starts[first : last + 1]
        return Programs(self.codes[starts[0] : starts[-1]], starts - starts[0])

    def program(self, number: int) -> NDArray[np.int32]:
        """Return the codes of one filter."""
        return self.codes[self.starts[number] : self.starts[number + 1]]

    @property
    def longest(self) -> int:
        """Return the length of the longest program, at least 1."""
        return int(np.diff(self.starts).max(initial=1))


class RegionList(NamedTuple):
    """Regions as they were met, in terms of the variables of all attributes."""

    starts: NDArray[np.int64]
    begins: NDArray[np.bool_]
    cuts: NDArray[np.int32]
    guard: NDArray[np.int32]

    @classmethod
    def joined(cls, parts: Sequence[RegionList]) -> RegionList:
        """Put lists one after the other."""
        lengths = [np.diff(part.starts) for part in parts]
        return cls(
            np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths])),
            np.concatenate([np.empty(0, np.bool_), *(part.begins for part in parts)]),
            np.concatenate([np.empty(0, np.int32), *(part.cuts for part in parts)]),
            np.concatenate([np.empty(0, np.int32), *(part.guard for part in parts)]),
        )

    def by_attribute(self, variables: Variables) -> tuple[Regions, NDArray[np.int32]]:
        """Return the different regions, attribute by attribute, and which each of these is."""
        count = len(self.begins)
        firsts, numbers = np.empty(count, np.int32), np.empty(count, np.int32)
        table = np.zeros(1 << (2 * count + 1).bit_length(), np.int32)
        firsts = firsts[: number_regions(*self, table, firsts, numbers)]
        first = np.append(variables.first, len(variables)).astype(np.int32)
        block = self._blocks(firsts, first)
        order = np.argsort(block, kind="stable")
        firsts, block = firsts[order], block[order]
        starts, taken = gathered(self.starts, firsts)
        base = np.append(first[:-1], 0)[block]
        guard = self.guard[firsts]
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        regions = Regions(
            of_block=np.searchsorted(block, np.arange(len(first) + 1)).astype(np.int32),
            starts=starts,
            begins=self.begins[firsts],
            cuts=self.cuts[taken] - np.repeat(base, np.diff(starts)),
            guard=np.where(guard < 0, guard, guard - base),
        )
        return regions, place[numbers]

    def _blocks(self, chosen: NDArray[np.int32], first: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the attributes of some regions; one past the last for constants."""
        block = np.full(len(chosen), len(first) - 1, np.int64)
        varies = self.starts[chosen + 1] > self.starts[chosen]
        some = np.append(self.cuts, 0)[np.minimum(self.starts[chosen], len(self.cuts))]
        some = np.where(varies, some, self.guard[chosen])
        varies |= self.guard[chosen] >= 0
        block[varies] = np.searchsorted(first, some[varies], side="right") - 1
        return block


def gathered(
    starts: NDArray[np.integer], rows: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the parts of some rows begin once they stand together, and where they stood."""
    first, last = starts[rows], starts[rows + 1]
    together = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(last - first, out=together[1:])
    return together, np.repeat(first - together[:-1], last - first) + np.arange(together[-1])

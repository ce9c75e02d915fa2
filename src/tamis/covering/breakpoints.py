"""Breakpoints by number, with labels that stand in their order: kernels compare labels.

A new breakpoint gets a label between those of its neighbours; where there is no room left, all
breakpoints of its attribute get new labels. Numbers stay, so nothing else changes.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.covering.program_kernels import BEGIN_POINT, END_POINT
from tamis.diagrams.value_order import BEGIN, END, Breakpoint

LAST_LABEL: Final = 1 << 62
# So that ascending values, such as times, leave room for more.
MAX_STEP: Final = 1 << 40
FIRST_CAPACITY: Final = 64


class BreakpointNumbers:
    """The attributes of many filters, and their breakpoints.

    >>> points = BreakpointNumbers()
    >>> price = points.attribute("price")
    >>> five, three = points.number(price, (3, 5)), points.number(price, (3, 3))
    >>> bool(points.labels[three] < points.labels[five]), points.breakpoint(five)
    (True, (3, 5))
    """

    def __init__(self) -> None:
        self.labels: NDArray[np.int64] = np.zeros(FIRST_CAPACITY, np.int64)
        self.labels[END_POINT] = LAST_LABEL
        self.attribute_of: NDArray[np.int32] = np.zeros(FIRST_CAPACITY, np.int32)
        self._points: Final[list[Breakpoint]] = [BEGIN, END]
        self._attributes: Final[dict[str, int]] = {}
        # Attribute 0 is none.
        self._names: Final[list[str]] = [""]
        self._numbers: Final[list[dict[Breakpoint, int]]] = [{}]
        self._ordered: Final[list[list[Breakpoint]]] = [[]]

    def __len__(self) -> int:
        return len(self._points)

    @property
    def attribute_count(self) -> int:
        """Return how many attributes there are, with that which is none."""
        return len(self._names)

    def attribute(self, name: str) -> int:
        """Return the number of an attribute."""
        number = self._attributes.get(name)
        if number is None:
            number = self._attributes[name] = len(self._names)
            self._names.append(name)
            self._numbers.append({BEGIN: BEGIN_POINT, END: END_POINT})
            self._ordered.append([])
        return number

    def name(self, attribute: int) -> str:
        """Return the name of an attribute."""
        return self._names[attribute]

    def breakpoint(self, number: int) -> Breakpoint:
        """Return the breakpoint with a number."""
        return self._points[number]

    def number(self, attribute: int, point: Breakpoint) -> int:
        """Return the number of an attribute's breakpoint."""
        number = self._numbers[attribute].get(point)
        return self._add(attribute, point) if number is None else number

    def _add(self, attribute: int, point: Breakpoint) -> int:
        number = len(self._points)
        if number == len(self.labels):
            self.labels = np.concatenate((self.labels, np.zeros(number, np.int64)))
            self.attribute_of = np.concatenate((self.attribute_of, np.zeros(number, np.int32)))
        numbers, ordered = self._numbers[attribute], self._ordered[attribute]
        place = bisect_left(ordered, point)
        low = int(self.labels[numbers[ordered[place - 1]]]) if place else 0
        high = int(self.labels[numbers[ordered[place]]]) if place < len(ordered) else LAST_LABEL
        self._points.append(point)
        self.attribute_of[number] = attribute
        ordered.insert(place, point)
        numbers[point] = number
        step = min((high - low) // 2, MAX_STEP)
        if step:
            self.labels[number] = low + step
        else:
            gap = LAST_LABEL // (len(ordered) + 1)
            every = np.array([numbers[one] for one in ordered], np.int64)
            self.labels[every] = np.arange(1, len(ordered) + 1, dtype=np.int64) * gap
        return number

    def kept(self, points: NDArray[np.int32], attributes: NDArray[np.int32]) -> BreakpointNumbers:
        """Return some of the breakpoints with new numbers, and write these over the marks."""
        found = BreakpointNumbers()
        points[[BEGIN_POINT, END_POINT]] = BEGIN_POINT, END_POINT
        for attribute in np.flatnonzero(attributes).tolist():
            new = found.attribute(self._names[attribute])
            attributes[attribute] = new
            numbers = self._numbers[attribute]
            for point in self._ordered[attribute]:
                number = numbers[point]
                if points[number]:
                    points[number] = found.number(new, point)
        return found

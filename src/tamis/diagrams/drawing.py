"""The layout of a sketch: layers with few crossings, and edges as smooth curves.

The four steps of Sugiyama's layered drawing: assign layers (an attribute is a band of them), add a
point in every layer that an edge crosses, order each layer by the mean position of the neighbours,
and move boxes as close to their neighbours as the others permit.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from tamis.diagrams.sketch import NO, YES, Sketch

CHARACTER_WIDTH: Final = 7.3
BOX_HEIGHT: Final = 28.0
LAYER_GAP: Final = 38.0
BAND_GAP: Final = 14.0
SIDE_GAP: Final = 26.0
MARGIN: Final = 16.0
MAX_CHARACTERS: Final = 46
ORDERING_ROUNDS: Final = 24

# A box or a pill by its number in the sketch, a point on an edge by the edge and its layer.
Place = tuple[str, int, int]
Edge = tuple[Place, Place]


class Spot(NamedTuple):
    """A box with its centre and size."""

    x: float
    y: float
    width: float
    height: float


class Curve(NamedTuple):
    """An edge: points from the bottom of one box to the top of another, or a stub for no match."""

    points: Sequence[tuple[float, float]]
    answer: str
    """'yes', 'no', or 'root'."""
    is_stub: bool = False


class Drawing(NamedTuple):
    """All parts of the picture with their positions."""

    width: float
    height: float
    bands: Sequence[tuple[str, float, float]]
    """The name of each attribute, and the top and bottom of its band."""
    boxes: Mapping[int, Spot]
    pills: Mapping[int, Spot]
    """The labels above each root."""
    match: Spot | None
    curves: Sequence[Curve]


def shortened_in_box(text: str) -> str:
    """Return a text shortened to fit into a box."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def draw(sketch: Sketch) -> Drawing:
    """Lay out a sketch."""
    return _LayeredLayout(sketch).drawing()


def root_label(names: Sequence[str]) -> str:
    """Return the label above a root."""
    return shortened_in_box(", ".join(names))


class _LayeredLayout:
    def __init__(self, sketch: Sketch) -> None:
        self._sketch = sketch
        self._layer_of = layers(sketch)
        self._links: list[tuple[Place, Place]] = []
        self._paths: list[tuple[list[Place], str]] = []
        self._stubs: list[tuple[Place, str]] = []
        self._rows: list[list[Place]] = []
        self._connect()
        self._order()
        self._x: dict[Place, float] = {}
        self._settle()
        self._y = self._heights()

    # --- layers and edges --------------------------------------------------------------------

    def _connect(self) -> None:
        for root in self._sketch.roots:
            self._link(("root", root, 0), root, "root")
        for number, box in self._sketch.boxes.items():
            self._link(("box", number, 0), box.no, "no")
            self._link(("box", number, 0), box.yes, "yes")
        depth = max((self._layer(path[-1]) for path, _ in self._paths), default=0)
        rows: list[dict[Place, None]] = [{} for _ in range(depth + 1)]
        for root in self._sketch.roots:
            rows[0]["root", root, 0] = None
        for path, _ in self._paths:
            for place in path:
                rows[self._layer(place)][place] = None
        for number in self._sketch.boxes:
            rows[self._layer_of[number]]["box", number, 0] = None
        self._rows = [list(row) for row in rows]

    def _link(self, start: Place, target: int, answer: str) -> None:
        if target == NO:
            self._stubs.append((start, answer))
            self._paths.append(([start], answer))
            return
        end: Place = ("box", target, 0)
        first, last = self._layer(start), self._layer(end)
        edge = len(self._paths)
        between: list[Place] = [("point", edge, layer) for layer in range(first + 1, last)]
        path = [start, *between, end]
        self._paths.append((path, answer))
        self._links += pairwise(path)

    def _layer(self, place: Place) -> int:
        sort, number, layer = place
        if sort == "root":
            return 0
        return layer if sort == "point" else self._layer_of[number]

    # --- order -------------------------------------------------------------------------------

    def _order(self) -> None:
        """Sort every layer by its neighbours' positions, and keep the best order."""
        above = _neighbours((low, high) for high, low in self._links)
        below = _neighbours(self._links)
        best, fewest = [list(row) for row in self._rows], self._crossings()
        for sweep in range(ORDERING_ROUNDS):
            rows = self._rows if sweep % 2 == 0 else self._rows[::-1]
            near = above if sweep % 2 == 0 else below
            for previous, row in pairwise(rows):
                at = {place: number for number, place in enumerate(previous)}
                means = {
                    place: _mean([at[n] for n in near.get(place, ()) if n in at], number)
                    for number, place in enumerate(row)
                }
                row.sort(key=means.__getitem__)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self._rows], crossings
        self._rows = best

    def _crossings(self) -> int:
        at = {place: number for row in self._rows for number, place in enumerate(row)}
        by_layer: dict[int, list[tuple[int, int]]] = {}
        for high, low in self._links:
            by_layer.setdefault(self._layer(high), []).append((at[high], at[low]))
        return sum(map(_inversions, by_layer.values()))

    # --- coordinates -------------------------------------------------------------------------

    def _width(self, place: Place) -> float:
        sort, number, _ = place
        if sort == "point":
            return 4.0
        if sort == "root":
            return 22 + CHARACTER_WIDTH * len(root_label(self._sketch.roots[number]))
        if number == YES:
            return 76.0
        return 22 + CHARACTER_WIDTH * len(shortened_in_box(self._sketch.boxes[number].question))

    def _settle(self) -> None:
        """Move every box towards the mean of its neighbours, as far as the others permit."""
        near = _neighbours([*self._links, *((low, high) for high, low in self._links)])
        for row in self._rows:
            self._x |= self._apart(row, [0.0] * len(row))
        for _ in range(ORDERING_ROUNDS * 2):
            for row in (*self._rows, *self._rows[::-1]):
                self._x |= self._apart(row, [self._drawn_to(p, near.get(p, ())) for p in row])
        left = min((x - self._width(place) / 2 for place, x in self._x.items()), default=0.0)
        shift = MARGIN + self._label_room() - left
        self._x = {place: x + shift for place, x in self._x.items()}

    def _drawn_to(self, place: Place, near: Sequence[Place]) -> float:
        """Return the mean position of the neighbours; long edges weigh more, to become straight."""
        weights = [4 if place[0] == n[0] == "point" else 1 for n in near]
        if not weights:
            return self._x[place]
        return sum(w * self._x[n] for w, n in zip(weights, near, strict=True)) / sum(weights)

    def _label_room(self) -> float:
        return 14 + CHARACTER_WIDTH * max(
            (len(shortened_in_box(b)) for b in self._sketch.bands), default=0
        )

    def _apart(self, row: Sequence[Place], wanted: Sequence[float]) -> dict[Place, float]:
        """Return positions in the row's order, close to the wanted ones and without overlaps."""
        if not row:
            return {}
        gaps = [
            (self._width(a) + self._width(b)) / 2
            + SIDE_GAP * (1 if a[0] == b[0] != "point" else 0.6)
            for a, b in pairwise(row)
        ]
        pushed_right, pushed_left = list(wanted), list(wanted)
        for at, gap in enumerate(gaps, start=1):
            pushed_right[at] = max(wanted[at], pushed_right[at - 1] + gap)
        for at in range(len(row) - 2, -1, -1):
            pushed_left[at] = min(wanted[at], pushed_left[at + 1] - gaps[at])
        return {
            place: (a + b) / 2 for place, a, b in zip(row, pushed_right, pushed_left, strict=True)
        }

    def _heights(self) -> list[float]:
        """Return the height of every layer, with extra space between attributes."""
        band_of = {self._layer_of[n]: box.band for n, box in self._sketch.boxes.items()}
        heights, y = [], MARGIN + BOX_HEIGHT / 2
        for layer in range(len(self._rows)):
            if layer and band_of.get(layer) != band_of.get(layer - 1):
                y += BAND_GAP
            heights.append(y)
            y += BOX_HEIGHT + LAYER_GAP
        return heights

    # --- result ------------------------------------------------------------------------------

    def drawing(self) -> Drawing:
        spots = {
            place: Spot(self._x[place], self._y[self._layer(place)], self._width(place), BOX_HEIGHT)
            for row in self._rows
            for place in row
            if place[0] != "point"
        }
        right = max((spot.x + spot.width / 2 for spot in spots.values()), default=0.0)
        right = max([right, *self._x.values()])
        return Drawing(
            width=right + MARGIN + 12,
            height=self._y[-1] + BOX_HEIGHT / 2 + MARGIN,
            bands=self._bands(),
            boxes={n: spot for (sort, n, _), spot in spots.items() if sort == "box" and n != YES},
            pills={n: spot for (sort, n, _), spot in spots.items() if sort == "root"},
            match=spots.get(("box", YES, 0)),
            curves=[*self._curves(spots), *self._stub_curves(spots)],
        )

    def _bands(self) -> list[tuple[str, float, float]]:
        found = []
        for band in self._sketch.bands:
            layers = [self._layer_of[n] for n, b in self._sketch.boxes.items() if b.band == band]
            top, bottom = self._y[min(layers)], self._y[max(layers)]
            found.append((band, top - BOX_HEIGHT / 2 - 12, bottom + BOX_HEIGHT / 2 + 20))
        return found

    def _curves(self, spots: Mapping[Place, Spot]) -> list[Curve]:
        curves = []
        for path, answer in self._paths:
            if len(path) == 1:
                continue
            start, end = spots[path[0]], spots[path[-1]]
            points = [(start.x + self._port(path[0], answer), start.y + start.height / 2)]
            points += [(self._x[place], self._y[self._layer(place)]) for place in path[1:-1]]
            points.append(
                (end.x + _toward(points[-1][0] - end.x, end.width), end.y - end.height / 2)
            )
            curves.append(Curve(points, answer))
        return curves

    def _stub_curves(self, spots: Mapping[Place, Spot]) -> list[Curve]:
        curves = []
        for place, answer in self._stubs:
            spot = spots[place]
            x, y = spot.x + self._port(place, answer), spot.y + spot.height / 2
            curves.append(Curve([(x, y), (x, y + 13)], answer, is_stub=True))
        return curves

    def _port(self, place: Place, answer: str) -> float:
        """Return where an edge leaves its box: `no` on the left, unless it leads further right."""
        sort, number, _ = place
        if sort == "root":
            return 0.0
        aside = min(20.0, self._width(place) / 4)
        left = self._heading(number, "no") <= self._heading(number, "yes")
        return -aside if (answer == "no") == left else aside

    def _heading(self, number: int, answer: str) -> float:
        """Return the first target of an edge; a stub points away from the other edge."""
        box = self._sketch.boxes[number]
        target = box.no if answer == "no" else box.yes
        here = self._x["box", number, 0]
        if target == NO:
            other = box.yes if answer == "no" else box.no
            if other == NO:
                return here
            away = self._x["box", other, 0] - here
            return here - away if abs(away) > 1 else here - (1 if answer == "no" else -1)
        path = next(
            p for p, a in self._paths if a == answer and p[0] == ("box", number, 0) and len(p) > 1
        )
        return self._x[path[1]]


def layers(sketch: Sketch) -> dict[int, int]:
    """Return the layer of every box: bands below each other, each as deep as necessary."""
    found: dict[int, int] = {}
    first = 1
    for band in sketch.bands:
        members = [number for number, box in sketch.boxes.items() if box.band == band]
        inside = dict.fromkeys(members, 0)
        # A box has a higher number than those it leads to, so this goes from top to bottom.
        for number in sorted(members, reverse=True):
            for child in (sketch.boxes[number].no, sketch.boxes[number].yes):
                if child in inside:
                    inside[child] = max(inside[child], inside[number] + 1)
        for number, depth in inside.items():
            found[number] = first + depth
        first += 1 + max(inside.values(), default=-1)
    found[YES] = first
    return found


def _neighbours(links: Iterable[Edge]) -> dict[Place, list[Place]]:
    found: dict[Place, list[Place]] = {}
    for one, other in links:
        found.setdefault(one, []).append(other)
    return found


def _inversions(pairs: Iterable[tuple[int, int]]) -> int:
    """Return how many pairs of edges cross, given the positions of their ends."""
    ends: list[int] = []
    crossings = 0
    for _, end in sorted(pairs):
        crossings += len(ends) - bisect_right(ends, end)
        insort(ends, end)
    return crossings


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _toward(offset: float, width: float) -> float:
    """Return where an edge meets the top of a box: on the side it comes from."""
    reach = width / 2 - 14
    return max(-reach, min(reach, offset * 0.18))

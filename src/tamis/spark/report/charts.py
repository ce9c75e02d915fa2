"""Charts as SVG, for a page or for a file of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tamis.spark.report.markup import Markup, joined, tag

WIDTH: Final = 640
HEIGHT: Final = 260
# Half the page: two histograms stand side by side, and their text must not shrink.
_BAR_CHART_WIDTH: Final = 440
_FLOOR: Final = HEIGHT - 28
_LEFT: Final = 64
_RIGHT: Final = 150
_TOP: Final = 24
_BOTTOM: Final = 44

STYLE: Final = """
svg { color-scheme: light dark; --ink: #1d2530; --soft: #667080; --line: #dfe3e8; --quiet: #c9d0d8;
  --one: #1f6f8b; --two: #c2571a; --three: #5b7f2b; --four: #8a4f9e; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6e9ee; --soft: #98a2b0; --line: #303846;
  --quiet: #465060; --one: #58b4d1; --two: #f0955b; --three: #a3c76d; --four: #c792dc; } }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg text.value { fill: var(--ink); font-variant-numeric: tabular-nums; }
svg .bar { fill: var(--one); } svg .none { fill: var(--quiet); }
svg .rule { stroke: var(--line); }
svg .line { fill: none; stroke-width: 2; }
"""
_COLOURS: Final = ("var(--one)", "var(--two)", "var(--three)", "var(--four)")


class Bar(NamedTuple):
    """A bar of a histogram, with its label, height and tooltip."""

    label: str
    height: int
    about: str


class Point(NamedTuple):
    """A point of a plot, with its spread."""

    x: float
    y: float
    low: float
    high: float


def standalone(chart: Markup) -> str:
    """Return a chart as the text of an SVG file."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
    return chart.replace("<svg", head, 1).replace(">", f"><style>{STYLE}</style>", 1) + "\n"


def compact(number: float) -> str:
    """Return a number in a few characters.

    >>> [compact(n) for n in (7, 950, 12_345, 2_500_000, 3_000_000_000)]
    ['7', '950', '12k', '2.5M', '3G']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.{1 if number < 10 * size else 0}f}".removesuffix(".0") + letter
    return f"{number:.3g}"


# --- bars ----------------------------------------------------------------------------------------


def bar_chart(bars: Sequence[Bar], name: str) -> Markup:
    """Return a histogram; every bar shows its height, so there is no vertical axis."""
    highest = max((bar.height for bar in bars), default=1) or 1
    step = _BAR_CHART_WIDTH / max(1, len(bars))
    drawn = [_bar(bar, at * step, step, bar.height / highest) for at, bar in enumerate(bars)]
    rule = tag("line", x1=0, x2=_BAR_CHART_WIDTH, y1=_FLOOR, y2=_FLOOR, class_="rule")
    return _svg(name, _BAR_CHART_WIDTH, *drawn, rule)


def _bar(bar: Bar, left: float, step: float, share: float) -> Markup:
    height = max(share * (_FLOOR - _TOP), 1 if bar.height else 0)
    middle, wide = left + step / 2, min(step * 0.8, 56)
    return tag(
        "g",
        tag("title", bar.about),
        tag(
            "rect",
            x=middle - wide / 2,
            y=_FLOOR - height,
            width=wide,
            height=height,
            rx=2,
            class_="none" if bar.label == "0" else "bar",
        ),
        _text(compact(bar.height), middle, _FLOOR - height - 6, class_="value"),
        _text(bar.label, middle, HEIGHT - 10),
    )


def _text(content: str, x: float, y: float, anchor: str = "middle", class_: str = "") -> Markup:
    return tag("text", content, x=x, y=y, text_anchor=anchor, class_=class_ or None)


def _svg(name: str, width: int, *content: Markup) -> Markup:
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {width} {HEIGHT}",
        role="img",
        aria_label=name,
    )


# --- lines ---------------------------------------------------------------------------------------


class PlotAxes(NamedTuple):
    """The axes of a plot: linear from 0 across, logarithmic upward."""

    right: float
    low: int
    high: int

    @classmethod
    def around(cls, points: Sequence[Point]) -> PlotAxes:
        """Return axes that span all points."""
        low = math.floor(math.log10(min(point.low for point in points)))
        high = math.ceil(math.log10(max(point.high for point in points)))
        return cls(max(point.x for point in points), low, max(high, low + 1))

    def x(self, value: float) -> float:
        """Return the distance of a value from the left."""
        return _LEFT + value / self.right * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Return the distance of a value from the top."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def line_chart(series: Mapping[str, Sequence[Point]], across: str, upward: str) -> Markup:
    """Return a line per series, over a linear axis from 0 and a logarithmic one."""
    axes = PlotAxes.around([point for points in series.values() for point in points])
    ends = spread_labels([axes.y(points[-1].y) for points in series.values()])
    lines = [
        _line(name, points, axes, _COLOURS[at % len(_COLOURS)], end)
        for at, ((name, points), end) in enumerate(zip(series.items(), ends, strict=True))
    ]
    return _svg(f"{upward} over {across}", WIDTH, _axes(axes, across, upward), *lines)


def _axes(axes: PlotAxes, across: str, upward: str) -> Markup:
    rules = [
        joined(
            tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="rule"),
            _text(f"{10.0**power:,.6g}", _LEFT - 8, y + 4, "end"),
        )
        for power in range(axes.low, axes.high + 1)
        for y in (axes.y(10.0**power),)
    ]
    marks = [
        _text(f"{value:.6g}", axes.x(value), HEIGHT - _BOTTOM + 18)
        for value in (axes.right * quarter / 4 for quarter in range(5))
    ]
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    names = (_text(across, middle, HEIGHT - 8), _text(upward, 8, 14, "start"))
    return joined(*rules, *marks, *names)


def spread_labels(places: Sequence[float], least: float = 15) -> list[float]:
    """Return positions for labels beside points: in order, and without overlaps.

    >>> spread_labels([50, 20, 22])
    [50, 20, 35]
    """
    found: dict[int, float] = {}
    lowest = 0.0
    for at in sorted(range(len(places)), key=places.__getitem__):
        lowest = found[at] = max(places[at], lowest + least if found else places[at])
    return [found[at] for at in range(len(places))]


def _line(name: str, points: Sequence[Point], axes: PlotAxes, colour: str, end: float) -> Markup:
    places = " ".join(f"{axes.x(p.x):.1f},{axes.y(p.y):.1f}" for p in points)
    beside = WIDTH - _RIGHT + 10
    return tag(
        "g",
        tag("polyline", points=places, class_="line", stroke=colour),
        *(_dot(point, axes, colour) for point in points),
        tag("text", name, x=beside, y=end + 4, style=f"fill: {colour}"),
    )


def _dot(point: Point, axes: PlotAxes, colour: str) -> Markup:
    x = axes.x(point.x)
    return joined(
        tag("line", x1=x, x2=x, y1=axes.y(point.low), y2=axes.y(point.high), stroke=colour),
        tag("circle", cx=x, cy=axes.y(point.y), r=3, fill=colour),
    )

"""Pictures of diagrams: as DOT for Graphviz, and as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Final

from tamis.diagrams.drawing import Curve, Drawing, Spot, draw, layers, root_label, shortened_in_box
from tamis.diagrams.encoding import Encoding
from tamis.diagrams.sketch import NO, YES, Sketch, sketch
from tamis.errors import LimitError
from tamis.events import Schema
from tamis.filters import Filter, Mode

# Limits on the work for the diagram, and on the boxes of a readable picture.
BUDGET_STEPS: Final = 200_000
MAX_BOXES: Final = 300

# Boxes have a background, and lines are mid-tones, so that it works on white and on black.
STYLE: Final = """
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2933 }
.band { fill: #8090a0; fill-opacity: .1 }
.name { fill: #8593a3 }
.box { fill: #f5f7f9; stroke: #8a97a6 }
.root { fill: #dbe7f4; stroke: #6c8fb5 }
.match { fill: #d6eedd; stroke: #5f9f79 }
path { fill: none; stroke-width: 1.6; stroke-linecap: round }
.yes { stroke: #4787b3 }
.no { stroke: #b5873f; stroke-dasharray: 5 4 }
.end { stroke: #b5873f }
.yes.end { stroke: #4787b3 }
.lead { stroke: #8a97a6 }
"""


class Picture:
    """A picture of the diagram of one or several filters.

    A solid line is followed where the answer is yes, a dashed one where it is no. A cross means no
    match.

    >>> from tamis.filters import attr
    >>> picture = Picture({"cheap": attr("price") < 1000})
    >>> "price &lt; 1000" in picture.svg, 'label="price < 1000"' in picture.dot
    (True, True)
    """

    def __init__(
        self,
        filters: Mapping[str, Filter],
        mode: Mode = Mode.SQL,
        schema: Schema | None = None,
        *,
        many: bool = False,
        breakpoints: bool = False,
    ) -> None:
        """Make the diagram; with `breakpoints`, draw a box for every node."""
        bound = {n: f if schema is None else f.bind(schema) for n, f in filters.items()}
        encoding = Encoding(list(bound.values()), mode, schema, many=many, budget=BUDGET_STEPS)
        roots = {name: encoding.matches(filter_) for name, filter_ in bound.items()}
        self.sketch: Final[Sketch] = sketch(encoding, roots, breakpoints=breakpoints)
        if len(self.sketch.boxes) > MAX_BOXES:
            raise LimitError(
                "boxes in the picture",
                actual=len(self.sketch.boxes),
                limit=MAX_BOXES,
                advice="draw fewer filters at a time",
            )

    @cached_property
    def dot(self) -> str:
        """Return the diagram as DOT, for Graphviz."""
        return "\n".join(_dot_lines(self.sketch)) + "\n"

    @cached_property
    def svg(self) -> str:
        """Return the diagram as SVG."""
        return "\n".join(_svg_lines(self.sketch, draw(self.sketch))) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the picture to a file, whose name ends in .svg or .dot."""
        target = Path(path)
        form = {".svg": "svg", ".dot": "dot", ".gv": "dot"}.get(target.suffix.lower())
        if form is None:
            raise ValueError(f"a picture is saved as .svg or .dot, and {target.name!r} is neither")
        target.write_text(getattr(self, form), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        names = [name for names in self.sketch.roots.values() for name in names]
        return f"<Picture of {root_label(names)}: {len(self.sketch.boxes)} boxes>"


# --- DOT -------------------------------------------------------------------------------------


def _dot_lines(drawn: Sketch) -> Iterator[str]:
    yield "digraph tamis {"
    yield '  node [shape=box, style=rounded, fontname="monospace", fontsize=11];'
    yield "  edge [arrowsize=0.6];"
    for number, (root, ids) in enumerate(drawn.roots.items()):
        yield f"  root{number} [shape=plaintext, label={_quoted(', '.join(ids))}];"
        yield f"  root{number} -> {_dot_name(root)};"
    for number, box in drawn.boxes.items():
        yield f"  {_dot_name(number)} [label={_quoted(box.question)}];"
        yield f"  {_dot_name(number)} -> {_dot_name(box.yes)};"
        yield f"  {_dot_name(number)} -> {_dot_name(box.no)} [style=dashed];"
    rows: dict[int, list[str]] = {}
    for number, layer in layers(drawn).items():
        rows.setdefault(layer, []).append(_dot_name(number))
    for names in rows.values():
        yield f"  {{ rank=same; {'; '.join(names)} }}"
    ends = {end for box in drawn.boxes.values() for end in (box.no, box.yes)} | set(drawn.roots)
    for end, label in ((YES, "match"), (NO, "no match")):
        if end in ends:
            yield f"  {_dot_name(end)} [shape=plaintext, label={_quoted(label)}];"
    yield "}"


def _dot_name(number: int) -> str:
    return {NO: "no", YES: "yes"}.get(number, f"n{number}")


def _quoted(text: str) -> str:
    inside = _one_line(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inside}"'


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


# --- SVG -------------------------------------------------------------------------------------


def _svg_lines(drawn: Sketch, drawing: Drawing) -> Iterator[str]:
    width, height = drawing.width, drawing.height + 24
    names = ", ".join(_one_line(name) for names in drawn.roots.values() for name in names)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">'
    )
    yield f"<title>{escape(names)}</title>"
    yield f"<style>{STYLE}</style>"
    for name, top, bottom in drawing.bands:
        yield from _svg_band(name, top, bottom, width)
    for curve in drawing.curves:
        yield from _svg_curve(curve)
    for root, spot in drawing.pills.items():
        yield from _svg_box("root", spot, ", ".join(drawn.roots[root]), round_=14)
    for number, spot in drawing.boxes.items():
        yield from _svg_box("box", spot, drawn.boxes[number].question)
    if drawing.match is not None:
        yield from _svg_box("match", drawing.match, "match", round_=14)
    yield from _svg_legend(drawing.height + 6)
    yield "</svg>"


def _svg_band(name: str, top: float, bottom: float, width: float) -> Iterator[str]:
    yield (
        f'<rect class="band" x="0" y="{top:.1f}" width="{width:.1f}" '
        f'height="{bottom - top:.1f}" rx="6"/>'
    )
    if name:
        yield f'<text class="name" x="10" y="{top + 17:.1f}">{_text(shortened_in_box(name))}</text>'


def _svg_box(sort: str, spot: Spot, words: str, round_: int = 5) -> Iterator[str]:
    left, top = spot.x - spot.width / 2, spot.y - spot.height / 2
    yield f"<g><title>{_text(words)}</title>"
    yield (
        f'<rect class="{sort}" x="{left:.1f}" y="{top:.1f}" width="{spot.width:.1f}" '
        f'height="{spot.height:.1f}" rx="{round_}"/>'
    )
    yield (
        f'<text x="{spot.x:.1f}" y="{spot.y + 4:.1f}" text-anchor="middle">'
        f"{_text(shortened_in_box(words))}</text></g>"
    )


def _svg_curve(curve: Curve) -> Iterator[str]:
    sort = "lead" if curve.answer == "root" else curve.answer
    yield f'<path class="{sort}" d="{_path(curve.points)}"/>'
    if curve.is_stub:
        yield _cross(*curve.points[-1], f"{sort} end" if sort == "yes" else "end")


def _cross(x: float, y: float, sort: str) -> str:
    return f'<path class="{sort}" d="M{x - 3.5:.1f} {y:.1f}l7 7M{x + 3.5:.1f} {y:.1f}l-7 7"/>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return a smooth curve through the points, vertical at both ends."""
    slopes = [0.0] * len(points)
    for at in range(1, len(points) - 1):
        (x, y), (next_x, next_y) = points[at - 1], points[at + 1]
        slopes[at] = (next_x - x) / (next_y - y)
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for at in range(1, len(points)):
        (x, y), (end_x, end_y) = points[at - 1], points[at]
        reach = (end_y - y) * 0.42
        parts.append(
            f"C{x + slopes[at - 1] * reach:.1f} {y + reach:.1f} "
            f"{end_x - slopes[at] * reach:.1f} {end_y - reach:.1f} {end_x:.1f} {end_y:.1f}"
        )
    return "".join(parts)


def _svg_legend(y: float) -> Iterator[str]:
    yield f'<path class="yes" d="M10 {y:.1f}h26"/>'
    yield f'<text class="name" x="42" y="{y + 4:.1f}">yes</text>'
    yield f'<path class="no" d="M78 {y:.1f}h26"/>'
    yield f'<text class="name" x="110" y="{y + 4:.1f}">no</text>'
    yield _cross(140, y - 3.5, "end")
    yield f'<text class="name" x="150" y="{y + 4:.1f}">no match</text>'


def _text(text: str) -> str:
    return escape(_one_line(text))

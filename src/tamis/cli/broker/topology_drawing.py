"""The overlay as a picture: brokers as boxes, links as lines with what passed in each direction.

An overlay has no cycles, so it is drawn as a tree: the broker that was asked on the left, and a
column for each hop. A broker stands in the middle of those behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from tamis.protocol.views import BrokerView, PeerView, TopologyView
from tamis.units import count

BOX_WIDTH: Final = 150.0
BOX_HEIGHT: Final = 44.0
MIN_COLUMN_GAP: Final = 230.0
CHARACTER_WIDTH: Final = 5.7
"""Of small text, on average and in a wide font."""
ROW_GAP: Final = 44.0
MARGIN: Final = 16.0
MAX_CHARACTERS: Final = 20

STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #1f2933; }
.small { font-size: 10.5px; fill: #52606d; }
.broker { fill: #f0f4f8; stroke: #486581; stroke-width: 1.2; }
.asked { fill: #dceefb; }
.link { fill: none; stroke: #486581; stroke-width: 1.6; }
.lost { stroke: #ba2525; stroke-dasharray: 5 4; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f4f8; } .small { fill: #bcccdc; }
  .broker { fill: #243b53; stroke: #9fb3c8; } .asked { fill: #334e68; }
  .link { stroke: #9fb3c8; } .lost { stroke: #f86a6a; }
}
"""


class BrokerSpot(NamedTuple):
    """A broker with the place of its box, and the link over which it was reached."""

    broker: BrokerView
    column: int
    row: float
    parent: int | None
    """The place of the broker before it in the list of spots."""
    there: PeerView | None = None
    """The link, as the broker before it sees it."""
    back: PeerView | None = None
    """The link, as this broker sees it."""
    answered: bool = True
    """Whether the broker told about itself."""
    gap: float = MIN_COLUMN_GAP
    """The space between two columns."""

    @property
    def left(self) -> float:
        """Return where the box begins."""
        return MARGIN + self.column * (BOX_WIDTH + self.gap)

    @property
    def middle(self) -> float:
        """Return the height of the middle of the box."""
        return MARGIN + BOX_HEIGHT / 2 + self.row * (BOX_HEIGHT + ROW_GAP)


def title_of(broker: BrokerView) -> str:
    """Return what to call a broker: its name, or the beginning of its id."""
    return broker.name or broker.id[:8]


def draw_topology(topology: TopologyView) -> str:
    """Return the overlay as an SVG document."""
    spots = _lay_out(topology)
    gap = _column_gap(spots)
    spots = [spot._replace(gap=gap) for spot in spots]
    width = max(spot.left for spot in spots) + BOX_WIDTH + MARGIN
    height = max(spot.middle for spot in spots) + BOX_HEIGHT / 2 + MARGIN
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>An overlay of {count(len(spots), 'broker')}</title>",
        f"<style>{STYLE}</style>",
        *(_link(spots[spot.parent], spot) for spot in spots if spot.parent is not None),
        *(_box(spot) for spot in spots),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _column_gap(spots: Sequence[BrokerSpot]) -> float:
    """Return how far apart columns are, so that the longest label fits between them."""
    links = [link for spot in spots for link in (spot.there, spot.back) if link is not None]
    longest = max((len(_label(link)) for link in links), default=0)
    return max(MIN_COLUMN_GAP, CHARACTER_WIDTH * (longest + len("→ ")) + 16)


def _lay_out(topology: TopologyView) -> list[BrokerSpot]:
    """Return a spot for each broker, a broker before those behind it."""
    brokers = {broker.id: broker for broker in topology.brokers}
    spots = [BrokerSpot(brokers[topology.broker], 0, 0.0, None)]
    waiting, placed = [0], {topology.broker}
    order: list[int] = []
    while waiting:
        place = waiting.pop()
        order.append(place)
        spot = spots[place]
        for link in reversed(spot.broker.links):
            if link.broker in placed and link.broker:
                continue
            other = brokers.get(link.broker) or _absent(link)
            placed.add(link.broker)
            back = next((one for one in other.links if one.broker == spot.broker.id), None)
            waiting.append(len(spots))
            answered = link.broker in brokers
            spots.append(BrokerSpot(other, spot.column + 1, 0.0, place, link, back, answered))
    return _with_rows(spots, order)


def _absent(link: PeerView) -> BrokerView:
    return BrokerView(link.broker, link.name or link.broker[:8] or link.url)


def _with_rows(spots: list[BrokerSpot], order: Sequence[int]) -> list[BrokerSpot]:
    """Give leaves rows of their own, in order, and others the middle of what is behind them."""
    behind: dict[int, list[int]] = {}
    for place, spot in enumerate(spots):
        if spot.parent is not None:
            behind.setdefault(spot.parent, []).append(place)
    rows: dict[int, float] = {}
    for place in order:
        if place not in behind:
            rows[place] = float(len(rows))
    # `order` has a broker before those behind it.
    for place in reversed(order):
        if place in behind:
            below = [rows[one] for one in behind[place]]
            rows[place] = (min(below) + max(below)) / 2
    return [spot._replace(row=rows[place]) for place, spot in enumerate(spots)]


def _box(spot: BrokerSpot) -> str:
    top, centre = spot.middle - BOX_HEIGHT / 2, spot.left + BOX_WIDTH / 2
    kind = "broker asked" if spot.parent is None else "broker"
    about = count(spot.broker.subscriptions, "subscription") if spot.answered else "no answer"
    return (
        f'<rect class="{kind}" x="{spot.left:g}" y="{top:g}" width="{BOX_WIDTH:g}" '
        f'height="{BOX_HEIGHT:g}" rx="6"/>'
        f'<text x="{centre:g}" y="{spot.middle - 3:g}" text-anchor="middle">'
        f"{_text(title_of(spot.broker))}</text>"
        f'<text class="small" x="{centre:g}" y="{spot.middle + 13:g}" text-anchor="middle">'
        f"{about}</text>"
    )


def _link(before: BrokerSpot, spot: BrokerSpot) -> str:
    """Return a line, with what went away from the broker that was asked above, and back below."""
    begin, end = before.left + BOX_WIDTH, spot.left
    bend = (begin + end) / 2
    kind = "link" if spot.there is None or spot.there.connected else "link lost"
    labels = [
        f'<text class="small" x="{end - 8:g}" y="{spot.middle + place:g}" text-anchor="end">'
        f"{arrow} {_label(link)}</text>"
        for link, place, arrow in ((spot.there, -6.0, "→"), (spot.back, 15.0, "←"))
        if link is not None
    ]
    path = f"M {begin:g} {before.middle:g} C {bend - 60:g} {before.middle:g} "
    path += (
        f"{begin + 20:g} {spot.middle:g} {begin + 60:g} {spot.middle:g} L {end:g} {spot.middle:g}"
    )
    return "".join([f'<path class="{kind}" d="{path}"/>', *labels])


def _label(link: PeerView) -> str:
    events = f"{count(link.sent, 'event')}, {link.stopped:,} stopped"
    return f"{events} · {count(link.forwarded, 'filter')}, {link.suppressed:,} covered"


def _text(given: str) -> str:
    short = given if len(given) <= MAX_CHARACTERS else f"{given[: MAX_CHARACTERS - 1]}…"
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in short))

"""The sections of a report, each a function of its figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from tamis.spark.matching.counts import Counts
from tamis.spark.report.charts import Bar, bar_chart
from tamis.spark.report.figures import Figures, FirstRows, TopSubscription
from tamis.spark.report.markup import Markup, joined, shortened, tag

OUTCOMES: Final = ("matched", "unmatched", "rejected")
_NOTHING: Final = Markup("")


def facts_section(counts: Counts, subscriptions: int, seconds: float) -> Markup:
    """Return the main figures."""
    facts = {
        "events per second": f"{counts.events / seconds:,.0f}",
        "events": f"{counts.events:,}",
        "subscriptions": f"{subscriptions:,}",
        "matches": f"{counts.matches:,}",
        "matches per event": f"{counts.matches / max(1, counts.events):,.1f}",
        "seconds": f"{seconds:,.1f}",
    }
    shown = [
        tag("div", tag("b", value), tag("span", name), class_="fact")
        for name, value in facts.items()
    ]
    return tag("div", *shown, class_="facts")


def outcome_section(counts: Counts) -> Markup:
    """Return the outcomes of the events, as a bar and as a sum."""
    counted = {name: getattr(counts, name) for name in OUTCOMES}
    bar = [
        tag("i", class_=name, style=f"flex-grow: {number}", title=f"{number:,} {name}")
        for name, number in counted.items()
        if number
    ]
    parts = [tag("em", f"{number:,} {name}", class_=name) for name, number in counted.items()]
    plus = Markup(" + ")
    return joined(
        tag("h2", "Outcome of the events"),
        tag("div", *bar, class_="outcome"),
        tag("p", f"{counts.events:,} events = ", Markup(plus.join(parts)), class_="sum"),
    )


def charts_section(figures: Figures, subscriptions: int) -> Markup:
    """Return the histograms of matches, by subscription and by event."""
    silent = f"{figures.silent:,} of {subscriptions:,} matched nothing."
    drawn = [
        _chart(figures.by_subscription, "Matches of a subscription", f"{silent} {_READING}"),
        _chart(figures.by_event, "Matches of an event", _READING),
    ]
    if not any(drawn):
        return _NOTHING
    return joined(tag("h2", "How matches are spread"), tag("div", *drawn, class_="charts"))


_READING: Final = "A bar begins at the number below it and ends before the next."


def _chart(bars: Sequence[Bar], name: str, about: str) -> Markup:
    if not bars:
        return _NOTHING
    return tag("figure", bar_chart(bars, name), tag("figcaption", tag("b", name), f". {about}"))


def top_section(top: Sequence[TopSubscription], matches: int) -> Markup:
    """Return the subscriptions with the most matches, and their filters."""
    if not top:
        return _NOTHING
    most = top[0].matches
    rows = [
        (
            str(one.id),
            tag("code", shortened(one.filter)),
            f"{one.matches:,}",
            f"{one.matches / matches:.2%}",
            tag("i", style=f"width: {100 * one.matches / most:.1f}%"),
        )
        for one in top
    ]
    heads = ("subscription", "filter", "matches", "of all", "")
    table = sheet(heads, rows, numbers={2, 3}, bars={4})
    return joined(tag("h2", "Subscriptions with the most matches"), table)


# --- rejected ------------------------------------------------------------------------------------


def rejected_events_section(rejected: FirstRows) -> Markup:
    """Return the first rejected events, and the reasons."""
    rows = [
        (
            str(row.get("file", "")),
            _number(row.get("position")),
            tag("code", shortened(row["error"])),
        )
        for row in rejected.rows
    ]
    heads = ("file", "position", "reason")
    return _rejected("Rejected events", rejected, "event", sheet(heads, rows, numbers={1}))


def rejected_subscriptions_section(rejected: FirstRows) -> Markup:
    """Return the first rejected subscriptions, and the reasons."""
    rows = [
        (
            _number(row["row"]),
            row["id"] or "",
            tag("code", shortened(row["filter"] or "")),
            tag("code", shortened(row["reason"])),
        )
        for row in rejected.rows
    ]
    heads = ("row", "id", "filter", "reason")
    return _rejected("Rejected subscriptions", rejected, "row", sheet(heads, rows, numbers={0}))


def _rejected(title: str, rejected: FirstRows, noun: str, table: Markup) -> Markup:
    if not rejected.total:
        return joined(tag("h2", title), tag("p", "None.", class_="note"))
    shown, total = len(rejected.rows), rejected.total
    some = f"The first {shown:,} of {total:,} {noun}s." if shown < total else ""
    return joined(tag("h2", title), table, tag("p", some, class_="note") if some else _NOTHING)


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


# --- tables --------------------------------------------------------------------------------------


def sheet(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[int] = (),
    bars: Collection[int] = (),
) -> Markup:
    """Return a table; some of its columns hold numbers, or bars that compare them."""
    kinds = dict.fromkeys(numbers, "number") | dict.fromkeys(bars, "share")

    def line(cell: str, row: Sequence[str]) -> Markup:
        return tag("tr", *(tag(cell, value, class_=kinds.get(at)) for at, value in enumerate(row)))

    head = [line("th", heads)] if heads else []
    table = tag("table", *head, *(line("td", row) for row in rows))
    return tag("div", table, class_="sheet")

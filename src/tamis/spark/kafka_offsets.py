"""How far a stream is in the partitions of Kafka's topics, and what its next batch holds.

An offset of Spark's holds where a batch begins as well as where it ends. So a batch that runs again
reads the same messages, also the first one of a stream that began with the latest, or with a
partition that was new: where it began is recorded nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of the topic {self.topic}"


class Span(NamedTuple):
    """The offsets from the first to the one behind the last."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """Return how many offsets there are; a message need not have each."""
        return self.end - self.begin


Offsets = dict[Place, Span]


def to_json(offsets: Mapping[Place, Span]) -> dict[str, Any]:
    """Return offsets as Spark records them, always in the same order, since it compares texts.

    >>> to_json({Place("b", 10): Span(3, 5), Place("b", 9): Span(0, 0)})
    {'b': {'9': [0, 0], '10': [3, 5]}}
    """
    told: dict[str, Any] = {}
    for place, span in sorted(offsets.items()):
        told.setdefault(place.topic, {})[str(place.partition)] = list(span)
    return told


def of_json(data: Mapping[str, Any]) -> Offsets:
    """Return the offsets that `to_json` told."""
    return {
        Place(topic, int(partition)): Span(*span)
        for topic, partitions in data.items()
        for partition, span in partitions.items()
    }


class Step(NamedTuple):
    """The next batch, and sentences about the events that are lost to it."""

    offsets: Offsets
    losses: list[str]

    @classmethod
    def after(
        cls,
        last: Offsets,
        held: Offsets,
        limit: int | None = None,
        goal: Mapping[Place, int] | None = None,
    ) -> Step:
        """Return what comes after the last batch, by what Kafka holds now.

        At most `limit` offsets are taken, and none beyond the `goal`. If there is nothing new, the
        offsets are the last ones.
        """
        gone = {place: span for place, span in last.items() if place not in held}
        losses = [f"{place} is gone" for place in gone]
        # Should it come back, it goes on from there and not from its beginning.
        spans = {place: Span(span.end, span.end) for place, span in gone.items()}
        for place, span in held.items():
            begin, loss = _begin(place, last.get(place), span)
            losses.extend(loss)
            end = span.end if goal is None else min(span.end, goal.get(place, begin))
            spans[place] = Span(begin, max(begin, end))
        ends = {place: Span(span.end, span.end) for place, span in last.items()}
        # What was skipped must be recorded too, or it would be told again and again.
        if spans == ends:
            return cls(last, losses)
        return cls(_limited(spans, limit), losses)


def _begin(place: Place, last: Span | None, held: Span) -> tuple[int, list[str]]:
    """Return where the next batch begins in a partition, and what is lost by that."""
    if last is None:
        if held.begin == 0:
            return 0, []
        return held.begin, [f"{place} is new, and its first {held.begin:,} offsets are gone"]
    if last.end < held.begin:
        gone = f"the offsets {last.end} to {held.begin - 1} of {place} are gone"
        return held.begin, [gone]
    if last.end > held.end:
        cut = f"{place} ends at {held.end}, and the stream has been at {last.end}: it was cut, or"
        return held.begin, [f"{cut} made anew"]
    return last.end, []


def _limited(spans: Offsets, limit: int | None) -> Offsets:
    if limit is None:
        return spans
    taken = shares(limit, {place: span.size for place, span in spans.items()})
    return {place: Span(span.begin, span.begin + taken[place]) for place, span in spans.items()}


def shares(limit: int, sizes: Mapping[Place, int]) -> dict[Place, int]:
    """Return how much each partition may give, so that none waits for the longer ones.

    >>> a, b, c = (Place("t", number) for number in range(3))
    >>> list(shares(10, {a: 100, b: 1, c: 7}).values())
    [1, 4, 5]
    """
    taken: dict[Place, int] = {}
    for place in sorted(sizes, key=lambda place: (sizes[place], place)):
        fair = (limit - sum(taken.values())) // (len(sizes) - len(taken))
        taken[place] = min(sizes[place], fair)
    return taken


def tasks(spans: Offsets, least: int) -> Iterator[tuple[Place, Span]]:
    """Yield the parts of a batch that are read one by one: `least` or more, if they can be cut.

    >>> [tuple(span) for _, span in tasks({Place("t", 0): Span(0, 10)}, 3)]
    [(0, 3), (3, 6), (6, 9), (9, 10)]
    """
    sizes = [span.size for span in spans.values() if span.size]
    longest = sum(sizes) if least <= len(sizes) else max(1, sum(sizes) // least)
    for place, span in sorted(spans.items()):
        for begin in range(span.begin, span.end, longest or 1):
            yield place, Span(begin, min(begin + longest, span.end))

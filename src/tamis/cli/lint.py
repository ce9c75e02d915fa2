"""What is suspicious about filters that are right in themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import combinations
from typing import Final, NamedTuple

from tamis.cli.filter_files import Subscription
from tamis.diagrams import Answer, Space
from tamis.events import Event, Schema
from tamis.filters import Filter, Mode
from tamis.filters.simplify import simplify

# Steps of work for one question, some milliseconds. Ordinary filters take some hundred steps.
BUDGET: Final = 20_000


class Level(StrEnum):
    """How bad a finding is: an error exits with 2, a warning with 1, a note with 0."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """Something to say about one filter."""

    id: str
    line: int
    level: Level
    rule: str
    message: str


class Linter:
    """Looks at filters one by one and in pairs, over the events of a schema."""

    def __init__(self, schema: Schema | None, *, many: bool) -> None:
        self._schema = schema
        self._many = many
        # By line, an event that matches the filter: most pairs are told apart by these alone,
        # a thousand times faster than by a diagram.
        self._examples: dict[int, Event] = {}
        self.undecided = 0

    def look_at(self, one: Subscription) -> Finding | None:
        """Return what is wrong with a filter on its own."""
        never = self._ask(one.mode, lambda space: space.is_never(one.filter))
        if never.event is not None:
            self._examples[one.line] = never.event
        if never:
            return _warning(one, "never-true", f"no event can match it{never.reason}")
        always = self._ask(one.mode, lambda space: space.is_always(one.filter))
        if always:
            return _warning(one, "always-true", f"every event matches it{always.reason}")
        return None

    def look_at_pairs(self, subscriptions: Sequence[Subscription]) -> Iterator[Finding]:
        """Yield which filters are the same as another, and which are covered by another."""
        for first, second in combinations(subscriptions, 2):
            if first.mode is second.mode:
                yield from self._look_at_pair(first, second)

    def _look_at_pair(self, first: Subscription, second: Subscription) -> Iterator[Finding]:
        wider, narrower = self._covers(first, second), self._covers(second, first)
        if wider and narrower:
            yield _same(first, second, wider.reason or narrower.reason)
        elif wider:
            yield _covered(first, second, wider.reason)
        elif narrower:
            yield _covered(second, first, narrower.reason)

    def _covers(self, wide: Subscription, narrow: Subscription) -> Answer:
        example = self._examples.get(narrow.line)
        if example is not None and not wide.filter.matches(example, wide.mode, self._schema):
            return Answer(False)
        return self._ask(wide.mode, lambda space: space.covers(wide.filter, narrow.filter))

    def _ask(self, mode: Mode, question: Callable[[Space], Answer]) -> Answer:
        """Return the answer; as the reason for a yes, what it takes for granted."""
        answer = question(Space(mode, self._schema, many=self._many, budget=BUDGET))
        self.undecided += not answer.exact
        if answer and self._schema is None and not self._many:
            with_several = question(Space(mode, many=True, budget=BUDGET))
            proviso = "" if with_several else ", unless an attribute holds several values"
            return answer._replace(reason=proviso)
        return answer


def without_repeats(
    subscriptions: Iterable[Subscription],
) -> tuple[list[Subscription], list[Finding]]:
    """Return the filters without those that only repeat another, and what to say of these.

    It sees only what reads the same once simplified, but needs no pairs to see it.
    """
    first_of: dict[tuple[Mode, Filter], Subscription] = {}
    findings: list[Finding] = []
    for one in subscriptions:
        first = first_of.setdefault((one.mode, simplify(one.filter, one.mode)), one)
        if first is not one:
            findings.append(_same(first, one, ""))
    return list(first_of.values()), findings


def _same(first: Subscription, second: Subscription, proviso: str) -> Finding:
    return _warning(second, "same", f"it matches the same events as {first.id}{proviso}")


def _covered(wide: Subscription, narrow: Subscription, proviso: str) -> Finding:
    message = f"every event that matches it matches {wide.id} as well{proviso}"
    return Finding(narrow.id, narrow.line, Level.NOTE, "covered", message)


def _warning(one: Subscription, rule: str, message: str) -> Finding:
    return Finding(one.id, one.line, Level.WARNING, rule, message)

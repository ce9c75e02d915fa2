"""What `tamis check` says of filters: where each finding is, and how bad."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tamis.analysis.lint import Finding as Found
from tamis.analysis.lint import LintedFilter, Linter, LintRule
from tamis.cli.filters.files import Refused, Subscription
from tamis.events import Schema


class Level(StrEnum):
    """How bad a finding is: an error exits with 2, a warning with 1, a note with 0."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_LEVELS: Final = {
    LintRule.NEVER: Level.WARNING,
    LintRule.ALWAYS: Level.WARNING,
    LintRule.SAME: Level.WARNING,
    LintRule.COVERED: Level.NOTE,
}


class Finding(NamedTuple):
    """Something to say about one line."""

    id: str
    line: int
    level: Level
    rule: str
    message: str


class Report(NamedTuple):
    """What came of looking at filters."""

    findings: list[Finding]
    undecided: int
    """Questions to which no certain answer was found."""
    distinct: int
    """Filters that are worth comparing with each other."""
    left_out: int
    """Pairs of those, if they were too many."""


def look_at(
    subscriptions: Sequence[Subscription], schema: Schema | None, *, many: bool, pairs: int
) -> Report:
    """Look at filters one by one, and at pairs of them if there are no more than `pairs`."""
    linter = Linter(schema, many=many)
    found, distinct = linter.look_at_each(
        LintedFilter(s.id, s.filter, s.mode) for s in subscriptions
    )
    number = len(distinct) * (len(distinct) - 1) // 2
    if number <= pairs:
        # Events are found and refute a pair both ways, so no pair takes more than two questions.
        found += linter.look_at_pairs(distinct, 2 * number, every=True)
    lines = {one.id: one.line for one in subscriptions}
    findings = [_placed(finding, lines[str(finding.id)]) for finding in found]
    return Report(findings, linter.undecided, len(distinct), number if number > pairs else 0)


def refusal(refused: Refused) -> Finding:
    """Return the finding for a line that holds no filter."""
    return Finding(refused.id, refused.line, Level.ERROR, "refused", refused.message)


def _placed(found: Found, line: int) -> Finding:
    return Finding(str(found.id), line, _LEVELS[found.rule], found.rule, found.message)

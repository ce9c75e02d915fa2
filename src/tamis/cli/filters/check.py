"""`tamis check`: report invalid filters and probable mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from rich.text import Text

from tamis.analysis.lint import (
    BUDGET_STEPS,
    Finding,
    LintedFilter,
    Linter,
    brief_ids,
)
from tamis.analysis.mistakes import MistakeFinder, Sample, tested_attributes
from tamis.analysis.rules import LintRule
from tamis.cli.console import Format, say, stderr, stdout, write_json
from tamis.cli.event_input import EventInput
from tamis.cli.exits import FINDING, FINE, MISTAKE
from tamis.cli.filters.files import FilterDefaults, NamedFilter, RejectedFilter, read_filters
from tamis.cli.options import (
    FiltersFile,
    FormatOption,
    Language,
    Many,
    ModeOption,
    SchemaFile,
    Steps,
    argument,
    no_default,
    read_schema,
)
from tamis.events import RejectedLine, Schema
from tamis.filters import Id, Mode
from tamis.filters.simplify import simplify
from tamis.matching import Engine
from tamis.units import count

EXAMPLES: Final = """[bold]Examples[/bold]

tamis check 'price < 1000 and company in ("IBM", "Dell")'
tamis check --filters subscriptions.txt --schema schema.json
tamis check 'symbol = ACME' --sample events.jsonl

[bold]Exit code[/bold]

0 no problems found, or only notes
1 a warning
2 a filter is not usable, or another mistake"""


class Level(StrEnum):
    """The severity of a finding: an error exits with 2, a warning with 1, a note with 0."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_STYLES: Final = {Level.ERROR: "bold red", Level.WARNING: "bold yellow", Level.NOTE: "bold blue"}
# With more filters, an engine finds those that match the example of another.
MAX_TRIED_ONE_BY_ONE: Final = 200
_NOTES: Final = frozenset({LintRule.COVERED})


def check(
    filter_: Annotated[str | None, argument("FILTER", "The filter.")] = None,
    *,
    filters: FiltersFile = None,
    mode: ModeOption = Mode.SQL,
    schema: SchemaFile = None,
    sample: Annotated[
        Path | None,
        no_default(
            metavar="FILE",
            help="Events as JSON lines: warn of attributes that none of them has, and of values "
            "of another kind than theirs.",
        ),
    ] = None,
    language: Language = "tamis",
    many: Many = False,
    pairs: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="In a file, compare at most N pairs that no required value or event rules out.",
        ),
    ] = 20_000,
    steps: Steps = BUDGET_STEPS,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Check filters: is each one valid, does it fit the schema, is it a probable mistake?

    Warnings (never or always true, same as an earlier filter, a part that never decides, a text
    without quotes, an attribute that no event of the sample has, …) give exit code 1. Notes do not:
    another filter covers it.
    """
    defaults = FilterDefaults(language, mode, read_schema(schema))
    found = read_filters(filter_, filters, defaults)
    subscriptions = [one for one in found if isinstance(one, NamedFilter)]
    events = None if sample is None else read_sample(sample, defaults.schema)
    report = lint_filters(
        subscriptions, defaults.schema, events, many=many, pairs=pairs, steps=steps
    )
    findings = [
        refused_line(one) for one in found if isinstance(one, RejectedFilter)
    ] + report.findings
    findings.sort(key=lambda finding: finding.line)
    _write(subscriptions, findings, filters, format_)
    _report_omissions(report, pairs)
    return _exit_code(findings)


def _report_omissions(report: LintReport, pairs: int) -> None:
    if report.unasked:
        left_out = sum(report.unasked.values())
        say(
            stderr(),
            f"{count(left_out, 'pair')} beyond {pairs:,} {'was' if left_out == 1 else 'were'} not "
            f"compared, so {brief_ids(report.unasked)} may be covered by others; "
            f"--pairs {pairs + left_out} includes them",
        )
    if report.undecided:
        open_ = count(report.undecided, "question")
        say(stderr(), f"{open_} could not be decided, so there may be more to find")


def _exit_code(findings: Sequence[LineFinding]) -> int:
    levels = {finding.level for finding in findings}
    if Level.ERROR in levels:
        return MISTAKE
    return FINDING if Level.WARNING in levels else FINE


def _write(
    subscriptions: Sequence[NamedFilter],
    findings: Sequence[LineFinding],
    path: Path | None,
    format_: Format,
) -> None:
    if format_ is Format.JSON:
        _write_json(subscriptions, findings)
        return
    if path is None:
        _write_forms(subscriptions[0])
    for finding in findings:
        _write_finding(finding, path)
    _write_summary(len(subscriptions), findings, path)


def _write_forms(one: NamedFilter) -> None:
    shown, simplified = str(one.filter), str(simplify(one.filter, one.mode))
    say(stdout(), f"reads as    {shown}")
    if simplified != shown:
        say(stdout(), f"simplified  {simplified}")


def _write_finding(finding: LineFinding, path: Path | None) -> None:
    if finding.level is Level.ERROR:
        # The message itself names the place, more precisely.
        text = Text("error: ", _STYLES[finding.level]).append(finding.message, "not bold default")
        say(stdout(), text)
        return
    place = "" if path is None else f"{path}:{finding.line}: {finding.id}: "
    label = Text(f"{finding.level}: ", _STYLES[finding.level])
    say(stdout(), label.append(f"{place}{finding.message}", "not bold default"))


def _write_summary(right: int, findings: Sequence[LineFinding], path: Path | None) -> None:
    levels = [finding.level for finding in findings]
    found = [count(levels.count(level), level) for level in Level if level in levels]
    if path is not None:
        number = right + levels.count(Level.ERROR)
        say(stderr(), f"{count(number, 'filter')}: {', '.join(found) or 'no problems found'}")
    elif not found:
        say(stderr(), "no problems found")


def _write_json(subscriptions: Sequence[NamedFilter], findings: Sequence[LineFinding]) -> None:
    by_line: dict[int, list[dict[str, str]]] = {}
    ids = {f.line: f.id for f in findings} | {s.line: s.id for s in subscriptions}
    filters = {one.line: one for one in subscriptions}
    for finding in findings:
        said = {"level": finding.level, "rule": finding.rule, "message": finding.message}
        by_line.setdefault(finding.line, []).append(said)
    for line, id_ in sorted(ids.items()):
        one = filters.get(line)
        forms = {} if one is None else _forms(one)
        write_json({"line": line, "id": id_, **forms, "findings": by_line.get(line, [])})


def _forms(one: NamedFilter) -> dict[str, str]:
    return {"filter": str(one.filter), "simplified": str(simplify(one.filter, one.mode))}


def read_sample(path: Path, schema: Schema | None) -> Sample:
    """Return what the events of a file hold; report lines that hold no event."""
    sample, rejected = Sample(), 0
    with path.open("rb") as stream:
        for line in EventInput(stream, schema).events():
            if isinstance(line, RejectedLine):
                rejected += 1
                if rejected <= _MAX_REJECTED_SHOWN:
                    say(stderr(), f"rejected: {path}: {line.error}")
            else:
                sample.add(line.event)
    say(stderr(), f"sample: {count(sample.count, 'event')}, {rejected:,} rejected")
    return sample


_MAX_REJECTED_SHOWN: Final = 20


class LineFinding(NamedTuple):
    """A finding about one line."""

    id: str
    line: int
    level: Level
    rule: str
    message: str


class LintReport(NamedTuple):
    """The findings about a set of filters."""

    findings: list[LineFinding]
    undecided: int
    """The number of comparisons that remained undecided."""
    unasked: Mapping[Id, int]
    """For some filters, with how many others they were not compared."""


def lint_filters(
    subscriptions: Sequence[NamedFilter],
    schema: Schema | None,
    sample: Sample | None = None,
    *,
    many: bool,
    pairs: int,
    steps: int = BUDGET_STEPS,
) -> LintReport:
    """Check filters one by one, and in pairs: up to `pairs` that are not ruled out otherwise."""
    match = None
    if len(subscriptions) > MAX_TRIED_ONE_BY_ONE:
        match = _engine_of(subscriptions, schema).match_batch
    linter = Linter(schema, many=many, match=match, steps=steps)
    found, distinct = linter.look_at_each(
        LintedFilter(s.id, s.filter, s.mode) for s in subscriptions
    )
    languages = {one.id: one.language for one in subscriptions}
    for one in distinct:
        found += linter.look_at_parts(one, translated=languages[str(one.id)] == "jms")
    found += linter.look_at_pairs(distinct, pairs, every=True)
    lines = {one.id: one.line for one in subscriptions}
    findings = list(_probable_mistakes(subscriptions, schema, sample))
    findings += [_placed(finding, lines[str(finding.id)]) for finding in found]
    return LintReport(findings, linter.undecided, linter.unasked)


def _engine_of(subscriptions: Sequence[NamedFilter], schema: Schema | None) -> Engine:
    engine = Engine(schema)
    for one in subscriptions:
        engine.add(one.id, one.filter, mode=one.mode)
    return engine


def _probable_mistakes(
    subscriptions: Sequence[NamedFilter], schema: Schema | None, sample: Sample | None
) -> Iterator[LineFinding]:
    known = schema if schema is not None else tested_attributes(s.filter for s in subscriptions)
    finder = MistakeFinder(known, sample)
    for one in subscriptions:
        for mistake in finder.find(one.filter, one.text, one.language):
            yield _line_finding(one.id, one.line, mistake.rule, mistake.message)


def refused_line(refused: RejectedFilter) -> LineFinding:
    """Return the finding for a line without a usable filter."""
    return LineFinding(refused.id, refused.line, Level.ERROR, "refused", refused.message)


def _placed(found: Finding, line: int) -> LineFinding:
    return _line_finding(str(found.id), line, found.rule, found.message)


def _line_finding(id_: str, line: int, rule: LintRule, message: str) -> LineFinding:
    level = Level.NOTE if rule in _NOTES else Level.WARNING
    return LineFinding(id_, line, level, rule, message)

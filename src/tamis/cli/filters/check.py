"""`tamis check`: can these filters be used, and do they say what was meant?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from tamis.cli.console import Format, count, say, stderr, stdout, write_json
from tamis.cli.exits import FINDING, FINE, MISTAKE
from tamis.cli.filters.files import Defaults, Refused, Subscription, read_filters
from tamis.cli.filters.lint import Finding, Level, Report, look_at, refusal
from tamis.cli.options import (
    FiltersFile,
    Language,
    Many,
    ModeOption,
    SchemaFile,
    read_schema,
)
from tamis.filters import Mode
from tamis.filters.simplify import simplify

EXAMPLES: Final = """[bold]Examples[/bold]

tamis check 'price < 1000 and company in ("IBM", "Dell")'
tamis check --filters subscriptions.txt --schema schema.json

[bold]Exit code[/bold]

0 nothing found, or only notes
1 a warning
2 a filter cannot be used, or another mistake"""

_STYLES: Final = {Level.ERROR: "bold red", Level.WARNING: "bold yellow", Level.NOTE: "bold blue"}


def check(
    filter_: Annotated[
        str | None, typer.Argument(metavar="FILTER", help="The filter.", show_default=False)
    ] = None,
    *,
    filters: FiltersFile = None,
    mode: ModeOption = Mode.SQL,
    schema: SchemaFile = None,
    language: Language = "tamis",
    many: Many = False,
    pairs: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="In a file, compare no more than this many pairs."),
    ] = 20_000,
    format_: Annotated[Format, typer.Option("--format", help="For people or for programs.")] = (
        Format.TEXT
    ),
) -> int:
    """Check filters: can each be read, does it agree with the schema, is it suspicious?

    Suspicious are filters that no event or every event matches, and in a file filters that match
    the same events as another, or only events that another matches too.
    """
    defaults = Defaults(language, mode, read_schema(schema))
    found = read_filters(filter_, filters, defaults)
    subscriptions = [one for one in found if isinstance(one, Subscription)]
    report = look_at(subscriptions, defaults.schema, many=many, pairs=pairs)
    findings = [refusal(one) for one in found if isinstance(one, Refused)] + report.findings
    findings.sort(key=lambda finding: finding.line)
    _write(subscriptions, findings, filters, format_)
    _say_what_is_left_out(report, pairs)
    return _exit_code(findings)


def _say_what_is_left_out(report: Report, pairs: int) -> None:
    if report.left_out:
        say(
            stderr(),
            f"{report.distinct:,} filters make {count(report.left_out, 'pair')}, more than "
            f"{pairs:,}: whether they cover each other was left out; "
            f"--pairs {report.left_out} includes it",
        )
    if report.undecided:
        open_ = count(report.undecided, "question")
        say(stderr(), f"{open_} stayed open, so there may be more to find")


def _exit_code(findings: Sequence[Finding]) -> int:
    levels = {finding.level for finding in findings}
    if Level.ERROR in levels:
        return MISTAKE
    return FINDING if Level.WARNING in levels else FINE


def _write(
    subscriptions: Sequence[Subscription],
    findings: Sequence[Finding],
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


def _write_forms(one: Subscription) -> None:
    shown, simplified = str(one.filter), str(simplify(one.filter, one.mode))
    say(stdout(), f"reads as    {shown}")
    if simplified != shown:
        say(stdout(), f"simplified  {simplified}")


def _write_finding(finding: Finding, path: Path | None) -> None:
    if finding.level is Level.ERROR:
        # The sentence knows the place more precisely than we do.
        text = Text("error: ", _STYLES[finding.level]).append(finding.message, "not bold default")
        say(stdout(), text)
        return
    place = "" if path is None else f"{path}:{finding.line}: {finding.id}: "
    label = Text(f"{finding.level}: ", _STYLES[finding.level])
    say(stdout(), label.append(f"{place}{finding.message}", "not bold default"))


def _write_summary(right: int, findings: Sequence[Finding], path: Path | None) -> None:
    levels = [finding.level for finding in findings]
    found = [count(levels.count(level), level) for level in Level if level in levels]
    if path is not None:
        number = right + levels.count(Level.ERROR)
        say(stderr(), f"{count(number, 'filter')}: {', '.join(found) or 'nothing found'}")
    elif not found:
        say(stderr(), "nothing found")


def _write_json(subscriptions: Sequence[Subscription], findings: Sequence[Finding]) -> None:
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


def _forms(one: Subscription) -> dict[str, str]:
    return {"filter": str(one.filter), "simplified": str(simplify(one.filter, one.mode))}

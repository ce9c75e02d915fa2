"""`tamis match`: which filters does each event satisfy?"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Protocol

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from tamis.analysis.mistakes import MistakeFinder, Sample, tested_attributes
from tamis.analysis.rules import LintRule
from tamis.cli.console import (
    TableFormat,
    printable,
    say,
    stderr,
    stdout,
    write_json,
)
from tamis.cli.event_input import STDIN, EventInput, opened, progress, watched
from tamis.cli.event_output import brief_event, plain_event
from tamis.cli.exits import FINDING, FINE
from tamis.cli.filter_warnings import show_mistakes
from tamis.cli.filters.files import FilterDefaults, NamedFilter, accepted, read_filters
from tamis.cli.filters.match_documents import DocumentsOptions, match_documents
from tamis.cli.filters.outcomes import Matched, matching_of
from tamis.cli.options import (
    FiltersFile,
    LanguageOrQuery,
    ModeOption,
    SchemaFile,
    TableOption,
    argument,
    mistake,
    no_default,
    read_schema,
)
from tamis.errors import JSONError, LimitError
from tamis.events import RejectedLine, Schema
from tamis.filters import Mode
from tamis.languages.registry import QUERY_LANGUAGES
from tamis.units import count

EXAMPLES: Final = """[bold]Examples[/bold]

tamis match 'price < 1000' events.jsonl
tamis match --filters subscriptions.txt --schema schema.json events.jsonl
tamis match --raw 'level = "fatal"' log.jsonl > fatal.jsonl
tamis match --language xql '//line[sku = "chair" $and$ quantity > 5]' orders/
producer | tamis match 'type = "sold"' --cloudevents --only-matched

[bold]Exit code[/bold]

0 an event matched
1 no event matched
2 a filter is not usable, or another mistake"""


ADVICE: Final = "an event is one JSON object on one line; jq -c . converts other JSON to such lines"
ARRAY_ADVICE: Final = (
    "an event is one JSON object on one line; jq -c '.[]' converts an array to such lines"
)


class MatchCounts(Counter[str]):
    """The outcomes of all events: matched, unmatched or rejected."""

    unreadable = 0
    """Lines that are not one JSON object."""
    begins_array = False

    def add(self, outcome: Matched | RejectedLine) -> None:
        """Count one outcome."""
        if isinstance(outcome, RejectedLine):
            self["rejected"] += 1
            self.unreadable += _is_no_object(outcome)
            self.begins_array |= outcome.number == 1 and _begins_array(outcome)
        else:
            self["matched" if outcome.ids else "unmatched"] += 1

    def __str__(self) -> str:
        kinds = ("matched", "unmatched", "rejected")
        parts = ", ".join(f"{self[kind]:,} {kind}" for kind in kinds)
        line = f"{count(self.total(), 'event')}: {parts}"
        if self.begins_array:
            return f"{line}\n{ARRAY_ADVICE}"
        return f"{line}\n{ADVICE}" if 0 < self.unreadable == self.total() else line


def _is_no_object(line: RejectedLine) -> bool:
    """Return whether a line is something else than one JSON object with a mistake in it."""
    if not line.text or isinstance(line.error, LimitError):
        return False
    return _shape(line) != b"{}"


def _begins_array(line: RejectedLine) -> bool:
    return isinstance(line.error, JSONError) and _shape(line)[:1] == b"["


def _shape(line: RejectedLine) -> bytes:
    """Return the first and the last character of a line."""
    text = line.text.encode(errors="replace") if isinstance(line.text, str) else line.text
    text = text.strip()
    return text[:1] + text[1:][-1:]


def match(
    filter_: Annotated[
        str | None,
        argument("FILTER", "The filter, unless --filters names a file of them."),
    ] = None,
    events: Annotated[
        str | None,
        argument(
            "EVENTS",
            "A file with one JSON object per line; for xql and xpath, an XML file or a folder of "
            "them; without one, or with -, standard input.",
        ),
    ] = None,
    *,
    filters: FiltersFile = None,
    mode: ModeOption = Mode.SQL,
    schema: SchemaFile = None,
    language: LanguageOrQuery = "tamis",
    limit: Annotated[
        int | None,
        no_default(min=0, metavar="N", help="Read at most N events."),
    ] = None,
    cloudevents: Annotated[
        bool, typer.Option("--cloudevents", help="Each line is a CloudEvent, or a batch of them.")
    ] = False,
    only_matched: Annotated[
        bool, typer.Option("--only-matched", help="Omit events that match no filter.")
    ] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Write the lines of the events that match, as they were read."),
    ] = False,
    format_: TableOption = TableFormat.AUTO,
) -> int:
    """Match events against filters, and show the ids of the filters that each event satisfies.

    A line that is not an event is rejected: it is reported on standard error, and the remaining
    lines are matched.
    """
    if raw and format_ is not TableFormat.AUTO:
        raise mistake("--raw writes lines as they were read: leave --format out")
    if filters is not None and events is None:
        filter_, events = None, filter_
    if language in QUERY_LANGUAGES:
        _refuse_for_documents(schema, mode, cloudevents=cloudevents, raw=raw)
        options = DocumentsOptions(language, limit, only_matched, format_)
        return match_documents(filter_, filters, events, options)
    _refuse_documents(events)
    defaults = FilterDefaults(language, mode, read_schema(schema))
    named = accepted(read_filters(filter_, filters, defaults))
    _warn(named, filters, defaults.schema)
    name = events or STDIN
    live = name == STDIN
    writer = _writer(named, format_, raw=raw, live=live)
    err = stderr()
    matching = matching_of(
        named,
        defaults.schema,
        input_bytes=None if live else Path(name).stat().st_size,
        watch=lambda all_: watched(all_, "filters", err, visible=sys.stderr.isatty()),
    )
    visible = sys.stderr.isatty() and not (sys.stdout.isatty() and writer.streams)
    with opened(name) as stream, progress(name, err, visible=visible) as advance:
        given = EventInput(stream, defaults.schema, cloudevents, limit, advance)
        found = matching(given)
        sample = Sample(called="the input")
        place = "" if live else f"{name}: "
        counts = _write(found, writer, place, sample, only_matched=only_matched)
    writer.close()
    say(err, str(counts))
    # Lines that are no objects have had their advice.
    if not counts["matched"] and not counts.unreadable:
        _show_why_not(named, filters, sample)
    return FINE if counts["matched"] else FINDING


def _refuse_for_documents(schema: Path | None, mode: Mode, *, cloudevents: bool, raw: bool) -> None:
    """Refuse options that say nothing about XML documents."""
    given = {
        "--schema": (schema is not None, "a query asks for places in a document, not attributes"),
        "--mode": (mode is not Mode.SQL, "a query says itself what it means that nothing is there"),
        "--cloudevents": (cloudevents, "a document is XML, not JSON"),
        "--raw": (raw, "a document is no line: the results have its name"),
    }
    for option, (is_given, why) in given.items():
        if is_given:
            raise mistake(f"{option} is not for xql and xpath: {why}; leave it out")


def _refuse_documents(name: str | None) -> None:
    """Refuse what is probably XML, and would be rejected line by line."""
    if name is None or name == STDIN:
        return
    is_xml = name.endswith(".xml")
    if is_xml or next(Path(name).glob("*.xml"), None) is not None:
        what = "is XML" if is_xml else "is a folder of XML"
        raise mistake(
            f"{name} {what}, and filters are for lines of JSON; for XML documents, write a query "
            "with --language xql or --language xpath"
        )


def _warn(named: Sequence[NamedFilter], path: Path | None, schema: Schema | None) -> None:
    """Warn of probable mistakes: of a filter in the command line one by one, in a file in total."""
    known = schema if schema is not None else tested_attributes(one.filter for one in named)
    finder = MistakeFinder(known)
    found = [list(finder.find(one.filter, one.text, one.language)) for one in named]
    if path is None:
        show_mistakes(found[0])
    elif any(found):
        many = count(sum(map(bool, found)), "filter")
        say(stderr(), f"warning: {many} may be mistaken: tamis check --filters {path} says why")


def _show_why_not(named: Sequence[NamedFilter], path: Path | None, sample: Sample) -> None:
    """Say what of the filters no event can satisfy, given what the events hold."""
    finder = MistakeFinder((), sample)
    found = {
        mistake.message: None
        for one in named
        for mistake in finder.find(one.filter, one.text, one.language)
        if mistake.rule in _RULES_OF_SAMPLES
    }
    shown = list(found)[: MAX_REASONS if path is None else 1]
    for message in shown:
        say(stderr(), f"hint: {message}")
    if len(found) > len(shown):
        say(stderr(), "hint: tamis check --sample EVENTS says more")


_RULES_OF_SAMPLES: Final = frozenset({LintRule.UNKNOWN_ATTRIBUTE, LintRule.OTHER_KIND})
MAX_REASONS: Final = 5
# Reading an event whole takes as long as matching it.
MAX_SAMPLED_EVENTS: Final = 10_000


def _writer(
    named: Sequence[NamedFilter], format_: TableFormat, *, raw: bool, live: bool
) -> MatchWriter:
    if raw:
        return RawLines(flush=live)
    return MatchTable(named) if format_.is_table else MatchLines(flush=live)


def _write(
    found: Iterable[Matched | RejectedLine],
    writer: MatchWriter,
    place: str,
    sample: Sample,
    *,
    only_matched: bool,
) -> MatchCounts:
    """Write all outcomes, and add events to the sample until one matches."""
    counts, err = MatchCounts(), stderr()
    for outcome in found:
        counts.add(outcome)
        if not counts["matched"] and isinstance(outcome, Matched):
            if sample.count < MAX_SAMPLED_EVENTS:
                sample.add(outcome.event)
            else:
                sample.called = f"the first {MAX_SAMPLED_EVENTS:,} events"
        if isinstance(outcome, RejectedLine):
            say(err, f"rejected: {place}{outcome.error}")
        elif outcome.ids or not only_matched:
            writer.write(outcome)
    return counts


# A table is built in memory, and nobody reads more rows.
MAX_TABLE_ROWS: Final = 1000

# What rich puts between and beside three columns.
_PADDING_WIDTH: Final = 8


class MatchWriter(Protocol):
    """Writes matches one by one."""

    streams: ClassVar[bool]
    """Whether matches appear as they are written, not at the end."""

    def write(self, matched: Matched) -> None:
        """Write or keep a match."""

    def close(self) -> None:
        """Write the matches that were kept."""


class RawLines:
    """Writes the lines of events that match, once each, as they were read."""

    streams: ClassVar[bool] = True

    def __init__(self, *, flush: bool) -> None:
        self._flush = flush
        self._last = 0

    def write(self, matched: Matched) -> None:
        """Write the line, unless no filter matched, or another event of the line has."""
        if not matched.ids or matched.line == self._last:
            return
        self._last = matched.line
        out = sys.stdout.buffer
        out.write(matched.text if matched.text.endswith(b"\n") else matched.text + b"\n")
        if self._flush:
            out.flush()

    def close(self) -> None:
        """Do nothing: everything is written."""


class MatchLines:
    """Writes each match as a line of JSON."""

    streams: ClassVar[bool] = True

    def __init__(self, *, flush: bool) -> None:
        self._flush = flush

    def write(self, matched: Matched) -> None:
        """Write one line."""
        event = plain_event(matched.event)
        write_json({"line": matched.line, "filters": matched.ids, "event": event})
        if self._flush:
            sys.stdout.flush()

    def close(self) -> None:
        """Do nothing: everything is written."""


class MatchTable:
    """Writes a table of events with their filters, and one of filters with their events."""

    streams: ClassVar[bool] = False

    def __init__(self, named: Sequence[NamedFilter]) -> None:
        self._filters = named
        self._rows: list[Matched] = []
        self._left_out = 0
        self._counts: Counter[str] = Counter()

    def write(self, matched: Matched) -> None:
        """Keep a row, up to a limit."""
        self._counts.update(matched.ids)
        if len(self._rows) < MAX_TABLE_ROWS:
            self._rows.append(matched)
        else:
            self._left_out += 1

    def close(self) -> None:
        """Write the tables."""
        console = stdout()
        if self._rows:
            console.print(self._by_event(console.width))
        if self._left_out:
            say(console, f"and {count(self._left_out, 'more event')}; --format json has them all")
        if len(self._filters) > 1:
            console.print(self._by_filter())

    def _by_event(self, width: int) -> Table:
        # Without a limit, the event would take all the width: it is long and does not wrap.
        ids_width = min(max(len(" ".join(row.ids)) for row in self._rows), width * 2 // 5)
        ids_width = max(ids_width, len("filters"))
        line_width = max(len(str(self._rows[-1].line)), len("line"))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("line", justify="right", style="dim", width=line_width)
        table.add_column("filters", width=ids_width, overflow="fold")
        rest = max(width - line_width - ids_width - _PADDING_WIDTH, len("event"))
        table.add_column("event", max_width=rest, no_wrap=True, overflow="ellipsis")
        for row in self._rows:
            ids = Text(" ".join(row.ids), "green") if row.ids else Text("none", "dim")
            event = Text(printable(brief_event(row.event)), "" if row.ids else "dim")
            table.add_row(str(row.line), ids, event)
        return table

    def _by_filter(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("filter", style="green", overflow="fold")
        table.add_column("events", justify="right")
        table.add_column("matches where")
        for one in self._filters:
            condition = Text(printable(str(one.filter)))
            table.add_row(one.id, f"{self._counts[one.id]:,}", condition)
        return table

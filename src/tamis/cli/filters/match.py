"""`tamis match`: which filters does each event satisfy?"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Annotated, Final

import typer
from rich.console import Console

from tamis.cli.console import count, say, stderr
from tamis.cli.event_input import STDIN, opened, progress, read_events
from tamis.cli.exits import FINDING, FINE
from tamis.cli.filters.files import Defaults, Subscription, accepted, read_filters
from tamis.cli.filters.match_output import JSONLines, Matched, MatchTable, MatchWriter
from tamis.cli.options import FiltersFile, Language, ModeOption, SchemaFile, read_schema
from tamis.errors import EventError, LimitError
from tamis.events import DecodedLine, RejectedLine, Schema
from tamis.events.places import inside
from tamis.filters import Mode

EXAMPLES: Final = """[bold]Examples[/bold]

tamis match 'price < 1000' events.jsonl
tamis match --filters subscriptions.txt --schema schema.json events.jsonl
producer | tamis match 'type = "sold"' --cloudevents --only-matched

[bold]Exit code[/bold]

0 an event matched
1 no event matched
2 a filter cannot be used, or another mistake"""


ADVICE: Final = "an event is one JSON object on one line; jq -c . makes such lines of other JSON"


class MatchFormat(StrEnum):
    """How the matches are written."""

    AUTO = "auto"
    TABLE = "table"
    JSON = "json"


class Tally(Counter[str]):
    """What became of the events: matched + unmatched + rejected is all of them."""

    unreadable = 0

    def add(self, outcome: Matched | RejectedLine) -> None:
        """Count one more."""
        if isinstance(outcome, RejectedLine):
            self["rejected"] += 1
            self.unreadable += bool(outcome.text)
        else:
            self["matched" if outcome.ids else "unmatched"] += 1

    def __str__(self) -> str:
        kinds = ("matched", "unmatched", "rejected")
        parts = ", ".join(f"{self[kind]:,} {kind}" for kind in kinds)
        line = f"{count(self.total(), 'event')}: {parts}"
        return f"{line}\n{ADVICE}" if 0 < self.unreadable == self.total() else line


def match(
    filter_: Annotated[
        str | None,
        typer.Argument(
            metavar="FILTER",
            help="The filter, unless --filters names a file of them.",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        str | None,
        typer.Argument(
            metavar="EVENTS",
            help="A file with one JSON object per line; without one, or with -, standard input.",
            show_default=False,
        ),
    ] = None,
    *,
    filters: FiltersFile = None,
    mode: ModeOption = Mode.SQL,
    schema: SchemaFile = None,
    language: Language = "tamis",
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Read no more than this many events.", show_default=False
        ),
    ] = None,
    cloudevents: Annotated[
        bool, typer.Option("--cloudevents", help="Each line is a CloudEvent, or a batch of them.")
    ] = False,
    only_matched: Annotated[
        bool, typer.Option("--only-matched", help="Leave out events that match no filter.")
    ] = False,
    format_: Annotated[
        MatchFormat,
        typer.Option("--format", help="auto is a table in a terminal, JSON lines elsewhere."),
    ] = MatchFormat.AUTO,
) -> int:
    """Match events against filters, and show for each event the ids of the filters it satisfies.

    A line that holds no event is rejected: it is named on standard error, and the rest goes on.
    """
    if filters is not None and events is None:
        filter_, events = None, filter_
    defaults = Defaults(language, mode, read_schema(schema))
    subscriptions = accepted(read_filters(filter_, filters, defaults))
    name = events or STDIN
    writer = _writer(format_, subscriptions, flush=name == STDIN)
    err = stderr()
    visible = sys.stderr.isatty() and not (sys.stdout.isatty() and isinstance(writer, JSONLines))
    with opened(name) as stream, progress(name, err, visible=visible) as advance:
        lines = read_events(stream, defaults.schema, cloudevents=cloudevents, advance=advance)
        found = outcomes(islice(lines, limit), subscriptions, defaults.schema)
        tally = _write(found, writer, err, only_matched=only_matched)
    writer.close()
    say(err, str(tally))
    return FINE if tally["matched"] else FINDING


def _write(
    found: Iterable[Matched | RejectedLine],
    writer: MatchWriter,
    err: Console,
    *,
    only_matched: bool,
) -> Tally:
    tally = Tally()
    for outcome in found:
        tally.add(outcome)
        if isinstance(outcome, RejectedLine):
            say(err, f"rejected: {outcome.error}")
        elif outcome.ids or not only_matched:
            writer.write(outcome)
    return tally


def outcomes(
    lines: Iterable[DecodedLine | RejectedLine],
    subscriptions: Sequence[Subscription],
    schema: Schema | None,
) -> Iterator[Matched | RejectedLine]:
    """Yield for every line the filters that its event satisfies, or why it is rejected."""
    for line in lines:
        yield line if isinstance(line, RejectedLine) else _outcome(line, subscriptions, schema)


def _outcome(
    line: DecodedLine, subscriptions: Sequence[Subscription], schema: Schema | None
) -> Matched | RejectedLine:
    try:
        ids = [one.id for one in subscriptions if one.filter.matches(line.event, one.mode, schema)]
    except (EventError, LimitError) as error:
        # It could be read, but in mode `total` it lacks an attribute.
        return RejectedLine(line.number, "", inside(f"line {line.number}", error))
    return Matched(line.number, line.event, ids)


def _writer(
    format_: MatchFormat, subscriptions: Sequence[Subscription], *, flush: bool
) -> MatchWriter:
    as_table = sys.stdout.isatty() if format_ is MatchFormat.AUTO else format_ is MatchFormat.TABLE
    return MatchTable(subscriptions) if as_table else JSONLines(flush=flush)

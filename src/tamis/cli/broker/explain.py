"""`tamis explain`: why an event matches a filter, or why not."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from tamis.cli.broker.connection import BrokerTarget, with_broker
from tamis.cli.console import Format, say, stdout, write_json
from tamis.cli.event_output import plain_event
from tamis.cli.exits import FINDING, FINE
from tamis.cli.filter_warnings import parse_argument, warn_of_mistakes
from tamis.cli.options import (
    FormatOption,
    Language,
    SchemaFile,
    argument,
    mistake,
    no_default,
    read_schema,
)
from tamis.errors import EventError, LimitError
from tamis.events import Event, Schema, decode_json
from tamis.events.json_lines import in_line
from tamis.events.places import inside
from tamis.filters import Mode
from tamis.filters.modes import as_mode
from tamis.protocol.management import (
    ExplainFilter,
    ExplainSubscription,
    ExplanationView,
    ManagementCall,
)
from tamis.units import count

EXAMPLES: Final = """[bold]Examples[/bold]

tamis explain 'price < 5 and symbol = "ACME"' '{"symbol": "ACME", "price": 7}'
tamis explain 'price < 5' events.jsonl --line 3 --format json
tamis explain 'price < 5' '{"price": 7}' --url https://broker.example
tamis explain --subscription laptop-7 '{"symbol": "ACME", "price": 7}'

[bold]Exit code[/bold]

0 the event matches
1 it does not
2 a mistake, or the broker refused"""

STDIN: Final = "-"


@with_broker
def explain(
    target: BrokerTarget,
    words: Annotated[
        list[str],
        argument(
            "[FILTER] EVENT",
            "A filter, unless --subscription names one, and an event: as JSON, or a file of JSON "
            "lines, or - for standard input.",
        ),
    ],
    *,
    subscription: Annotated[
        str | None,
        no_default("--subscription", "-i", metavar="ID", help="One of your subscriptions."),
    ] = None,
    schema: SchemaFile = None,
    language: Language = "tamis",
    mode: Annotated[
        str | None,
        no_default(
            "--mode",
            "-m",
            metavar="MODE",
            help=f"What an absent attribute means: {', '.join(Mode)}; by default sql, or what the "
            "broker is set to.",
        ),
    ] = None,
    line: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="The line of the event, in a file.", show_default="1"
        ),
    ] = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Explain why an event matches a filter or a subscription, or why not.

    With --subscription or --url, the broker explains, with its schema, its mode and your rights;
    nothing is published. Otherwise no broker is needed.
    """
    if len(words) != (2 if subscription is None else 1):
        raise mistake("give a filter and an event, or --subscription ID and an event")
    if subscription is None:
        _check_order(words[0], words[1], language)
        warn_of_mistakes(words[0], language, read_schema(schema))
    event = _event_text(words[-1], line)
    if subscription is None and target.url is None:
        found = _explain_here(words[0], event, language, as_mode(mode or Mode.SQL), schema)
    elif schema is not None:
        raise mistake("the broker has its own schema: leave --schema out")
    else:
        sample = msgspec.Raw(event.text)
        chosen = None if mode is None else as_mode(mode)
        found = _ask(
            target,
            ExplainFilter(words[0], sample, language, chosen)
            if subscription is None
            else ExplainSubscription(subscription, sample),
        )
    if format_ is Format.JSON:
        write_json(found)
    else:
        say(stdout(), found["explanation"])
    return FINE if found["matched"] else FINDING


def _explain_here(
    text: str, event: EventText, language: str, mode: Mode, schema_file: Path | None
) -> dict[str, Any]:
    # The analysis takes a while to load.
    from tamis.analysis.explain import explain as explain_match  # noqa: PLC0415

    schema = read_schema(schema_file)
    filter_ = parse_argument(text, language)
    bound = filter_ if schema is None else filter_.bind(schema)
    sample = event.decode(schema)
    found = explain_match("", bound, mode, sample, schema)
    return {
        "matched": found.matched,
        "truth": bound.truth(sample, mode, schema),
        "explanation": str(found),
        "reasons": [
            {"test": str(reason.atom), "truth": reason.truth, "reason": reason.sentence}
            for reason in found.reasons
        ],
        "change": None if found.changed is None else _change(found.change or {}, found.changed),
    }


def _change(change: dict[str, object], changed: Event) -> dict[str, object]:
    """Return the new values of the attributes that change, null for one to remove."""
    new = plain_event(changed)
    return {name: new.get(name) for name in change}


def _ask(target: BrokerTarget, call: ManagementCall[ExplanationView]) -> dict[str, Any]:
    found = target.call(lambda bus: bus.call(call))
    return {"matched": found.matched, "explanation": found.explanation}


# --- the event -----------------------------------------------------------------------------------


class EventText(NamedTuple):
    """The text of one event, and where it stands."""

    text: bytes
    source: str = "the event"
    """What it was read from."""
    line: int | None = None
    """The line there, if there is an event on each."""

    def decode(self, schema: Schema | None) -> Event:
        """Return the event, or raise an error that names the place."""
        try:
            return decode_json(self.text, schema=schema)
        except (EventError, LimitError) as error:
            placed = error if self.line is None else in_line(self.line, error)
            raise inside(self.source, placed) from None


def _check_order(filter_: str, event: str, language: str) -> None:
    is_first_event = os.path.isfile(filter_) or (
        filter_.lstrip().startswith("{") and language != "siena"
    )
    is_last_event = event == STDIN or _is_json(event) or os.path.isfile(event)
    if is_first_event and not is_last_event:
        raise mistake(f"{filter_:.60} is an event, not a filter: the filter comes first")


def _is_json(given: str) -> bool:
    """Return whether an argument is an event; an array is meant as one."""
    return given.lstrip().startswith(("{", "["))


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise mistake(
            f"{file} is neither an event as JSON nor a file that can be read: {error.strerror}"
        ) from None


def _event_text(given: str, line: int | None) -> EventText:
    """Return the text of one event, from the command line, a file or standard input."""
    if _is_json(given):
        if line is not None:
            raise mistake("--line is for events in a file: leave it out")
        return EventText(given.encode())
    content = sys.stdin.buffer.read() if given == STDIN else _read(given)
    source = "standard input" if given == STDIN else given
    # A file may also hold one event on several lines.
    if line is None and content.split(b"\n", 1)[0].strip() == b"{":
        return EventText(content, source)
    lines, number = content.removesuffix(b"\n").split(b"\n"), line or 1
    if number > len(lines):
        raise mistake(f"{source} has {count(len(lines), 'line')}, so there is no line {number:,}")
    return EventText(lines[number - 1], source, number)

"""`tamis explain`: why an event matches a filter, or why not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tamis.cli.broker.connection import BrokerTarget, with_broker
from tamis.cli.broker.samples import SampleText, is_sample, sample_text
from tamis.cli.console import Format, say, stdout, write_json
from tamis.cli.event_output import plain_event
from tamis.cli.exits import FINDING, FINE
from tamis.cli.filter_warnings import parse_argument, warn_of_mistakes
from tamis.cli.options import (
    FormatOption,
    LanguageOrQuery,
    SchemaFile,
    argument,
    mistake,
    no_default,
    read_schema,
)
from tamis.events import Event
from tamis.filters import Mode
from tamis.filters.modes import as_mode
from tamis.languages.registry import QUERY_LANGUAGES
from tamis.protocol.management import (
    ExplainFilter,
    ExplainSubscription,
    ExplanationView,
    ManagementCall,
)

if TYPE_CHECKING:
    from tamis.analysis.explain import Explanation

EXAMPLES: Final = """[bold]Examples[/bold]

tamis explain 'price < 5 and symbol = "ACME"' '{"symbol": "ACME", "price": 7}'
tamis explain 'price < 5' events.jsonl --line 3 --format json
tamis explain 'price < 5' '{"price": 7}' --url https://broker.example
tamis explain --subscription laptop-7 '{"symbol": "ACME", "price": 7}'
tamis explain --language xql '//line/sku = "chair"' order.xml

[bold]Exit code[/bold]

0 the event matches
1 it does not
2 a mistake, or the broker refused"""


@with_broker
def explain(
    target: BrokerTarget,
    words: Annotated[
        list[str],
        argument(
            "[FILTER] EVENT",
            "A filter, unless --subscription names one, and an event: as JSON, an XML document, a "
            "file of JSON lines or of one document, or - for standard input.",
        ),
    ],
    *,
    subscription: Annotated[
        str | None,
        no_default("--subscription", "-i", metavar="ID", help="One of your subscriptions."),
    ] = None,
    schema: SchemaFile = None,
    language: LanguageOrQuery = "tamis",
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
    event = sample_text(words[-1], line)
    if subscription is None and target.url is None:
        found = _explain_here(words[0], event, language, as_mode(mode or Mode.SQL), schema)
    elif schema is not None:
        raise mistake("the broker has its own schema: leave --schema out")
    else:
        sample = event.encode()
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
    text: str, event: SampleText, language: str, mode: Mode, schema_file: Path | None
) -> dict[str, Any]:
    if event.is_document or language in QUERY_LANGUAGES:
        found = _explain_document(text, event, language, mode, schema_file)
        return _shown(found, found.matched)
    # The analysis takes a while to load.
    from tamis.analysis.explain import explain as explain_match  # noqa: PLC0415

    schema = read_schema(schema_file)
    filter_ = parse_argument(text, language)
    bound = filter_ if schema is None else filter_.bind(schema)
    sample = event.decode(schema)
    found = explain_match("", bound, mode, sample, schema)
    return _shown(found, bound.truth(sample, mode, schema))


def _explain_document(
    text: str, event: SampleText, language: str, mode: Mode, schema_file: Path | None
) -> Explanation:
    """Explain a filter over a document, or a query; these need the extra `xml`, and an engine."""
    from tamis.matching import Engine  # noqa: PLC0415

    if schema_file is not None:
        raise mistake("--schema is for events in JSON, not for XML and queries: leave it out")
    if language in QUERY_LANGUAGES and mode is not Mode.SQL:
        raise mistake(
            f"--mode is not for {language}: a query says itself what it means that nothing is "
            "there; leave it out"
        )
    engine = Engine(mode=mode)
    if language in QUERY_LANGUAGES:
        engine.add("", text, language=language)
    else:
        engine.add("", parse_argument(text, language))
    return engine.explain("", event.document() if event.is_document else event.decode(None))


def _shown(found: Explanation, truth: bool | None) -> dict[str, Any]:
    return {
        "matched": found.matched,
        "truth": truth,
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


def _check_order(filter_: str, event: str, language: str) -> None:
    is_first_event = os.path.isfile(filter_) or (
        filter_.lstrip().startswith(("{", "<")) and language != "siena"
    )
    if is_first_event and not is_sample(event):
        raise mistake(f"{filter_:.60} is an event, not a filter: the filter comes first")

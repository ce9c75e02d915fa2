"""`tamis compare`: which events two filters have in common."""

from __future__ import annotations

from typing import Annotated, Final

from tamis.cli.console import Format, say, stdout, write_json
from tamis.cli.event_output import plain_event, show_event
from tamis.cli.exits import FINE
from tamis.cli.filters.files import FilterDefaults, NamedFilter, read_argument
from tamis.cli.options import (
    FormatOption,
    Language,
    Many,
    ModeOption,
    SchemaFile,
    Steps,
    argument,
    read_schema,
)
from tamis.diagrams import Answer, Comparison
from tamis.diagrams import compare as compare_filters
from tamis.diagrams.relations import BUDGET_STEPS
from tamis.errors import FilterError, FilterSyntaxError
from tamis.filters import Mode

EXAMPLES: Final = """[bold]Examples[/bold]

tamis compare 'price < 10' 'price between 5 and 20'
tamis compare --mode strict 'price < 10 or price >= 10' 'price is present'

[bold]Exit code[/bold]

0 both filters are usable, whatever the answer
2 a filter is not usable, or another mistake"""


def compare(
    one: Annotated[str, argument("A", "A filter.")],
    other: Annotated[str, argument("B", "A filter.")],
    *,
    mode: ModeOption = Mode.SQL,
    schema: SchemaFile = None,
    language: Language = "tamis",
    many: Many = False,
    steps: Steps = BUDGET_STEPS,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Compare two filters: does A cover B, does B cover A, are they equal, do they overlap?

    Events illustrate the answer: one that only A matches, one that only B matches, one of both.
    """
    defaults = FilterDefaults(language, mode, read_schema(schema))
    a, b = _read("A", one, defaults), _read("B", other, defaults)
    schema_ = defaults.schema
    found = compare_filters(a.filter, b.filter, mode=mode, schema=schema_, many=many, budget=steps)
    multivalued = None
    if schema_ is None and not many:
        multivalued = compare_filters(a.filter, b.filter, mode=mode, many=True, budget=steps)
        multivalued = multivalued if _verdict(multivalued) != _verdict(found) else None
    if format_ is Format.JSON:
        _write_json(a, b, found, multivalued)
    else:
        _write_text(a, b, found, multivalued)
    return FINE


def _read(name: str, text: str, defaults: FilterDefaults) -> NamedFilter:
    try:
        return read_argument(text, defaults)
    except FilterSyntaxError as error:
        reason = f"{name}: {error.reason}"
        raise FilterSyntaxError(
            reason, text=error.text, offset=error.offset, hint=error.hint
        ) from None
    except FilterError as error:
        raise FilterError(f"{name}: {error}") from None


def _verdict(found: Comparison) -> tuple[bool, bool, bool]:
    return found.covers.yes, found.covered.yes, found.meets.yes


def _write_text(
    a: NamedFilter, b: NamedFilter, found: Comparison, multivalued: Comparison | None
) -> None:
    out = stdout()
    say(out, f"A  {a.filter}\nB  {b.filter}")
    say(out, _sentence(found), "bold")
    say(out, _events(found))
    if multivalued is not None:
        say(out, "This assumes one value per attribute. With several:")
        say(out, f"{_sentence(multivalued)}\n{_events(multivalued)}")


def _sentence(found: Comparison) -> str:
    sure = "" if found.exact else " (not certain)"
    return f"A {found.relationship.value} B{sure}.{_emptiness(found)}"


def _emptiness(found: Comparison) -> str:
    """Say which filter matches nothing: it is covered by a filter it does not overlap."""
    if found.meets:
        return ""
    empty = [name for name, yes in (("A", found.covered), ("B", found.covers)) if yes]
    if not empty:
        return ""
    return f" No event matches {' or '.join(empty)}."


def _events(found: Comparison) -> str:
    return "\n".join(
        (
            f"  only A  {_event(found.covered, none=found.covered.yes)}",
            f"  only B  {_event(found.covers, none=found.covers.yes)}",
            f"  both    {_event(found.meets, none=not found.meets.yes)}",
        )
    )


def _event(answer: Answer, *, none: bool) -> str:
    if answer.event is not None:
        return show_event(answer.event)
    return "no event" if none else f"not certain: {answer.reason}"


def _write_json(
    a: NamedFilter, b: NamedFilter, found: Comparison, multivalued: Comparison | None
) -> None:
    data = {"a": str(a.filter), "b": str(b.filter), **_plain(found)}
    if multivalued is not None:
        data["with_several_values"] = _plain(multivalued)
    write_json(data)


def _plain(found: Comparison) -> dict[str, object]:
    return {
        "relationship": found.relationship.name.lower(),
        "exact": found.exact,
        "only_a": _plain_witness(found.covered),
        "only_b": _plain_witness(found.covers),
        "both": _plain_witness(found.meets),
    }


def _plain_witness(answer: Answer) -> dict[str, object] | None:
    return None if answer.event is None else plain_event(answer.event)

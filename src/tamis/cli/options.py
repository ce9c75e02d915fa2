"""The options that commands share, and the schema file that one of them names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from tamis.cli.console import Format, TableFormat
from tamis.errors import SchemaError
from tamis.events import Schema, decode_schema
from tamis.filters import Mode
from tamis.languages.registry import LANGUAGES, QUERY_LANGUAGES


def no_default(*names: str, **details: Any) -> Any:
    """Return an option whose help shows no default."""
    return typer.Option(*names, show_default=False, **details)


def argument(metavar: str, help_: str) -> Any:
    """Return an argument whose help shows no default."""
    return typer.Argument(metavar=metavar, help=help_, show_default=False)


FiltersFile = Annotated[
    Path | None,
    no_default(
        "--filters",
        "--file",
        "-f",
        metavar="FILE",
        help="Read filters from a file, one per line, instead of one from the command line.",
    ),
]
ModeOption = Annotated[
    Mode,
    typer.Option(
        "--mode",
        "-m",
        metavar="MODE",
        help=f"What an absent attribute means: {', '.join(Mode)}.",
    ),
]
SchemaFile = Annotated[
    Path | None,
    no_default(
        "--schema", "-s", metavar="FILE", help="Types and defaults of attributes, as a JSON file."
    ),
]
Language = Annotated[
    str,
    typer.Option(
        "--language",
        "-l",
        metavar="NAME",
        help=f"The language of the filters: {', '.join(LANGUAGES)}.",
        autocompletion=lambda: list(LANGUAGES),
    ),
]
LanguageOrQuery = Annotated[
    str,
    typer.Option(
        "--language",
        "-l",
        metavar="NAME",
        help=f"The language of the filters: {', '.join(LANGUAGES)}; for XML documents, "
        f"{' or '.join(QUERY_LANGUAGES)}.",
        autocompletion=lambda: [*LANGUAGES, *QUERY_LANGUAGES],
    ),
]
Many = Annotated[
    bool,
    typer.Option(
        "--many",
        help="Attributes may have several values. With a schema, the schema decides.",
    ),
]
Steps = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Spend at most N steps on a question; beyond, the safe answer is given.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="For people or for programs.")]
TableOption = Annotated[
    TableFormat,
    typer.Option("--format", help="auto is a table in a terminal, JSON lines elsewhere."),
]


def mistake(message: str) -> typer.TyperException:
    """Return the error for a wrong command line."""
    return typer.TyperException(message)


def read_schema(path: Path | None) -> Schema | None:
    """Return the schema in a file, or None without a file."""
    if path is None:
        return None
    try:
        return decode_schema(path.read_bytes())
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from None


def option_parameter(name: str, kind: Any) -> Parameter:
    """Return the parameter of a command for an option that may be left out."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def declare_parameters(command: Callable[..., int], parameters: Sequence[Parameter]) -> None:
    """Declare the parameters of a command that takes `**options`."""
    # Typer reads both.
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": int}

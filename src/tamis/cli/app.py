"""The command line as a whole, and the one place that turns errors into messages."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, NoReturn

import typer

import tamis
from tamis.cli.console import say_error
from tamis.cli.exits import MISTAKE, PIPE_CLOSED
from tamis.cli.lazy_commands import HELP_NAMES, LazyCommands
from tamis.errors import TamisError


class CommandGroup(LazyCommands):
    """Commands that return their exit code; a user's mistake exits with a message and code 2."""

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run a command and exit with its code."""
        options["standalone_mode"] = False
        try:
            code = super().main(*args, **options)
        except typer.TyperException as error:
            # Typer leaves this trace of the library that checks its values.
            code = _report_mistake(error.format_message().replace(": Value error, ", ": "))
        sys.exit(code)

    def invoke(self, ctx: Any) -> object:
        """Run a command and return its exit code."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output is gone; the interpreter must not find out again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return PIPE_CLOSED
        except TamisError as error:
            return _report_mistake(str(error))
        except OSError as error:
            return _report_mistake(
                f"{error.filename or 'the input'} cannot be read: {error.strerror}"
            )
        return code


def _report_mistake(message: str) -> int:
    # Empty if no command was given: the help has been shown then.
    if message:
        say_error(message)
    return MISTAKE


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_NAMES},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tamis {tamis.__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Match events against filters, in this process, through a broker or on Spark."""

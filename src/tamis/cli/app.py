"""The command line as a whole, and the one place that turns errors into messages."""

from __future__ import annotations

import errno
import os
import re
import sys
from typing import Annotated, Any, Final, NoReturn

import typer

import tamis
from tamis.cli.console import say_error
from tamis.cli.exits import MISTAKE, PIPE_CLOSED
from tamis.cli.lazy_commands import HELP_NAMES, LazyCommands
from tamis.errors import DisconnectedError, OptionError, TamisError


class CommandGroup(LazyCommands):
    """Commands that return their exit code; a user's mistake exits with a message and code 2."""

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run a command and exit with its code."""
        options["standalone_mode"] = False
        try:
            code = super().main(*args, **options)
        except typer.TyperException as error:
            code = _report_mistake(_in_our_words(error.format_message()))
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
        except OptionError as error:
            return _report_mistake(f"{_FLAGS.get(error.option, error.option)} {error.reason}")
        except TamisError as error:
            return _report_mistake(f"{error}{_advice(error)}")
        except OSError as error:
            return _report_mistake(
                f"{error.filename or 'the input'} cannot be read: {error.strerror}"
            )
        return code


def _advice(error: TamisError) -> str:
    """Return what to do if nothing listens where a broker should be."""
    if not isinstance(error, DisconnectedError) or not str(error).endswith(_NOBODY_LISTENS):
        return ""
    return (
        "; is a broker running there? tamis serve starts one, which compiles for about a minute "
        "the first time; --url or TAMIS_URL names another address"
    )


_NOBODY_LISTENS: Final = os.strerror(errno.ECONNREFUSED)

# What the command line calls options of the client.
_FLAGS: Final = {
    "start": "--from",
    "end": "--to",
    "ordering_key": "--ordering-key",
    "max_attempts": "--max-attempts",
    **{name: f"--{name}" for name in ("durable", "group", "lifetime", "roaming", "timeout")},
}

# Words of other tools, and our commands.
_SYNONYMS: Final = {
    **dict.fromkeys(("lint", "validate"), "check"),
    **dict.fromkeys(("filter", "grep"), "match"),
    **dict.fromkeys(("publish", "produce", "send"), "pub"),
    **dict.fromkeys(("subscribe", "consume", "listen"), "sub"),
    **dict.fromkeys(("broker", "run", "server", "start"), "serve"),
    **dict.fromkeys(("cover", "covers", "diff"), "compare"),
}

# What the library that checks Typer's values says, and what we say.
_PHRASES: Final = (
    # It could be a filter: options have two hyphens, but for some of one letter.
    (r"^(No such option: --policy)$", r"\1; what happens to a slow subscriber is --overflow"),
    (r"^(No such option: -e)$", r"\1, which pub has; here an event is an argument, without it"),
    (r"^(No such option: -\w)$", r"\1; before a filter that begins with a hyphen, write --"),
    (r": Value error, ", ": "),
    (r"Input should be a valid integer, .*", "it is not a whole number"),
    (r"Input should be a valid number, .*", "it is not a number"),
    (r"Input should be greater than or equal to (\S+)", r"it must be at least \1"),
    (r"Input should be less than or equal to (\S+)", r"it must be at most \1"),
    (r"Input should be greater than (\S+)", r"it must be more than \1"),
    (r"Input should be less than (\S+)", r"it must be less than \1"),
    (r"Input should ", "it should "),
)


def _in_our_words(message: str) -> str:
    unknown = re.fullmatch(r"No such command '(\w+)'\.", message)
    if unknown and unknown[1] in _SYNONYMS:
        return f"{message} Did you mean '{_SYNONYMS[unknown[1]]}'?"
    for theirs, ours in _PHRASES:
        message = re.sub(theirs, ours, message)
    return message


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

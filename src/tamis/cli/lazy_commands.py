"""The table of commands: `tamis --help` reads it, and a command loads its module when it runs."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from tamis.cli.help_text import flowing
from tamis.errors import MissingExtraError

HELP_NAMES: Final = ["--help", "-h"]


class CommandEntry(NamedTuple):
    """A command: a line for the list of commands, and where to find the rest."""

    summary: str
    target: str
    """The module and, after a colon, its function or group of commands."""
    examples: str = "EXAMPLES"
    """The name of the text below the help, in the same module."""
    needs_arguments: bool = False


COMMANDS: Final = {
    "match": CommandEntry(
        "Show which filters each event satisfies.",
        "tamis.cli.filters.match:match",
        needs_arguments=True,
    ),
    "check": CommandEntry(
        "Check filters against a schema, and warn of probable mistakes.",
        "tamis.cli.filters.check:check",
        needs_arguments=True,
    ),
    "compare": CommandEntry(
        "Compare two filters: covering, equivalence, intersection.",
        "tamis.cli.filters.compare:compare",
        needs_arguments=True,
    ),
    "serve": CommandEntry("Run a broker.", "tamis.cli.broker.serve:serve"),
    "pub": CommandEntry("Publish events.", "tamis.cli.broker.pub:pub"),
    "sub": CommandEntry(
        "Subscribe to a filter, and show events as they arrive.",
        "tamis.cli.broker.sub:sub",
        "SUB_EXAMPLES",
        needs_arguments=True,
    ),
    "tail": CommandEntry(
        "Show all events that you may see, as they arrive.",
        "tamis.cli.broker.sub:tail",
        "TAIL_EXAMPLES",
    ),
    "history": CommandEntry(
        "Show past events that match a filter.", "tamis.cli.broker.history:history"
    ),
    "advertise": CommandEntry(
        "Say what will be published, and show whether anybody wants it.",
        "tamis.cli.broker.advertise:advertise",
        needs_arguments=True,
    ),
    "query": CommandEntry(
        "Ask the data sources for the rows that match a filter.",
        "tamis.cli.broker.query:query",
        needs_arguments=True,
    ),
    "source": CommandEntry(
        "Answer queries with the rows of a table.",
        "tamis.cli.broker.source:source",
        needs_arguments=True,
    ),
    "subscriptions": CommandEntry(
        "List, show, change and delete subscriptions.",
        "tamis.cli.broker.subscriptions:subscriptions",
    ),
    "explain": CommandEntry(
        "Explain why an event matches a filter or a subscription, or why not.",
        "tamis.cli.broker.explain:explain",
        needs_arguments=True,
    ),
    "status": CommandEntry(
        "Show the state of the broker; for administrators.", "tamis.cli.broker.status:status"
    ),
    "token": CommandEntry(
        "Issue, list and revoke tokens; for administrators.", "tamis.cli.broker.token:token"
    ),
    "peer": CommandEntry(
        "Link the broker to others; for administrators.", "tamis.cli.broker.peer:peer"
    ),
    "topology": CommandEntry(
        "Show the linked brokers, and what passes between them; for administrators.",
        "tamis.cli.broker.topology:topology",
    ),
    "repair": CommandEntry(
        "Check the data folder of a stopped broker.", "tamis.cli.broker.repair:repair"
    ),
    "spark": CommandEntry("Compile and match in bulk on Spark.", "tamis.cli.spark.commands:spark"),
}


class LazyCommand(TyperCommand):
    """A command that is not loaded yet; `tamis --help` needs no more."""

    def __init__(self, name: str, entry: CommandEntry) -> None:
        super().__init__(name, help=entry.summary)
        self._entry = entry

    def load(self) -> Any:
        """Import the command, and return it as Typer builds it."""
        module_name, _, name = self._entry.target.partition(":")
        try:
            module = import_module(module_name)
        except MissingExtraError as error:
            return _UnavailableCommand(str(self.name), self._entry.summary, error)
        found = getattr(module, name)
        app = typer.Typer(rich_markup_mode="rich")
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=self.name)
        else:
            app.command(
                self.name,
                epilog=flowing(getattr(module, self._entry.examples)),
                no_args_is_help=self._entry.needs_arguments,
            )(found)
        command = typer.main.get_group(app).commands[str(self.name)]
        show_flags_without_type(command)
        return command


class _UnavailableCommand(TyperCommand):
    """A command that cannot be loaded: its help says what to install, and running it fails."""

    def __init__(self, name: str, summary: str, error: MissingExtraError) -> None:
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(
            name,
            help=f"{summary}\n\nIts options are listed once it can run: {error}.",
            rich_markup_mode=None,
            context_settings=settings,
        )
        self._error = error

    def invoke(self, ctx: Any) -> Any:  # noqa: ARG002
        """Say what to install."""
        raise self._error


def show_flags_without_type(command: Any) -> None:
    """Make the help of a command and its subcommands show flags without `<bool>`."""
    with command.make_context(
        command.name, [], resilient_parsing=True, help_option_names=HELP_NAMES
    ) as context:
        _without_flag_types(command.get_params(context))
    for subcommand in getattr(command, "commands", {}).values():
        show_flags_without_type(subcommand)


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class LazyCommands(TyperGroup):
    """A group that imports the command it is about to run, and no other."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, entry in COMMANDS.items():
            self.add_command(LazyCommand(name, entry))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the group's own options, which are flags."""
        return _without_flag_types(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name of the command to run, the command, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest

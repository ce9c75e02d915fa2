"""`tamis serve`: run a broker."""

from __future__ import annotations

import typing
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from tamis.broker.operations.settings import BrokerSettings, load_settings
from tamis.cli.console import say_error
from tamis.cli.exits import FAILED, FINE
from tamis.cli.options import declare_parameters, mistake, no_default, option_parameter
from tamis.errors import BrokerFailedError
from tamis.units import format_seconds, format_size

EXAMPLES: Final = """[bold]Examples[/bold]

tamis serve
tamis serve --port 0 --data /var/lib/tamis
tamis serve --port 8766 --peer http://127.0.0.1:8765
tamis serve --config broker.toml --set 'ack_timeout=1 minute'
tamis serve --host 0.0.0.0 --tls-certificate cert.pem --tls-key key.pem --policy policy.toml
tamis serve --host 0.0.0.0 --policy policy.toml --allow-plain-text 'yes, I know'

[bold]Settings[/bold]

docs/reference/settings.md lists them all. You can give each as an option: --log-level debug or
--set log_level=debug; in the environment: TAMIS_LOG_LEVEL=debug; or in the TOML file:
log_level = "debug". Options take precedence over the environment, and both over the file.

[bold]Exit code[/bold]

0 the broker was asked to stop, and has finished its work
2 a setting is not usable, the address is taken, or the data folder cannot be opened
70 a part of the broker has failed, and the log says why; start it again, nothing is lost"""


class SettingFlag(NamedTuple):
    """A setting with its own option, which takes its help and default from the setting."""

    metavar: str
    names: tuple[str, ...] = ()
    """The option's names, if they differ from the setting's."""


FLAGS: Final = {
    "data": SettingFlag("FOLDER"),
    "host": SettingFlag("ADDRESS"),
    "port": SettingFlag("N"),
    "policy": SettingFlag("FILE"),
    "tls_certificate": SettingFlag("FILE"),
    "tls_key": SettingFlag("FILE"),
    "schema_file": SettingFlag("FILE", ("--schema-file", "--schema", "-s")),
    "mode": SettingFlag("MODE", ("--mode", "-m")),
    "name": SettingFlag("NAME"),
    "accept_peers": SettingFlag("true|false"),
    "retention_age": SettingFlag("TIME"),
    "retention_bytes": SettingFlag("SIZE"),
    "allow_plain_text": SettingFlag("WORDS"),
    "allow_anonymous": SettingFlag("WORDS"),
    "log_level": SettingFlag("LEVEL"),
    "log_format": SettingFlag("FORMAT"),
}

ConfigFile = Annotated[
    Path | None,
    no_default(
        "--config",
        "-c",
        metavar="FILE",
        help="A TOML file with settings; by default, tamis.toml if it exists.",
    ),
]
PeerAddresses = Annotated[
    list[str] | None,
    no_default(
        "--peer",
        "--peers",
        metavar="ADDRESS",
        help="A broker to link to, perhaps with options: 'https://hamburg.example "
        "token_file=hamburg.token role=branch'; may be repeated.",
    ),
]
OtherSettings = Annotated[
    list[str] | None,
    no_default("--set", metavar="NAME=VALUE", help="Any other setting; may be repeated."),
]


def serve(config: Path | None, set_: list[str] | None, **flags: object) -> int:
    """Run a broker: publishers send it events, and it sends each to every matching subscription.

    It prints its address, logs to standard error, and finishes its work on SIGTERM or Ctrl-C.
    """
    # Its libraries take a while to load, and `--help` does not need them.
    from tamis.broker.frontend.server import serve as run  # noqa: PLC0415

    # Typer makes an empty list of what is left out.
    given = {name: value for name, value in flags.items() if value != []}
    try:
        run(load_settings(config, given, _named(set_ or [])))
    except BrokerFailedError as error:
        say_error(str(error))
        return FAILED
    return FINE


def _named(pairs: list[str]) -> dict[str, object]:
    """Return the settings in pairs written `name=value`."""
    named: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise mistake(f"--set takes name=value, such as --set log_level=debug, not {pair!r}")
        named[name.strip().replace("-", "_")] = value.strip()
    return named


def _option(name: str, flag: SettingFlag) -> Any:
    """Return the type of a parameter from which Typer makes the option for a setting."""
    field = BrokerSettings.model_fields[name]
    option = typer.Option(
        *(flag.names or (f"--{name.replace('_', '-')}",)),
        metavar=flag.metavar,
        help=f"{field.description}{_choices(field.annotation)}",
        show_default=_default(flag.metavar, field.default),
    )
    # The model checks the value, whichever way it was given.
    return Annotated[str | None, option]


def _choices(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f" One of {', '.join(kind)}."
    if typing.get_origin(kind) is typing.Literal:
        return f" One of {', '.join(typing.get_args(kind))}."
    return ""


def _default(metavar: str, value: Any) -> str | bool:
    match metavar:
        case _ if value is None:
            return False
        case "TIME":
            return format_seconds(value)
        case "SIZE":
            return format_size(value)
        case _:
            return str(value)


declare_parameters(
    serve,
    [
        option_parameter("config", ConfigFile),
        *(option_parameter(name, _option(name, flag)) for name, flag in FLAGS.items()),
        option_parameter("peers", PeerAddresses),
        option_parameter("set_", OtherSettings),
    ],
)

"""`tamis serve`: run a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from tamis.cli.exits import FINE
from tamis.cli.options import mistake
from tamis.filters import Mode

EXAMPLES: Final = """[bold]Examples[/bold]

tamis serve
tamis serve --port 0 --data /var/lib/tamis
tamis serve --config broker.toml --set 'ack_timeout=1 minute'
tamis serve --host 0.0.0.0 --tls-certificate cert.pem --tls-key key.pem --policy policy.toml
tamis serve --host 0.0.0.0 --policy policy.toml --allow-plain-text 'yes, I know'

[bold]Settings[/bold]

docs/reference/settings.md lists them all. Each can be an option here, or --set log_level=debug,
or in the environment TAMIS_LOG_LEVEL=debug, or in the TOML file log_level = "debug".
The first that there is wins.

[bold]Exit code[/bold]

0 the broker was told to stop, and has finished its work
2 a setting cannot be used, the address is taken, or the data folder cannot be opened"""


def serve(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="A TOML file with settings; without one, tamis.toml if it is there.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The folder of the log and the state.",
            show_default="tamis-data",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The address; where others can reach it, TLS and a policy are needed.",
            show_default="127.0.0.1",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="N", help="The port; 0 takes any that is free.", show_default="8765"),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The policy file: roles, and what each may do. With one, tokens are needed.",
            show_default=False,
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The certificate chain, a PEM file.", show_default=False),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The certificate's private key, a PEM file.", show_default=False
        ),
    ] = None,
    schema_file: Annotated[
        Path | None,
        typer.Option(
            "--schema-file",
            "--schema",
            "-s",
            metavar="FILE",
            help="Types and defaults of attributes, as a JSON file.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            "-m",
            metavar="MODE",
            help=f"What an absent attribute means unless a subscription says: {', '.join(Mode)}.",
            show_default="sql",
        ),
    ] = None,
    retention_age: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long events are kept.", show_default="7 days"),
    ] = None,
    retention_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="How much of them is kept.", show_default="10 GiB"),
    ] = None,
    allow_plain_text: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="'yes, I know': do without TLS where others can reach the broker.",
            show_default=False,
        ),
    ] = None,
    allow_anonymous: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="'yes, I know': do without tokens where others can reach the broker.",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="debug, info, warning or error.", show_default="info"),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="json, console, or auto: for people in a terminal.",
            show_default="auto",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting; can be given several times.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Run a broker: publishers send events, and each reaches everyone whose filter it satisfies.

    It prints its address, logs to standard error, and finishes its work on SIGTERM or Ctrl-C.
    """
    # Its libraries take longer to load than most commands to run.
    from tamis.broker.frontend.server import serve as run  # noqa: PLC0415
    from tamis.broker.operations.settings import load_settings  # noqa: PLC0415

    flags = {
        "data": data,
        "host": host,
        "port": port,
        "policy": policy,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "schema_file": schema_file,
        "mode": mode,
        "retention_age": retention_age,
        "retention_bytes": retention_bytes,
        "allow_plain_text": allow_plain_text,
        "allow_anonymous": allow_anonymous,
        "log_level": log_level,
        "log_format": log_format,
    }
    run(load_settings(config, {**flags, **_named(set_ or [])}))
    return FINE


def _named(pairs: list[str]) -> dict[str, object]:
    """Return settings that are written `name=value`."""
    named: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise mistake(f"--set takes name=value, such as --set log_level=debug, not {pair!r}")
        named[name.strip().replace("-", "_")] = value.strip()
    return named

"""Running the command line in a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from tamis.cli.app import app

ROOT = Path(__file__).parent.parent.parent


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def tamis(*arguments: object, stdin: str | bytes | None = None) -> Outcome:
    """Run `tamis` in this process; an exception that no user should see fails the test."""
    result = CliRunner().invoke(
        app, [str(a) for a in arguments], input=stdin, catch_exceptions=False, prog_name="tamis"
    )
    return Outcome(result.exit_code, result.stdout, result.stderr)

"""The command line `tamis`: one file per command."""

import signal
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line."""
    # Loading takes a moment, in which Ctrl-C would end in a traceback.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tamis.cli.app import app  # noqa: PLC0415

    signal.signal(signal.SIGINT, handler)
    app(prog_name="tamis")
    raise AssertionError("a command always exits")

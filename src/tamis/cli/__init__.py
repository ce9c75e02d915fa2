"""The command line `tamis`: one file per command."""

from tamis.cli.app import app, main

__all__ = ["app", "main"]

"""What commands say about a filter before they use it: probable mistakes, arguments swapped."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Final

from tamis.analysis.mistakes import ProbableMistake, find_mistakes
from tamis.cli.console import say, stderr
from tamis.cli.options import mistake
from tamis.errors import FilterError, TamisError
from tamis.events import Schema
from tamis.filters import Filter
from tamis.languages import parse

# An attribute may have such a name, but does not stand alone.
_FILE_NAME: Final = re.compile(
    r"[^\s\"'=<>()]+\.(?:csv|json|jsonl|ndjson|parquet|toml|txt|xml)", re.IGNORECASE
)


def parse_argument(text: str, language: str) -> Filter:
    """Return the filter that an argument is; say so if it is the name of a file."""
    try:
        return parse(text, language)
    except FilterError:
        if os.path.isfile(text):
            raise mistake(
                f"{text} is a file, not a filter: a file of filters goes with --filters, and a "
                "file of events comes after the filter"
            ) from None
        if _FILE_NAME.fullmatch(text):
            raise mistake(
                f"{text} is not a filter, and there is no file of this name: a file of filters "
                "goes with --filters, and a file of events comes after the filter"
            ) from None
        raise


def warn_of_mistakes(text: str, language: str, schema: Schema | None = None) -> None:
    """Warn of what looks like a mistake in a filter, as `tamis check` does; in one line each."""
    # A wrong filter is refused where it is used.
    with suppress(TamisError):
        show_mistakes(find_mistakes(parse(text, language), text, language, schema))


def show_mistakes(found: list[ProbableMistake]) -> None:
    """Write warnings to standard error."""
    for one in found:
        say(stderr(), f"warning: {one.message}")

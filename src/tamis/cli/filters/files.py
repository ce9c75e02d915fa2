r"""Filters from a file or from the command line, each with an id and a line number.

One filter per line; blank lines and lines that start with `#` are skipped. A line is

    company = "IBM" and price < 1000                       the id is the number of the line
    cheap-pcs: company = "IBM" and price < 1000            an id, a colon, white space, a filter
    {"id": "old", "filter": "year < 90", "language": "jms", "mode": "strict"}

No language has a colon outside quotes, so a line is never ambiguous.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tamis.cli.console import stderr
from tamis.cli.event_input import watched
from tamis.cli.filter_warnings import parse_argument
from tamis.cli.options import mistake
from tamis.errors import FilterError, FilterSyntaxError, JSONError, LimitError, TamisError
from tamis.events import EventLimits, Schema
from tamis.events.json_text import kind_of_json, parse_json
from tamis.events.schema import did_you_mean
from tamis.filters import Filter, Mode
from tamis.filters.modes import as_mode, require_schema
from tamis.languages import parse

_ID: Final = re.compile(r"[\w./-]++")
# A Siena filter may begin with a brace too, but no quote follows it.
_JSON: Final = re.compile(r"\s*\{\s*\"")
_WITH_ID: Final = re.compile(r"\s*([\w./-]++):(?:\s++|$)")


class FilterDefaults(NamedTuple):
    """The language and mode of filters that do not name their own, and the schema of all."""

    language: str
    mode: Mode
    schema: Schema | None


class NamedFilter(NamedTuple):
    """A filter, bound to the schema if there is one, with its id and its line."""

    id: str
    line: int
    filter: Filter
    mode: Mode
    text: str
    language: str


class RejectedFilter(NamedTuple):
    """A line without a usable filter, and the reason."""

    id: str
    line: int
    message: str


class FilterLine(NamedTuple):
    """What stands in a line of a file of filters."""

    filter: str
    id: str = ""
    language: str = ""
    mode: Mode | None = None


def read_filters(
    argument: str | None, path: Path | None, defaults: FilterDefaults
) -> list[NamedFilter | RejectedFilter]:
    """Return the filter from the command line, or the filters from the given file."""
    if argument is not None and path is not None:
        raise mistake("give a filter or --filters FILE, not both")
    if path is not None:
        return list(filters_in_file(path, defaults))
    if argument is None:
        raise mistake("a filter is missing: write one, or name a file of them with --filters")
    return [read_argument(argument, defaults)]


def accepted(found: Iterable[NamedFilter | RejectedFilter]) -> list[NamedFilter]:
    """Return all filters; raise `FilterError` for the first line without one."""
    filters = []
    for one in found:
        if isinstance(one, RejectedFilter):
            raise FilterError(one.message)
        filters.append(one)
    return filters


def read_argument(text: str, defaults: FilterDefaults) -> NamedFilter:
    """Return the filter given on the command line."""
    filter_ = _bound(parse_argument(text, defaults.language), defaults.mode, defaults.schema)
    return NamedFilter("1", 1, filter_, defaults.mode, text, defaults.language)


def filters_in_file(path: Path, defaults: FilterDefaults) -> Iterator[NamedFilter | RejectedFilter]:
    """Yield every filter in a file, or the reason why a line has none."""
    lines_by_id: dict[str, int] = {}
    lines = list(_lines(path))
    for line, text in watched(lines, "lines", stderr(), visible=sys.stderr.isatty()):
        found = _read(f"{path}:{line}", line, text, defaults)
        first = lines_by_id.setdefault(found.id, line)
        if first != line:
            message = f"{path}:{line}: the id {found.id!r} is already used on line {first}"
            found = RejectedFilter(found.id, line, message)
        yield found
    if not lines_by_id:
        raise FilterError(f"{path}: there is no filter in this file")


def _lines(path: Path) -> Iterable[tuple[int, str]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FilterError(f"{path}: byte {error.start + 1} is not UTF-8 text") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.rstrip()


def _read(
    place: str, line: int, text: str, defaults: FilterDefaults
) -> NamedFilter | RejectedFilter:
    entry: FilterLine = FilterLine("")
    column: int | None = None
    try:
        entry, column = _entry(text)
        mode = entry.mode or defaults.mode
        language = entry.language or defaults.language
        parsed = parse(entry.filter, language)
        filter_ = _bound(parsed, mode, defaults.schema)
    except TamisError as error:
        return RejectedFilter(entry.id or str(line), line, _message(place, column, error))
    return NamedFilter(entry.id or str(line), line, filter_, mode, entry.filter, language)


def file_entries(path: Path) -> Iterator[tuple[int, FilterLine, int | None]]:
    """Yield the number of each line with a filter, its parts, and where the filter starts."""
    for line, text in _lines(path):
        with named_lines(f"{path}:{line}", None):
            entry, column = _entry(text)
        yield line, entry, column


@contextmanager
def named_lines(place: str, column: int | None) -> Iterator[None]:
    """Put the place in a file into errors."""
    try:
        yield
    except TamisError as error:
        raise FilterError(_message(place, column, error)) from None


def _entry(text: str) -> tuple[FilterLine, int | None]:
    """Return the parts of a line, and the column where its filter starts, if it is verbatim."""
    if _JSON.match(text):
        return _json_entry(text), None
    with_id = _WITH_ID.match(text)
    if with_id is None:
        start = len(text) - len(text.lstrip())
        return FilterLine(text[start:]), start
    return FilterLine(text[with_id.end() :], id=with_id[1]), with_id.end()


def _json_entry(text: str) -> FilterLine:
    try:
        data = parse_json(text, EventLimits())
    except (JSONError, LimitError) as error:
        raise FilterError(f"this is not a filter as JSON: {error}") from None
    if not isinstance(data, dict):
        raise FilterError(f"this is not a filter as JSON: it is {kind_of_json(data)}")
    for key, value in data.items():
        if key not in FilterLine._fields:
            hint = did_you_mean(key, FilterLine._fields)
            raise FilterError(f'"{key}" is not a key of a filter{"; " + hint if hint else ""}')
        if not isinstance(value, str):
            raise FilterError(f'"{key}" is a text, not {kind_of_json(value)}')
    if "filter" not in data:
        raise FilterError('"filter" is missing')
    if data.get("id") and not _ID.fullmatch(data["id"]):
        raise FilterError(
            f"the id {data['id']!r} has other characters than letters, digits, _ . / and -"
        )
    mode = as_mode(data["mode"]) if "mode" in data else None
    return FilterLine(**{**data, "mode": mode})


def _bound(filter_: Filter, mode: Mode, schema: Schema | None) -> Filter:
    require_schema(mode, schema)
    return filter_ if schema is None else filter_.bind(schema)


def _message(place: str, column: int | None, error: TamisError) -> str:
    """Return the message with the place in the file instead of the place in the filter."""
    if not isinstance(error, FilterSyntaxError):
        return f"{place}: {error}"
    hint = f"; {error.hint}" if error.hint else ""
    picture = str(error).partition("\n")[2]
    at = "" if column is None else f":{column + error.column}"
    return f"{place}{at}: {error.reason}{hint}\n{picture}"

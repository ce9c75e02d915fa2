r"""Filters from a file or from the command line, each with an id and its place.

One filter per line; blank lines and lines that begin with `#` are passed over. A line is

    company = "IBM" and price < 1000                       the id is the number of the line
    cheap-pcs: company = "IBM" and price < 1000            an id, a colon, white space, a filter
    {"id": "old", "filter": "year < 90", "language": "jms", "mode": "strict"}

No language has a colon outside of quotes, so a line is never both a filter and an id with one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tamis.cli.options import mistake
from tamis.errors import FilterError, FilterSyntaxError, TamisError
from tamis.events import Schema
from tamis.filters import Filter, Mode
from tamis.filters.modes import require_schema
from tamis.languages import parse

_ID: Final = re.compile(r"[\w./-]++")
# A Siena filter may begin with a brace too, but no quote follows it.
_JSON: Final = re.compile(r"\s*\{\s*\"")
_WITH_ID: Final = re.compile(r"\s*([\w./-]++):(?:\s++|$)")


class Defaults(NamedTuple):
    """What holds for a filter that does not say otherwise, and the schema that holds for all."""

    language: str
    mode: Mode
    schema: Schema | None


class Subscription(NamedTuple):
    """A filter that was read: bound to the schema if there is one, with its id and its place."""

    id: str
    line: int
    filter: Filter
    mode: Mode


class Refused(NamedTuple):
    """A line that holds no filter, and why: the place, a sentence, perhaps a picture."""

    id: str
    line: int
    message: str


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    filter: str
    id: str = ""
    language: str = ""
    mode: Mode | None = None


def read_filters(
    argument: str | None, path: Path | None, defaults: Defaults
) -> list[Subscription | Refused]:
    """Return the filter of the command line, or those of a file, whichever is given."""
    if argument is not None and path is not None:
        raise mistake("give a filter or --filters FILE, not both")
    if path is not None:
        return list(read_file(path, defaults))
    if argument is None:
        raise mistake("a filter is missing: write one, or name a file of them with --filters")
    return [read_argument(argument, defaults)]


def accepted(found: Iterable[Subscription | Refused]) -> list[Subscription]:
    """Return the filters, all of them, or raise for the first line that holds none."""
    subscriptions = []
    for one in found:
        if isinstance(one, Refused):
            raise FilterError(one.message)
        subscriptions.append(one)
    return subscriptions


def read_argument(text: str, defaults: Defaults) -> Subscription:
    """Return the filter that the command line itself holds."""
    filter_ = _bound(parse(text, defaults.language), defaults.mode, defaults.schema)
    return Subscription("1", 1, filter_, defaults.mode)


def read_file(path: Path, defaults: Defaults) -> Iterator[Subscription | Refused]:
    """Yield every filter in a file, or why a line holds none."""
    lines_by_id: dict[str, int] = {}
    for line, text in _lines(path):
        found = _read(f"{path}:{line}", line, text, defaults)
        first = lines_by_id.setdefault(found.id, line)
        if first != line:
            message = f"{path}:{line}: the id {found.id!r} is already that of line {first}"
            found = Refused(found.id, line, message)
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


def _read(place: str, line: int, text: str, defaults: Defaults) -> Subscription | Refused:
    entry: _Entry = _Entry("")
    column: int | None = None
    try:
        entry, column = _entry(text)
        mode = entry.mode or defaults.mode
        parsed = parse(entry.filter, entry.language or defaults.language)
        filter_ = _bound(parsed, mode, defaults.schema)
    except TamisError as error:
        return Refused(entry.id or str(line), line, _message(place, column, error))
    return Subscription(entry.id or str(line), line, filter_, mode)


def _entry(text: str) -> tuple[_Entry, int | None]:
    """Return what a line says, and where in it the filter begins, if it stands there as it is."""
    if _JSON.match(text):
        return _json_entry(text), None
    with_id = _WITH_ID.match(text)
    if with_id is None:
        start = len(text) - len(text.lstrip())
        return _Entry(text[start:]), start
    return _Entry(text[with_id.end() :], id=with_id[1]), with_id.end()


def _json_entry(text: str) -> _Entry:
    try:
        entry = msgspec.json.decode(text, type=_Entry)
    except msgspec.MsgspecError as error:
        reason = str(error).replace("`", '"')
        raise FilterError(f"this is not a filter as JSON: {reason}") from None
    if entry.id and not _ID.fullmatch(entry.id):
        raise FilterError(
            f"the id {entry.id!r} has more in it than letters, digits and the signs _ . / -"
        )
    return entry


def _bound(filter_: Filter, mode: Mode, schema: Schema | None) -> Filter:
    require_schema(mode, schema)
    return filter_ if schema is None else filter_.bind(schema)


def _message(place: str, column: int | None, error: TamisError) -> str:
    """Return the sentence with the place in the file, not the one inside of the filter."""
    if not isinstance(error, FilterSyntaxError):
        return f"{place}: {error}"
    hint = f"; {error.hint}" if error.hint else ""
    picture = str(error).partition("\n")[2]
    at = "" if column is None else f":{column + error.column}"
    return f"{place}{at}: {error.reason}{hint}\n{picture}"

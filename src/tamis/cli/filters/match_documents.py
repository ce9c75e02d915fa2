"""`tamis match --language xql`: which queries does each XML document satisfy?"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from tamis.cli.console import TableFormat, printable, say, stderr, stdout, write_json
from tamis.cli.event_input import STDIN, opened
from tamis.cli.exits import FINDING, FINE
from tamis.cli.filters.files import file_entries, named_lines
from tamis.cli.options import mistake
from tamis.errors import FilterError, TamisError, WorkLimitError
from tamis.languages.registry import QUERY_LANGUAGES
from tamis.units import count

if TYPE_CHECKING:
    from tamis.xml import XMLQuery

MAX_BYTES: Final = 1024 * 1024
"""What is read of a file: one more byte, and the document is refused."""
MAX_TABLE_ROWS: Final = 1000


class NamedQuery(NamedTuple):
    """A query with its id."""

    id: str
    query: XMLQuery


class DocumentsOptions(NamedTuple):
    """How documents are matched and shown."""

    language: str
    limit: int | None
    only_matched: bool
    format: TableFormat


def match_documents(
    text: str | None, path: Path | None, documents: str | None, options: DocumentsOptions
) -> int:
    """Match XML documents against queries, and show the ids of the queries that each satisfies."""
    queries = _queries(text, path, options.language)
    counts: Counter[str] = Counter()
    rows: list[tuple[str, list[str]]] = []
    err = stderr()
    for name, content in islice(_contents(documents or STDIN), options.limit):
        try:
            ids = _matched(queries, name, content)
        except TamisError as error:
            counts["rejected"] += 1
            say(err, f"rejected: {name}: {error}")
            continue
        counts["matched" if ids else "unmatched"] += 1
        if not ids and options.only_matched:
            continue
        if not options.format.is_table:
            write_json({"document": name, "filters": ids})
        elif len(rows) < MAX_TABLE_ROWS:
            rows.append((name, ids))
    if rows:
        stdout().print(_table(rows))
    kinds = ", ".join(f"{counts[kind]:,} {kind}" for kind in ("matched", "unmatched", "rejected"))
    say(err, f"{count(counts.total(), 'document')}: {kinds}")
    return FINE if counts["matched"] else FINDING


def _matched(queries: Sequence[NamedQuery], name: str, content: bytes) -> list[str]:
    from tamis.xml import Document  # noqa: PLC0415 - needs the extra `xml`

    document = Document.parse(content)
    found = []
    for each in queries:
        try:
            if each.query.matches(document):
                found.append(each.id)
        except WorkLimitError as error:
            say(stderr(), f"undecided: {name}: {each.id}: {error}")
    return found


def _queries(text: str | None, path: Path | None, language: str) -> list[NamedQuery]:
    from tamis.xml import query  # noqa: PLC0415 - needs the extra `xml`

    if text is not None and path is not None:
        raise mistake("give a query or --filters FILE, not both")
    if path is None:
        if text is None:
            raise mistake("a query is missing: write one, or name a file of them with --filters")
        return [NamedQuery("1", query(text, language=language))]
    found: dict[str, NamedQuery] = {}
    for line, entry, column in file_entries(path):
        place = f"{path}:{line}"
        own = entry.language or language
        if own not in QUERY_LANGUAGES or entry.mode is not None:
            raise FilterError(
                f"{place}: a file of queries over documents has queries in xql or xpath, without a "
                "mode; put filters over attributes in another file"
            )
        with named_lines(place, column):
            one = NamedQuery(entry.id or str(line), query(entry.filter, language=own))
        if one.id in found:
            raise FilterError(f"{place}: the id {one.id!r} is already used")
        found[one.id] = one
    if not found:
        raise FilterError(f"{path}: there is no query in this file")
    return [*found.values()]


def _contents(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the named document, or those of a folder, in the order of their names."""
    if name != STDIN and Path(name).is_dir():
        paths = sorted(Path(name).glob("*.xml"))
        if not paths:
            raise mistake(f"the folder {name} has no file whose name ends with .xml")
        for path in paths:
            yield str(path), _read(path)
        return
    if name == STDIN and sys.stdin.isatty():
        raise mistake("the document is missing: name an XML file or a folder, or pipe one in")
    with opened(name) as stream:
        yield name, stream.read(MAX_BYTES + 1)


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _table(rows: Sequence[tuple[str, list[str]]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("document", overflow="fold")
    table.add_column("filters", overflow="fold")
    for name, ids in rows:
        shown = Text(" ".join(ids), "green") if ids else Text("none", "dim")
        table.add_row(Text(printable(name)), shown)
    return table

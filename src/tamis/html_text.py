"""Small pieces of HTML, for notebooks: all text is escaped, and long things are cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Final

MAX_ROWS: Final = 100
MAX_CHARACTERS: Final = 2_000


def html_escaped(given: object) -> str:
    """Return something as escaped text.

    >>> html_escaped("a < 5")
    'a &lt; 5'
    """
    shown = str(given)
    return escape(shown if len(shown) <= MAX_CHARACTERS else f"{shown[:MAX_CHARACTERS]}…")


def html_code(given: object) -> str:
    """Return something as code: every space counts, and long texts are broken."""
    style = "white-space:pre-wrap;overflow-wrap:anywhere"
    return f"<code style='{style}'>{html_escaped(given)}</code>"


def html_list(items: Iterable[str]) -> str:
    """Return pieces of HTML as a list."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], total: int, what: str) -> str:
    """Return rows of HTML as a table; of many rows, only the first, and how many there are."""
    names = "".join(f"<th style='text-align:left'>{html_escaped(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in islice(rows, MAX_ROWS))
    more = f"<p>… {total:,} {html_escaped(what)} in all</p>" if total > MAX_ROWS else ""
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(content: str) -> str:
    return f"<td style='text-align:left'>{content}</td>"

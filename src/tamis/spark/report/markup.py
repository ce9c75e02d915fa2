"""HTML and SVG from nested calls, with everything escaped that is not markup."""

from __future__ import annotations

from html import escape
from typing import Final

_MAX_CHARACTERS: Final = 400


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element; `class_` stands for `class`, and `_` within a name for `-`.

    >>> tag("td", "a < b", class_="code")
    '<td class="code">a &lt; b</td>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Return elements side by side."""
    return Markup(
        "".join(child if isinstance(child, Markup) else text(child) for child in children)
    )


def text(given: str) -> Markup:
    r"""Return text with markup and control characters escaped.

    >>> text("<b>\x07\u202e</b>")
    '&lt;b&gt;\\x07\\u202e&lt;/b&gt;'
    """
    if not given.isprintable():
        given = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in given)
    return Markup(escape(given))


def shortened(given: str) -> str:
    """Return the beginning of a long text."""
    return given if len(given) <= _MAX_CHARACTERS else f"{given[:_MAX_CHARACTERS]}…"


def _attribute(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"

"""Mermaid diagrams as SVG, drawn while the documentation is built (see zensical.toml).

By default the theme loads Mermaid from a public server when a page is viewed. Drawing at build time
keeps the site self-contained and shows the diagrams without JavaScript.
"""

from __future__ import annotations

import html
import itertools
from typing import Any

_numbers = itertools.count(1)


def render(source: str, *_fence: Any, **_options: Any) -> str:
    """Return the HTML for a `mermaid` block: a picture, or its source if it cannot be drawn."""
    try:
        from mermaidx import render as draw  # noqa: PLC0415 (the site also builds without it)
    except ImportError:
        return f"<pre><code>{html.escape(source)}</code></pre>"
    # The style sheet inside a picture applies to its id, which must be unique on the page.
    picture = draw(source).svg().replace("my-svg", f"diagram-{next(_numbers)}")
    return f'<div class="diagram">{picture}</div>'

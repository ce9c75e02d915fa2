"""Text below the help of a command."""

from __future__ import annotations

from typing import Final

# Lines of prose are about as long as the code allows; those of lists are shorter.
SHORTEST_BROKEN_LINE: Final = 80


def flowing(text: str) -> str:
    r"""Return the text below a help with each paragraph in one line, which a terminal breaks.

    >>> flowing("tamis a\ntamis b\n\n" + "long " * 18 + "line\nand its end").count("\n")
    3
    """
    lines: list[str] = []
    is_broken = False
    for line in text.split("\n"):
        if is_broken and line:
            lines[-1] = f"{lines[-1]} {line}"
        else:
            lines.append(line)
        is_broken = len(line) >= SHORTEST_BROKEN_LINE and not lines[-1].startswith("tamis ")
    return "\n".join(lines)

"""The exit codes, the same for every command."""

from __future__ import annotations

from typing import Final

FINE: Final = 0
FINDING: Final = 1
"""All that was given could be used, but nothing matched, or a filter is suspicious."""
MISTAKE: Final = 2
"""Something that was given cannot be used: an option, a file, a schema, a filter."""
PIPE_CLOSED: Final = 141
"""Nobody reads the output any more; as if ended by SIGPIPE, like other programs in a pipe."""

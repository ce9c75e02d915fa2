"""The exit codes, the same for every command."""

from __future__ import annotations

from typing import Final

FINE: Final = 0
FINDING: Final = 1
"""All input was usable, but nothing matched, or there are warnings."""
MISTAKE: Final = 2
"""Some input is not usable: an option, a file, a schema, a filter."""
FAILED: Final = 70
"""A program failed by a bug or a fault of the machine: EX_SOFTWARE of sysexits.h."""
PIPE_CLOSED: Final = 141
"""The reader of the output is gone: the exit code of a process killed by SIGPIPE."""

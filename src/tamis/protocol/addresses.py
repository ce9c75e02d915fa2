"""Where a broker listens unless it is told otherwise."""

from __future__ import annotations

from typing import Final

DEFAULT_PORT: Final = 8765
DEFAULT_URL: Final = f"http://127.0.0.1:{DEFAULT_PORT}"

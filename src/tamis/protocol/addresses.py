"""Where a broker listens by default."""

from __future__ import annotations

from typing import Final

DEFAULT_PORT: Final = 8765
DEFAULT_URL: Final = f"http://127.0.0.1:{DEFAULT_PORT}"

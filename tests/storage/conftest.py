from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.samples import quick_folder


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A folder that is in memory where that is possible."""
    with tempfile.TemporaryDirectory(prefix="tamis-", dir=quick_folder()) as folder:
        yield Path(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:  # noqa: S603
        pytest.skip("only root can make a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S603, S607

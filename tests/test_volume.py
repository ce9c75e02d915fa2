"""Random tests that try few examples by default pass with many."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from seeds import VOLUME_VARIABLE, in_volume

TESTS = Path(__file__).parent
TIMES = "6"
RANDOM = re.compile(r"\bin_volume\(|^@given", re.MULTILINE)
FILES = sorted(
    path
    for path in TESTS.rglob("test_*.py")
    if RANDOM.search(path.read_text(encoding="utf-8")) and path != Path(__file__)
)


def test_there_are_more_examples_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_volume(30) == 30
    monkeypatch.setenv(VOLUME_VARIABLE, TIMES)
    assert in_volume(30) == 180


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TESTS)))
def test_a_file_passes_with_more_examples(file: Path) -> None:
    done = subprocess.run(  # noqa: S603 - our own tests
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(file)],
        cwd=TESTS.parent,
        env={**os.environ, VOLUME_VARIABLE: TIMES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

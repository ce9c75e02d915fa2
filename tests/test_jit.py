"""The kernels as plain Python: what the compiler makes of them must be what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "suite",
    [
        "tests/diagrams/test_sharpness.py",
        "tests/matching/test_differential.py",
        "tests/matching/store/test_snapshot.py",
    ],
)
def test_the_suite_passes_with_the_jit_off(suite: str) -> None:
    done = subprocess.run(  # noqa: S603 - our own interpreter on our own tests
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "not bounded and not volume",
            suite,
        ],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""A test that hangs ends with the places of all threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import hangs

GUARDED = """
import hangs

hangs.SECONDS = 0.1

def pytest_configure(config):
    config.pluginmanager.register(hangs.HangGuard())
"""
HANGING = """
import threading

def test_quick():
    pass

def test_that_waits_for_ever():
    threading.Event().wait(100)
"""


def test_a_test_that_hangs_fails_with_its_stack(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(GUARDED)
    (tmp_path / "test_hanging.py").write_text(HANGING)
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, tmp_path],
        env={"PYTHONPATH": str(Path(hangs.__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in test_that_waits_for_ever" in done.stderr
    assert "in test_quick" not in done.stderr


def test_a_busy_machine_gives_tests_more_time() -> None:
    with (
        patch("os.getloadavg", return_value=(3.0, 30.0, 9.0)),
        patch("os.cpu_count", return_value=3),
    ):
        assert hangs.seconds_for(is_slow=False) == 10 * hangs.SECONDS
    with patch("os.getloadavg", return_value=(0.1, 0.1, 0.1)):
        assert hangs.seconds_for(is_slow=False) == hangs.SECONDS < hangs.seconds_for(is_slow=True)

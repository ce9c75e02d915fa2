"""Spark is an extra: who does not ask for it does not load it."""

from __future__ import annotations

import subprocess
import sys


def test_tamis_and_its_command_line_do_without_spark() -> None:
    code = "import sys, tamis, tamis.cli; print('pyspark' in sys.modules, 'pandas' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert told.stdout == "False False\n"

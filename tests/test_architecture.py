"""The architecture page shows the folders and levels that the package has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import tamis

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
ROW = re.compile(r"^\| *(\d*) *\| `([^`]+)/` \|", re.MULTILINE)


def rows() -> list[tuple[str, str]]:
    return ROW.findall(PAGE.read_text(encoding="utf-8"))


def test_the_page_has_a_row_for_every_folder() -> None:
    package = Path(tamis.__file__).parent
    folders = {
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_dir() and "__pycache__" not in path.parts
    }
    assert {folder for _, folder in rows()} == folders


def test_the_levels_are_those_of_the_import_rules() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    whole = next(contract for contract in contracts if contract["containers"] == ["tamis"])
    level_of = {
        room.strip(): level
        for level, layer in enumerate(reversed(whole["layers"]), start=1)
        for room in layer.split("|")
    }
    on_page = {folder: int(level) for level, folder in rows() if level}
    assert on_page == {room: level_of[room] for room in on_page}
    below = {"bindings", "errors", "html_text", "jit", "kernel_cache", "lazy", "ports", "units"}
    modules = below | {"disk_kernels", "disk_writer", "mismatches", "prompt_waiter", "version"}
    assert set(on_page) == level_of.keys() - modules

"""CONTRIBUTING.md stays true: its layers are those of the import rules, and its files exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_layers_are_those_of_the_import_rules() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [rule] = [
        contract
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["containers"] == ["tamis"]
    ]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [re.findall(r"`(\w+)`", folders) for _, folders in rows] == [
        layer.split(" | ") for layer in rule["layers"]
    ]
    assert [int(number) for number, _ in rows] == list(range(len(rows), 0, -1))


def test_every_folder_has_a_contract_for_its_inside() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    assert all(contract["exhaustive"] for contract in contracts)
    covered = [container for contract in contracts for container in contract["containers"]]
    assert len(covered) == len(set(covered))
    package = ROOT / "src" / "tamis"
    folders = {
        ".".join(("tamis", *path.parent.relative_to(package).parts))
        for path in package.rglob("__init__.py")
        if len([*path.parent.glob("*.py"), *path.parent.glob("*/__init__.py")]) > 2
    }
    assert set(covered) == folders


def test_every_file_that_is_mentioned_exists() -> None:
    mentioned = set(re.findall(r"`([a-z_/]+\.py)`", PAGE)) - {
        "languages/yours.py",
        "events/yours.py",
    }
    own = {"encoding.py": "diagrams/encoding.py", "witness.py": "diagrams/witness.py"}
    missing = {
        path
        for path in mentioned
        if not (ROOT / "src/tamis" / own.get(path, path)).exists() and not (ROOT / path).exists()
    }
    assert not missing

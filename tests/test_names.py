"""One name, one concept: no class name stands for two things anywhere in the package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import tamis

PACKAGE = Path(tamis.__file__).parent

EXCEPTIONS: dict[str, str] = {}
"""Names that stand for two things all the same, each with the reason."""


def classes_by_name() -> dict[str, list[str]]:
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(str(path.relative_to(PACKAGE)))
    return places


def test_no_class_name_means_two_things() -> None:
    shared = {
        name: places
        for name, places in classes_by_name().items()
        if len(places) > 1 and name not in EXCEPTIONS
    }
    assert not shared


def test_every_exception_is_still_needed() -> None:
    places = classes_by_name()
    assert {name for name in EXCEPTIONS if len(places[name]) < 2} == set()

"""One name, one concept: no class, type alias or public function shares its name with another."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tamis

PACKAGE = Path(tamis.__file__).parent

EXCEPTIONS: dict[str, str] = {}
"""Names that stand for two things all the same, each with the reason."""

SHARED_FUNCTIONS = {
    "covers": "Siena defines the relation for two constraints, as we do for two filters",
    "intersects": "Siena defines the relation for two constraints, as we do for two filters",
}
"""Functions that share a name with another, each with the reason. The commands of the command line
need none: they have the names that users type, often those of the functions that they call."""


def classes(tree: ast.Module) -> Iterator[str]:
    return (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def aliases(tree: ast.Module) -> Iterator[str]:
    """Yield the module's names in CamelCase: type aliases and type variables."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if re.fullmatch(r"_*[A-Z]\w*[a-z]\w*", name):
                    yield name


@cache
def types_by_name() -> dict[str, list[str]]:
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name in (*classes(tree), *aliases(tree)):
            places[name.lstrip("_")].append(str(path.relative_to(PACKAGE)))
    return places


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef, place: Path) -> bool:
    """Return whether a function is a command of the command line: those return how they ended."""
    returns = function.returns
    return place.parts[0] == "cli" and isinstance(returns, ast.Name) and returns.id == "int"


@cache
def functions_by_name() -> dict[str, list[str]]:
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not node.name.startswith("_") and not is_command(node, place):
                places[node.name].append(str(place))
    return places


def test_no_public_function_means_two_things() -> None:
    shared = {
        name: places
        for name, places in functions_by_name().items()
        if len(places) > 1 and name not in SHARED_FUNCTIONS
    }
    assert not shared


def test_type_aliases_are_found() -> None:
    tree = ast.parse("A1b = int | str\n_Cd: TypeAlias = int\nT = 1\nMAX_E = 2\nf = 3")
    assert [*aliases(tree)] == ["A1b", "_Cd"]


def test_no_type_name_means_two_things() -> None:
    shared = {
        name: places
        for name, places in types_by_name().items()
        if len(places) > 1 and name not in EXCEPTIONS
    }
    assert not shared


def test_every_exception_is_still_needed() -> None:
    places = types_by_name()
    assert {name for name in EXCEPTIONS if len(places.get(name, ())) < 2} == set()
    functions = functions_by_name()
    assert {name for name in SHARED_FUNCTIONS if len(functions.get(name, ())) < 2} == set()

"""`import tamis` is fast, and its names are real: for Python, star-imports, dir() and editors."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tamis
from tamis import Bus, Engine, Filter
from tamis.client import Consumer
from tamis.filters.build import Attr

HEAVY = {"numba", "numpy", "pyarrow", "pandas", "pyspark", "uvicorn", "starlette", "websockets"}
PACKAGES = ["tamis", "tamis.diagrams", "tamis.spark"]


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a new interpreter has loaded after some code."""
    report = "import atexit, sys; atexit.register(lambda: print(*{*sys.modules}))\n"
    ran = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", report + code], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in ran.stdout.splitlines()[-1].split()}


def names_for_type_checkers(package: str) -> list[str]:
    """Return the names that a package imports for type checkers only."""
    source = Path(str(import_module(package).__file__)).read_text(encoding="utf-8")
    blocks = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    return [alias.name for line in imports for alias in line.names]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_resolves_and_type_checkers_see_the_same_names(package: str) -> None:
    module = import_module(package)
    assert sorted(names_for_type_checkers(package)) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


def test_a_star_import_brings_every_public_name() -> None:
    names: dict[str, object] = {}
    exec("from tamis import *", names)  # noqa: S102 - the only way inside a function
    assert set(tamis.__all__) <= set(names)


def test_threads_may_use_names_for_the_first_time_together() -> None:
    code = """
import sys, threading, tamis
sys.setswitchinterval(1e-5)
names = ["Event", "parse", "Engine", "covers", "attr", "Schema"]
failed, start = [], threading.Barrier(len(names))
def use(name):
    start.wait()
    try:
        getattr(tamis, name)
    except Exception as error:
        failed.append(error)
threads = [threading.Thread(target=use, args=(name,)) for name in names]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failed, failed
"""
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code


def test_submodules_are_attributes_without_an_import_of_their_own() -> None:
    code = "import tamis; assert tamis.filters.Filter is tamis.Filter; tamis.matching.Engine"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'explain'; use Engine\.explain"):
        _ = tamis.explain  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="module 'tamis' has no attribute 'Enigne'"):
        _ = tamis.Enigne  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "code",
    [
        "import tamis",
        "from tamis.cli.app import app; app(['--help'], standalone_mode=False)",
        "from tamis import Schema, attr, parse; parse('price < 5').matches({'price': 1})",
    ],
)
def test_what_does_not_need_heavy_packages_does_not_load_them(code: str) -> None:
    assert not loaded_by(code) & HEAVY


def test_the_page_about_python_names_all_there_is() -> None:
    page = (Path(__file__).parent.parent / "docs/reference/python.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    members = {name for name in named if "." in name}
    assert named - members | {"__version__"} == set(tamis.__all__)
    for class_ in (Engine, Bus, Attr, Consumer, Filter):
        of_class = {
            name.partition(".")[2] for name in members if name.startswith(f"{class_.__name__}.")
        }
        public = {name for name in dir(class_) if not name.startswith("_")}
        assert of_class <= public
        # Of the others, some members are for other parts of Tamis only.
        assert class_ in (Consumer, Filter) or of_class == public - {"name"}

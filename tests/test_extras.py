"""Where the packages of an extra are missing, a sentence says what to install."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tamis.lazy import EXTRAS

ROOT = Path(__file__).parent.parent
EVERY_EXTRA_MODULE = tuple({module for modules in EXTRAS.values() for module in modules})


def run_without(modules: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that cannot import some modules."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({json.dumps(modules)}))\n"
    command = [sys.executable, "-c", hidden + code]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


@pytest.mark.parametrize(
    ("extra", "code", "kind"),
    [
        ("client", "import tamis.client", "Import"),
        pytest.param("client", "from tamis import client", "Import", marks=pytest.mark.slow),
        ("client", "from tamis import connect", "Import"),
        ("client", "import tamis; tamis.connect", "Attribute"),
        ("broker", "import tamis.broker", "Import"),
        ("broker", "from tamis import open_bus", "Import"),
        pytest.param("broker", "import tamis; tamis.open_bus", "Attribute", marks=pytest.mark.slow),
        ("kafka", "from tamis.spark import KafkaSink; KafkaSink('a:1', 't')", "Import"),
        ("spark", "import tamis.spark", "Import"),
        ("spark", "import tamis; tamis.spark", "Attribute"),
        ("xml", "import tamis.xml", "Import"),
        pytest.param("xml", "import tamis; tamis.xml", "Attribute", marks=pytest.mark.slow),
    ],
)
def test_an_import_says_what_to_install(extra: str, code: str, kind: str) -> None:
    ran = run_without(EXTRAS[extra], code)
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(f"tamis.errors.MissingExtra{kind}Error: this needs ")
    assert last.endswith(f": pip install 'tamis[{extra}]'")


@pytest.mark.parametrize(
    "code",
    [
        "from tamis import *; assert Engine; assert 'connect' not in globals()",
        "import tamis; assert not hasattr(tamis, 'connect'); assert hasattr(tamis, 'Engine')",
        "import tamis; assert not hasattr(tamis, 'spark')",
        "import tamis, inspect; assert dict(inspect.getmembers(tamis))['Engine']",
        "import pydoc; assert 'class Engine' in pydoc.plaintext.document(__import__('tamis'))",
        """
try:
    from tamis import connect
except ImportError as error:
    from tamis import MissingExtraError
    assert isinstance(error, MissingExtraError)
    assert (error.extra, *error.packages) == ("client", "httpx", "websockets")
""",
    ],
)
def test_a_base_install_can_be_inspected(code: str) -> None:
    ran = run_without(EVERY_EXTRA_MODULE, code)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("broker", ["serve"]),
        ("client", ["sub", "price < 5"]),
        ("spark", ["spark", "generate", "market", "--events=1", "--subscriptions=1", "--to=x"]),
    ],
)
def test_a_command_says_what_to_install_without_a_traceback(
    extra: str, arguments: list[str]
) -> None:
    code = f"import sys; from tamis.cli import main; sys.argv[1:] = {arguments!r}; main()"
    ran = run_without(EXTRAS[extra], code)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: this needs ")
    assert ran.stderr.endswith(f": pip install 'tamis[{extra}]'\n")
    assert len(ran.stderr.splitlines()) == 1


HELP = {
    "serve": "pip install 'tamis[broker]'",
    "pub": "--publisher",
    "sub": "--durable",
    "tail": "--count",
    "history": "--to",
    "subscriptions": "dead-letters",
    "subscriptions requeue": "--all",
    "explain": "--subscription",
    "status": "--url",
    "token": "revoke",
    "token create": "--role",
    "spark": "compile",
    "spark match": "--library",
}
"""Something that the help of a command shows."""


def test_every_command_has_help_without_its_extra() -> None:
    code = f"""
import sys
from tamis.cli import main
for command in {[*HELP]!r}:
    sys.argv[1:] = [*command.split(), "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
    print("END")
"""
    ran = run_without(EVERY_EXTRA_MODULE, code)
    assert (ran.returncode, ran.stderr) == (0, "")
    for (command, shown), page in zip(HELP.items(), ran.stdout.split("END\n"), strict=False):
        assert f"tamis {command} " in page
        assert shown in page


def test_explaining_a_filter_needs_no_extra() -> None:
    words = ["explain", "price < 5", '{"price": 4}']
    code = f"import sys; from tamis.cli import main; sys.argv[1:] = {words!r}; main()"
    ran = run_without(EVERY_EXTRA_MODULE, code)
    assert (ran.returncode, ran.stdout.splitlines()[0]) == (0, "The filter matches:")


def test_what_the_base_installs_is_enough_for_filters_engine_and_command_line() -> None:
    code = """
import tamis
from tamis.cli.app import app
engine = tamis.Engine()
engine.add(1, "price < 5")
assert engine.match({"price": 1}) == [1]
app(["compare", "price < 5", "price < 7"])
"""
    ran = run_without(EVERY_EXTRA_MODULE, code)
    assert "A is covered by B" in ran.stdout, ran.stderr


def test_an_executor_that_matches_needs_only_the_base_and_the_cluster_s_spark() -> None:
    others = EXTRAS["client"] + EXTRAS["broker"]
    ran = run_without(others, "import tamis.spark.daemon, tamis.spark.matching.worker")
    assert ran.returncode == 0, ran.stderr


# The extras that a folder of the package may use; all others do with the base.
EXTRAS_OF = {
    "client": ("client",),
    "broker": ("broker", "client"),
    "spark": ("spark", "client", "kafka"),
    "access/jwt.py": ("broker",),
    "sources": ("duckdb",),
    "cli/spark": ("spark",),
    "xml": ("xml",),
}


def listed_packages() -> dict[str, set[str]]:
    """Return the packages that each extra installs by itself; the base has no name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = {"": project["dependencies"], **project["optional-dependencies"]}
    return {
        extra: {re.split(r"[<>=\[]", one)[0] for one in packages}
        for extra, packages in lists.items()
    }


package_of = cache(packages_distributions)
"""The packages from PyPI that bring each module; slow."""


def imported_packages(file: Path) -> set[str]:
    """Return the packages from PyPI that a module imports."""
    tree = ast.walk(ast.parse(file.read_text()))
    imports = [node for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        (name or "").split(".")[0]
        for node in imports
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    others = names - {*sys.stdlib_module_names, "tamis", "pyspark_tamis", ""}
    # What is not installed has the name of its module.
    packages = {package_of().get(name, [name])[0].lower().replace("_", "-") for name in others}
    # Pydantic's own core and Numba's compiler, which they pin.
    return packages - {"pydantic-core", "llvmlite"}


def test_every_folder_imports_only_what_its_extras_install() -> None:
    listed, package = listed_packages(), ROOT / "src" / "tamis"
    for file in package.rglob("*.py"):
        path = file.relative_to(package).as_posix()
        extras = next((extras for part, extras in EXTRAS_OF.items() if path.startswith(part)), ())
        allowed = set.union(listed[""], *(listed[extra] for extra in extras))
        assert imported_packages(file) <= allowed, path


def test_the_check_for_an_extra_knows_its_packages() -> None:
    for extra, modules in EXTRAS.items():
        names = {package_of()[module][0].lower().replace("_", "-") for module in modules}
        assert names <= listed_packages()[extra]

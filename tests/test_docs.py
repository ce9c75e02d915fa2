"""The shell sessions in the documentation, the links between its pages, and the site made of it.

In a `console` block, `$ tamis …` is run from the root of the repository. Below it stands what it
writes to standard output, then to standard error; `...` stands for anything. `$ echo $?` asks for
the exit code. The Python examples are run as doctests.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from tamis.cli.app import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("*/README.md")])

LONGEST_LINE = 120
"""Characters of prose; links and names do not break."""
UNWRAPPED = ("CHANGELOG.md", "figures.md")
"""Many people add to them at once; what is not wrapped again merges."""

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
SOURCE_TABLE = re.compile(r"^\| in `(src/[\w/]*/)` \|.*\n((?:\|.*\n)+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


class Command(NamedTuple):
    line: str
    output: str


def commands_in(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        while line.endswith("\\"):
            more, _, output = output.partition("\n")
            line = f"{line[:-1].rstrip()} {more.strip()}"
        yield Command(line, output)


def sessions() -> list[object]:
    return [
        pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), start=1)
        if block.startswith("$ tamis ")
    ]


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((DOCS / "tutorials").glob("*.md"))])
def test_a_script_can_be_pasted_into_a_file(page: Path) -> None:
    for block in SCRIPT.findall(page.read_text(encoding="utf-8")):
        if not block.startswith(">>>"):
            compile(block, page.name, "exec")


@pytest.mark.parametrize("block", sessions())
def test_a_shell_session_runs_as_written(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code = 0
    for command in commands_in(block):
        if command.line == "echo $?":
            assert command.output == f"{code}\n"
            continue
        program, *arguments = shlex.split(command.line)
        assert program == "tamis"
        result = CliRunner().invoke(app, arguments, catch_exceptions=False, prog_name="tamis")
        code, got = result.exit_code, result.stdout + result.stderr
        same = OutputChecker().check_output(command.output, got, ELLIPSIS | NORMALIZE_WHITESPACE)
        assert same, f"$ {command.line}\n{got}"


def test_there_are_sessions_to_test() -> None:
    assert len(sessions()) > 5


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made the way the site makes them."""
    plain = (re.sub(r"[^\w\s-]", "", heading).strip() for heading in HEADING.findall(prose(page)))
    return {re.sub(r"[-\s]+", "-", heading.lower()) for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(prose(page)):
        if target.startswith("https://"):
            continue
        file = page.parent / target if target else page
        assert file.exists(), target
        if page.is_relative_to(DOCS):
            assert file.resolve().is_relative_to(DOCS), f"{target} is not a page of the site"
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def pages_in(nav: list[dict[str, object]]) -> Iterator[str]:
    for entry in nav:
        for target in entry.values():
            if isinstance(target, list):
                yield from pages_in(target)
            else:
                yield str(target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_wrapped_and_not_indented_by_accident(page: Path) -> None:
    prose = FENCED.sub("", page.read_text(encoding="utf-8")).splitlines()
    wrapped = page.name not in UNWRAPPED
    lines = [line for line in prose if not line.startswith("|")]
    assert [line for line in lines if wrapped and len(line) > LONGEST_LINE] == []
    assert [line for line in lines if re.match(r" \S", line)] == []


def test_the_navigation_of_the_site_has_every_page_once() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    assert sorted(pages_in(nav)) == sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md"))


def test_the_index_leads_to_every_page() -> None:
    linked = {target for target, _ in LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))}
    assert {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")} - linked == {"index.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_row_of_a_table_has_as_many_cells_as_its_head(page: Path) -> None:
    """A `|` in a cell ends it, also in code, unless it is escaped."""
    columns = 0
    for line in FENCED.sub("", page.read_text(encoding="utf-8")).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (columns and cells) or cells == columns, line
        columns = cells


def test_source_files_named_in_concepts_exist() -> None:
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "src").rglob("*.py")}
    for page in (DOCS / "concepts").glob("*.md"):
        for folder, table in SOURCE_TABLE.findall(page.read_text(encoding="utf-8")):
            for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
                inside = ""
                for name in re.findall(r"`([\w/]+\.py)`", row):
                    inside = name.rpartition("/")[0] or inside
                    path = f"{folder}{inside}/{Path(name).name}" if inside else folder + name
                    assert path in sources, f"{page.name}: {path}"


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    for folder in ("docs", "tools"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(  # noqa: S603
        build, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "search.json").stat().st_size > 100_000
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|link)\b[^>]*?https?://[^>]*>", page.read_text("utf-8"))
        assert not loaded, f"{page}: {loaded}"

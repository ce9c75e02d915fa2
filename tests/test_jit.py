"""Kernels: as plain Python they do the same; their caches belong to one version of Tamis."""

from __future__ import annotations

import ast
import importlib.util
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zipfile import ZipFile

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from tamis import jit, kernel_cache
from tamis.events.json_kernels import scan_bound, scan_lines
from tamis.matching import load_kernels, warming
from tamis.matching.evaluate.batch_kernels import evaluate_tile, rank_packed, sort_by_event
from tamis.matching.evaluate.posting_kernels import match_postings
from tamis.matching.evaluate.single_event.json_event_kernels import match_json
from tamis.matching.evaluate.single_event.spreading_kernels import match_values

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "suites",
    [
        pytest.param(["tests/covering/test_breakpoints.py", "tests/test_bindings.py"], id="quick"),
        pytest.param(
            [
                "tests/covering/test_brute_force.py",
                "tests/diagrams/test_sharpness.py",
                "tests/matching/test_differential.py",
                "tests/matching/store/test_snapshot.py",
            ],
            id="engine",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_suites_pass_with_the_jit_off(suites: list[str]) -> None:
    done = subprocess.run(  # noqa: S603 - ours
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "not bounded and not volume and not bindings or reads_and_writes or trailing_zeros",
            *suites,
        ],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- references -----------------------------------------------------------------------------------

BORROWING = (
    rank_packed, match_postings, evaluate_tile, sort_by_event, scan_lines, scan_bound,
    match_json, match_values,
)  # fmt: skip


def _sum(values: NDArray[np.int64]) -> int:
    total = 0
    for first in range(len(values)):
        total += values[first:][0]
    return total


@pytest.mark.parametrize("kernel", BORROWING)
def test_kernels_that_run_for_every_event_do_not_count_references(kernel: Any) -> None:
    # To rank a value took three times as long when it counted.
    assert kernel.targetoptions["_nrt"] is False


def test_a_kernel_is_compiled_once_for_all_integers_that_others_pass_to_it(tmp_path: Path) -> None:
    with patch.object(numba.config, "CACHE_DIR", str(tmp_path)):

        @jit.kernel
        def shifted(value: int, by: int) -> int:
            return value + by

        @jit.kernel
        def all_shifted(values: NDArray[np.int32]) -> int:
            return shifted(values[0], 1) + shifted(values[1], 2) + shifted(len(values), values[0])

    assert all_shifted(np.array([10, 20], np.int32)) == 11 + 22 + 12
    compiled: Any = shifted
    assert compiled.signatures == [(numba.types.int64, numba.types.int64)]


def test_what_borrows_counts_no_references(tmp_path: Path) -> None:
    # What an earlier run has cached shows no code.
    with patch.object(numba.config, "CACHE_DIR", str(tmp_path)):
        compiled: Any = jit.borrowing(_sum)
    values = np.arange(5)
    before = sys.getrefcount(values)
    assert compiled(values) == 10
    assert sys.getrefcount(values) == before
    [code] = compiled.inspect_llvm().values()
    assert "NRT_incref" not in code


def test_what_borrows_cannot_allocate() -> None:
    @jit.borrowing
    def allocated(count: int) -> float:
        return float(np.zeros(count)[0])

    with pytest.raises(numba.core.errors.NumbaError, match=r"np.zeros|NRT"):
        allocated(3)


def test_what_borrows_does_not_sort_by_itself() -> None:
    # It is compiled only where a kernel that counts has had the sort compiled in the same process.
    # After an interrupted first start that kernel came from the cache, and no broker started again.
    found = [
        f"{path.name}: {one.name}"
        for path in sorted((ROOT / "src").rglob("*kernels.py"))
        for one in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(one, ast.FunctionDef)
        and any(isinstance(by, ast.Name) and by.id == "borrowing" for by in one.decorator_list)
        and any(isinstance(part, ast.Attribute) and part.attr == "sort" for part in ast.walk(one))
    ]
    assert found == []


def test_an_item_fetched_early_is_the_same() -> None:
    @jit.borrowing
    def fetched(values: NDArray[np.int64], place: int) -> int:
        jit.prefetch(values, place)
        return int(values[place])

    assert [fetched(np.arange(9), place) for place in (0, 4, 8)] == [0, 4, 8]


# --- caches ---------------------------------------------------------------------------------------

MODULE = """
from typing import NamedTuple
import numpy as np
from tamis.jit import kernel

class Pair(NamedTuple):
    values: np.ndarray

@kernel
def total(pair):
    return pair.values.sum()
"""


def load_and_call(folder: Path) -> Any:
    """Load the module anew, as another process would, call its kernel, and return that."""
    spec = importlib.util.spec_from_file_location("some_kernels", folder / "some_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["some_kernels"] = module
    spec.loader.exec_module(module)
    assert module.total(module.Pair(np.arange(4))) == 6
    return module.total


def was_cached(total: Any) -> bool:
    return bool(sum(total.stats.cache_hits.values()) == 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "some_kernels.py").write_text(MODULE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    with patch.object(numba.config, "CACHE_DIR", ""):
        yield tmp_path
    sys.modules.pop("some_kernels", None)


def test_a_version_reads_its_own_cache_and_no_other(folder: Path) -> None:
    with patch.object(kernel_cache, "CACHE_FOLDER", "tamis-1"):
        assert not was_cached(load_and_call(folder))
        assert was_cached(load_and_call(folder))
    with patch.object(kernel_cache, "CACHE_FOLDER", "tamis-2"):
        assert not was_cached(load_and_call(folder))
        assert was_cached(load_and_call(folder))
    assert {path.name for path in (folder / "__pycache__").iterdir()} >= {"tamis-1", "tamis-2"}


class Screen(io.StringIO):
    """A terminal, or not."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_first_compilation_is_announced_once_wherever_standard_error_goes(
    folder: Path, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(kernel_cache, "_announced", False)
    assert not was_cached(load_and_call(folder))
    line = (
        "compiling kernels that this machine has not used yet, each of them once; all together "
        "take about a minute\n"
    )
    assert screen.getvalue() == line
    with patch.object(kernel_cache, "CACHE_FOLDER", "tamis-3"):
        assert not was_cached(load_and_call(folder))
    assert screen.getvalue() == line


@pytest.mark.parametrize("announced", [True, False])
def test_loading_all_kernels_is_announced_outside_a_terminal_unless_told_not_to(
    folder: Path, announced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(kernel_cache, "_announced", False)
    monkeypatch.setattr(warming, "_use_kernels", lambda: load_and_call(folder))
    load_kernels(announced=announced)
    assert screen.getvalue().count("compiling kernels that this machine") == announced
    assert was_cached(load_and_call(folder))


def test_kernels_that_are_loaded_are_not_used_again_to_load_them() -> None:
    load_kernels()
    with patch.object(warming, "Engine", side_effect=AssertionError):
        load_kernels()


def test_a_compilation_that_cannot_be_announced_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(is_terminal=False)
    screen.close()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(kernel_cache, "_announced", False)
    assert not was_cached(load_and_call(folder))


def test_what_is_cached_is_not_announced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_and_call(folder)
    screen = Screen(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(kernel_cache, "_announced", False)
    assert was_cached(load_and_call(folder))
    assert screen.getvalue() == ""


def test_a_package_that_cannot_be_written_is_cached_at_home(folder: Path) -> None:
    (folder / "__pycache__").write_text("a file where the folder should be")
    assert not was_cached(load_and_call(folder))
    total = load_and_call(folder)
    assert was_cached(total)
    assert Path(total._cache.cache_path).is_relative_to(folder / "home")


def test_a_cache_that_names_a_tuple_that_has_gone_is_written_anew(folder: Path) -> None:
    total = load_and_call(folder)
    [index] = Path(total._cache.cache_path).glob("*.nbi")
    index.write_bytes(pickle.dumps(numba.__version__) + b"csome_kernels\nGone\n.")
    assert not was_cached(load_and_call(folder))
    assert was_cached(load_and_call(folder))


def load_from_archive_and_call(archive: Path) -> Any:
    """Import the module anew from an archive, call its kernel, and return that."""
    sys.modules.pop("some_kernels", None)
    with patch.object(sys, "path", [str(archive), *sys.path]):
        module = importlib.import_module("some_kernels")
    assert module.__file__ == str(archive / "some_kernels.py")
    assert module.total(module.Pair(np.arange(4))) == 6
    return module.total


@pytest.fixture(params=["job.zip", "job.pyz"])
def archive(folder: Path, request: pytest.FixtureRequest) -> Path:
    path = folder / "archives" / str(request.param)
    path.parent.mkdir()
    with ZipFile(path, "w") as archive:
        archive.write(folder / "some_kernels.py", "some_kernels.py")
    return path


def test_kernels_in_an_archive_are_cached_at_home(folder: Path, archive: Path) -> None:
    assert not was_cached(load_from_archive_and_call(archive))
    total = load_from_archive_and_call(archive)
    assert was_cached(total)
    path = Path(total._cache.cache_path)
    assert path.is_relative_to(folder / "home")
    assert path.name == kernel_cache.CACHE_FOLDER


def test_kernels_that_no_folder_can_take_run_without_a_cache(folder: Path, archive: Path) -> None:
    (folder / "home").write_text("a file where the folder should be")
    for _ in range(2):
        total = load_from_archive_and_call(archive)
        assert not was_cached(total)
        assert total._cache.cache_path is None


def test_tamis_can_be_imported_from_an_archive(tmp_path: Path) -> None:
    archive, package = tmp_path / "job.zip", Path(jit.__file__).parent
    with ZipFile(archive, "w") as written:
        for file in package.rglob("*.py"):
            written.write(file, file.relative_to(package.parent))
    code = "from tamis import Engine, jit; print(jit.__file__, jit.mixed_in(1, 2))"
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(archive), "XDG_CACHE_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{archive}/tamis/jit.py 1000005\n", done.stderr


def test_a_choice_of_places_that_is_wrong_is_an_error(folder: Path) -> None:
    with (
        patch.object(numba.config, "CACHE_LOCATOR_CLASSES", "NoSuchLocator"),
        pytest.raises(RuntimeError, match="NoSuchLocator"),
    ):
        load_and_call(folder)


def test_other_internals_of_numba_leave_its_own_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renamed(_function: object) -> None:
        raise TypeError("renamed")

    for missing in (None, renamed):
        monkeypatch.setattr(jit, "KernelCache", missing)
        total = load_and_call(folder)
        assert Path(total._cache.cache_path) == folder / "__pycache__"
    assert was_cached(total)


def test_numba_is_unchanged_for_other_code() -> None:
    script = """
import numba.core.caching as caching, numba.core.dispatcher as dispatcher
def state():
    classes = [*vars(caching).values(), dispatcher.Dispatcher]
    return {c: dict(vars(c)) for c in classes if isinstance(c, type)}, numba.config.CACHE_DIR
import numba
before = state()
import tamis.matching
assert state() == before
"""
    subprocess.run([sys.executable, "-c", script], check=True)  # noqa: S603 - our own interpreter

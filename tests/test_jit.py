"""Kernels: as plain Python they do the same; their caches belong to one version of Tamis."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
import pytest

from tamis import jit

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "suite",
    [
        "tests/diagrams/test_sharpness.py",
        "tests/matching/test_differential.py",
        "tests/matching/store/test_snapshot.py",
    ],
)
def test_the_suite_passes_with_the_jit_off(suite: str) -> None:
    done = subprocess.run(  # noqa: S603 - our own interpreter on our own tests
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "not bounded and not volume",
            suite,
        ],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
    with patch.object(jit, "CACHE_FOLDER", "tamis-1"):
        assert not was_cached(load_and_call(folder))
        assert was_cached(load_and_call(folder))
    with patch.object(jit, "CACHE_FOLDER", "tamis-2"):
        assert not was_cached(load_and_call(folder))
        assert was_cached(load_and_call(folder))
    assert {path.name for path in (folder / "__pycache__").iterdir()} >= {"tamis-1", "tamis-2"}


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


def test_numba_is_left_as_it_is_for_others() -> None:
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

"""`kernel_cache.py` builds on internals of Numba: here is what it relies on.

If one of these fails after an upgrade, compare Numba's caching.py with `kernel_cache.py`, adapt it,
and only then widen the range of versions in pyproject.toml. Until then `jit.py` uses Numba's own
cache, so Tamis works, but an upgrade of Tamis may meet caches that it cannot read.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import caching, options
from numba.core.dispatcher import Dispatcher

from tamis import kernel_cache
from tamis.matching.evaluate.batch_kernels import evaluate_programs

PROJECT = Path(__file__).parents[1] / "pyproject.toml"

LOCATORS = [
    "UserProvidedCacheLocator",
    "InTreeCacheLocator",
    "UserWideCacheLocator",
    "IPythonCacheLocator",
    "ZipCacheLocator",
]


@pytest.mark.parametrize("name", LOCATORS)
def test_the_locators_have_the_methods_that_are_overridden_or_called(name: str) -> None:
    found = getattr(caching, name, None)
    assert found is not None, f"Numba {numba.__version__} has no {name}"
    for method, parameters in {
        "__init__": ["self", "py_func", "py_file"],
        "from_function": ["py_func", "py_file"],
        "get_cache_path": ["self"],
        "ensure_cache_path": ["self"],
        "get_source_stamp": ["self"],
    }.items():
        actual = [*inspect.signature(getattr(found, method)).parameters]
        assert actual == parameters, (
            f"Numba {numba.__version__}: {name}.{method} takes {actual}, and not {parameters}"
        )


def test_numba_has_no_other_locators() -> None:
    actual = [locator.__name__ for locator in caching.CacheImpl._locator_classes]
    assert actual == LOCATORS, f"Numba {numba.__version__} looks for caches with {actual}"


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (Dispatcher.enable_caching, "self._cache = FunctionCache(self.py_func)"),
        (Dispatcher.__init__, "self._cache = NullCache()"),
        (caching.Cache.__init__, "self._impl = self._impl_class(py_func)"),
        (caching.Cache.__init__, "self._impl.locator.get_cache_path()"),
        (caching.CacheImpl.__init__, "locator_classes = self._locator_classes"),
        (caching.CacheImpl.__init__, "locator = cls.from_function(py_func, source_path)"),
        (caching.CacheImpl.__init__, "config.CACHE_LOCATOR_CLASSES"),
        (caching._CacheLocator.ensure_cache_path, "path = self.get_cache_path()"),
        (caching.ZipCacheLocator.__init__, "= self._split_zip_path(py_file)"),
    ],
)
def test_numba_uses_what_is_replaced(function: object, part: str) -> None:
    source = inspect.getsource(function)  # type: ignore[arg-type]
    assert part in source, (
        f"Numba {numba.__version__}: {getattr(function, '__qualname__', function)} has no {part!r}"
    )


def test_a_cache_loads_and_flushes_with_these_parameters() -> None:
    for name, parameters in {
        "load_overload": ["self", "sig", "target_context"],
        "flush": ["self"],
    }.items():
        actual = [*inspect.signature(getattr(caching.FunctionCache, name)).parameters]
        assert actual == parameters, f"Numba {numba.__version__}: {name} takes {actual}"


def test_kernels_can_be_compiled_without_counting_references() -> None:
    found = hasattr(options.DefaultOptions, "_nrt")
    assert found, f"Numba {numba.__version__}: kernels that borrow count references, and are slow"


def test_only_versions_up_to_the_one_tested_are_allowed() -> None:
    major, minor, *_ = numba.__version__.split(".")
    bound = f"<{major}.{int(minor) + 1}"
    assert re.search(rf'"numba>=[\d.]+,{bound}"', PROJECT.read_text(encoding="utf-8")), (
        f"the tests ran with Numba {numba.__version__}, so pyproject.toml should say {bound}"
    )


def test_a_kernel_is_compiled_anew_when_another_file_of_kernels_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function: Any = getattr(evaluate_programs, "py_func")  # noqa: B009 - only its dispatcher has it
    make: Any = kernel_cache._InTree
    locator = make(function, inspect.getsourcefile(function))
    before = locator.get_source_stamp()
    assert locator.get_source_stamp() == before
    monkeypatch.setattr(kernel_cache, "_stamps_of_kernels", lambda: (("other_kernels.py", 1.0, 1),))
    assert locator.get_source_stamp() != before
    monkeypatch.undo()
    names = {name for name, *_ in kernel_cache._stamps_of_kernels()}
    assert {"batch_kernels.py", "posting_kernels.py", "plan_kernels.py"} <= names

"""Whether a covering index gives its filters programs, from which number of filters on."""

from __future__ import annotations

import numba
import pytest


def compile_from(filters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have indexes give programs to their filters once there are so many."""
    monkeypatch.setattr("tamis.covering.index.COMPILED_FROM", filters)


def ways(*compiled_from: int) -> list[object]:
    """Return numbers of filters as parameters of a test.

    To compile the kernels takes longer than the tests, so by default these run with the JIT off, in
    `tests/test_jit.py`, and compiled only in the slow suite.
    """
    marks = () if numba.config.DISABLE_JIT else pytest.mark.slow  # type: ignore[attr-defined]
    return [
        1_000_000,
        *(pytest.param(number, marks=marks) for number in compiled_from),
    ]

"""A kernel reaches bound arrays by one number, and arrays that it would misread are refused."""

from __future__ import annotations

from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tamis.bindings import Binding, _field, reader
from tamis.jit import kernel, trailing_zeros


class Inner(NamedTuple):
    flags: NDArray[np.bool_]
    table: Annotated[NDArray[np.int64], 2]


class Outer(NamedTuple):
    numbers: NDArray[np.int32]
    inner: Inner
    floats: NDArray[np.float64]


outer_at = reader(Outer)


@kernel
def add_up(address: Any) -> float:
    outer = outer_at(address)
    outer.numbers[0] += 1
    total = outer.floats.sum() + outer.numbers.sum()
    for row in range(outer.inner.table.shape[0]):
        for column in range(outer.inner.table.shape[1]):
            total += outer.inner.table[row, column] * (row + 10 * column)
    for flag in outer.inner.flags:
        total += 1000 * flag
    return float(total)


@kernel
def zeros_of(number: np.uint64) -> int:
    return int(trailing_zeros(number))


def outer(**changed: Any) -> Outer:
    inner = Inner(np.array([True, False, True]), np.arange(6).reshape(2, 3))
    arrays = Outer(np.arange(5, dtype=np.int32), inner, np.array([0.5, 0.25]))
    return arrays._replace(**changed)


def test_a_kernel_reads_and_writes_the_arrays_of_a_binding() -> None:
    binding = Binding(outer())
    assert add_up(binding.address) == 2000 + 0.75 + 11 + (10 + 2 * 20 + 3 + 4 * 11 + 5 * 21)
    assert binding.arrays.numbers[0] == 1


def test_bindings_do_not_mix() -> None:
    one, other = Binding(outer()), Binding(outer(floats=np.empty(0)))
    assert add_up(one.address) == add_up(other.address) + 0.75


def test_arrays_that_may_only_be_read_are_bound_as_well() -> None:
    floats = np.array([0.5, 0.25])
    floats.flags.writeable = False
    assert add_up(Binding(outer(floats=floats)).address) == add_up(Binding(outer()).address)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros(3, np.float32), np.zeros((2, 2)), np.zeros(6)[::2]],
    ids=["another type", "another shape", "not contiguous"],
)
def test_what_a_kernel_would_misread_is_refused(wrong: NDArray[Any]) -> None:
    with pytest.raises(TypeError, match=r"Outer\.floats cannot be bound as an array of float64"):
        Binding(outer(floats=wrong))


@pytest.mark.parametrize("place", [0, 1, 7, 31, 32, 63])
def test_trailing_zeros(place: int) -> None:
    for number in (1 << place, 1 << place | 1 << 63):
        assert zeros_of(np.uint64(number)) == place


Scalar = TypeVar("Scalar", bound=np.generic)
AsBefore = np.ndarray[tuple[Any, ...], np.dtype[Scalar]]


class AsSince(Generic[Scalar]):
    """How `NDArray` looks to a reader of annotations since NumPy 2.5: an alias with a scalar."""


@pytest.mark.parametrize("form", [AsBefore, AsSince])
def test_arrays_are_known_however_numpy_writes_their_types(form: Any) -> None:
    fields = [_field("a", form[np.int32]), _field("b", Annotated[form[np.float64], 2])]
    found = [(field.dtype, field.dimensions) for field in fields]
    assert found == [(np.dtype(np.int32), 1), (np.dtype(np.float64), 2)]

"""ArrayTuple bound once, for kernels that are called for every single event.

Numba examines each array of each argument at every call, which takes longer than such a kernel
runs. A `Binding` notes once where the arrays of a named tuple lie. The kernel gets the address of
that note, an integer, and rebuilds the tuple from it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import (
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numba
import numpy as np
from numba.extending import intrinsic
from numba.np import arrayobj, numpy_support
from numpy.typing import NDArray

ArrayTuple = TypeVar("ArrayTuple", bound=tuple[Any, ...])

IS_COMPILED: Final = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
"""Whether there are addresses; with NUMBA_DISABLE_JIT, kernels get the tuple itself."""


class Binding(Generic[ArrayTuple]):
    """The arrays of a named tuple, bound; as long as it lives, kernels may use its address."""

    def __init__(self, arrays: ArrayTuple) -> None:
        self.arrays: Final = arrays
        self._words = np.array(list(_words(arrays, type(arrays))), np.int64)
        self.address: Final[Any] = int(self._words.ctypes.data) if IS_COMPILED else arrays


def reader(cls: type[ArrayTuple]) -> Callable[[Any], ArrayTuple]:
    """Return the function by which a kernel gets the arrays of such a tuple from an address.

    Each field of the tuple is annotated as an array, which has two dimensions where the annotation
    says so (`Annotated[NDArray[np.int32], 2]`), or as another such tuple. The address of a tuple
    is that of its first field as well.
    """
    if not IS_COMPILED:
        return lambda arrays: _first_of(arrays, cls)
    layout = _layout(cls)

    @intrinsic
    def read(_: Any, __: Any) -> Any:
        return layout(numba.types.int64), lambda context, builder, _, given: _Reading(
            context, builder, given[0]
        ).value(layout)

    return cast("Callable[[Any], ArrayTuple]", read)


def _first_of(arrays: Any, cls: type[ArrayTuple]) -> ArrayTuple:
    """Return the tuple of a class that an address stands for, where addresses are tuples."""
    while not isinstance(arrays, cls):
        arrays = arrays[0]
    return arrays


@intrinsic
def _bytes_as_array(_: Any, data: Any) -> Any:
    """Return the bytes of an object of type bytes as an array, without a copy."""
    array = numba.types.Array(numba.types.uint8, 1, "C", readonly=True)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, given[0])
        made = context.make_array(array)(context, builder)
        size = context.get_constant(numba.types.intp, 1)
        arrayobj.populate_array(  # type: ignore[no-untyped-call]
            made, data=held.data, shape=[held.nitems], strides=[size], itemsize=size, meminfo=None
        )
        return made._getvalue()  # noqa: SLF001

    return array(data), generate


def _bytes_as_plain_array(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


bytes_as_array: Final[Any] = _bytes_as_array if IS_COMPILED else _bytes_as_plain_array
"""Turns bytes into an array inside of a kernel; to pass an array costs more than to pass bytes."""


def memory_reader(dtype: type[np.generic]) -> Callable[[int, int], NDArray[Any]]:
    """Return the function by which a kernel gets the array at an address, given its length."""
    if not IS_COMPILED:
        return lambda address, size: np.frombuffer(
            ctypes.string_at(int(address), int(size) * np.dtype(dtype).itemsize), dtype
        )
    item = numpy_support.from_dtype(np.dtype(dtype))
    array = numba.types.Array(item, 1, "C", readonly=True)

    @intrinsic
    def read(_: Any, __: Any, ___: Any) -> Any:
        def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
            stored = context.get_data_type(item)
            made = context.make_array(array)(context, builder)
            size = context.get_constant(numba.types.intp, context.get_abi_sizeof(stored))
            data = builder.inttoptr(given[0], stored.as_pointer())
            arrayobj.populate_array(  # type: ignore[no-untyped-call]
                made, data=data, shape=[given[1]], strides=[size], itemsize=size, meminfo=None
            )
            return made._getvalue()  # noqa: SLF001

        return array(numba.types.int64, numba.types.int64), generate

    return cast("Callable[[int, int], NDArray[Any]]", read)


class _Field(NamedTuple):
    """A field of a named tuple: an array, or another such tuple."""

    name: str
    tuple_type: type[tuple[Any, ...]] | None
    dtype: np.dtype[Any]
    dimensions: int


@cache
def _fields(cls: type[tuple[Any, ...]]) -> Sequence[_Field]:
    """Return the fields; cached, because to evaluate annotations takes milliseconds."""
    hints = get_type_hints(cls, include_extras=True)
    return [_field(name, hints[name]) for name in cls._fields]  # type: ignore[attr-defined]


def _field(name: str, hint: Any) -> _Field:
    if isinstance(hint, type) and issubclass(hint, tuple):
        return _Field(name, hint, np.dtype(object), 0)
    # Of Annotated[NDArray[np.int32], 2] the first argument is the array's type.
    (dimensions,) = getattr(hint, "__metadata__", (1,))
    array = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    # An NDArray has its scalar for an argument since NumPy 2.5, and a dtype of it before.
    scalar = get_args(array)[-1]
    if get_origin(scalar) is np.dtype:
        (scalar,) = get_args(scalar)
    return _Field(name, None, np.dtype(scalar), dimensions)


def _layout(cls: type[tuple[Any, ...]]) -> Any:
    """Return Numba's type of such a tuple."""
    parts = []
    for field in _fields(cls):
        if field.tuple_type is not None:
            parts.append(_layout(field.tuple_type))
        else:
            item = numpy_support.from_dtype(field.dtype)
            parts.append(numba.types.Array(item, field.dimensions, "C"))
    return numba.types.BaseTuple.from_types(parts, cls)  # type: ignore[no-untyped-call]


def _words(arrays: tuple[Any, ...], cls: type[tuple[Any, ...]]) -> Iterator[int]:
    """Yield the address and the shape of each array; refuse one that a kernel would misread."""
    for (name, tuple_type, dtype, dimensions), part in zip(_fields(cls), arrays, strict=True):
        if tuple_type is not None:
            yield from _words(part, tuple_type)
            continue
        array: NDArray[Any] = part
        if array.dtype != dtype or array.ndim != dimensions or not array.flags.c_contiguous:
            raise TypeError(f"{cls.__name__}.{name} cannot be bound as an array of {dtype}")
        yield array.ctypes.data
        yield from array.shape


class _Reading:
    """The code that reads the words of a binding, one after the other."""

    def __init__(self, context: Any, builder: Any, address: Any) -> None:
        self._context = context
        self._builder = builder
        self._word = context.get_value_type(numba.types.int64)
        self._words = builder.inttoptr(address, self._word.as_pointer())
        self._place = 0

    def _next(self) -> Any:
        place = self._context.get_constant(numba.types.intp, self._place)
        self._place += 1
        return self._builder.load(self._builder.gep(self._words, [place]))

    def value(self, type_: Any) -> Any:
        if isinstance(type_, numba.types.Array):
            return self._array(type_)
        return self._context.make_tuple(self._builder, type_, [self.value(part) for part in type_])

    def _array(self, type_: Any) -> Any:
        context, builder = self._context, self._builder
        item = context.get_data_type(type_.dtype)
        size = context.get_constant(numba.types.intp, context.get_abi_sizeof(item))
        data = builder.inttoptr(self._next(), item.as_pointer())
        shape = [self._next() for _ in range(type_.ndim)]
        strides = [size]
        for length in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        array = context.make_array(type_)(context, builder)
        # Nobody owns the memory here: the binding keeps the arrays.
        arrayobj.populate_array(  # type: ignore[no-untyped-call]
            array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None
        )
        return array._getvalue()  # noqa: SLF001

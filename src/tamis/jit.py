"""How Tamis compiles a loop: at its first call, cached on disk, without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import options
from numba.extending import intrinsic

try:
    from tamis.kernel_cache import KernelCache
    from tamis.kernel_cache import (
        announced_in_terminals_only as announced_in_terminals_only,  # noqa: PLC0414
    )
except ImportError:  # a Numba whose internals have other names
    KernelCache = None  # type: ignore[assignment,misc]

    def announced_in_terminals_only() -> AbstractContextManager[None]:  # type: ignore[misc]
        """Do nothing: nothing is announced."""
        return nullcontext()


Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_OTHER_INTERNALS: Final = (AttributeError, TypeError)
"""What a Numba raises whose internals are not those that `kernel_cache` knows."""


def _compiled(function: Kernel, **options: Any) -> Kernel:
    compiled: Any = numba.njit(nogil=True, **options)(function)
    # With NUMBA_DISABLE_JIT it is the function itself.
    if compiled is not function:
        _compile_once_for_all_integers(compiled)
        _enable_cache(compiled, function)
    return cast("Kernel", compiled)


def _compile_once_for_all_integers(compiled: Any) -> None:
    """Have kernels that call this one share what is compiled, whatever integers they pass.

    Numba would compile it anew for every constant that stands in a call, and for each width: a
    fifth of all compiling, for the same code.
    """
    find = getattr(compiled, "get_call_template", None)
    if find is None:  # Numba has changed its internals
        return

    def find_for_wide(args: Any, kws: Any) -> Any:
        return find([_widened(one) for one in args], {k: _widened(one) for k, one in kws.items()})

    compiled.get_call_template = find_for_wide


def _widened(kind: Any) -> Any:
    """Return the type that values of a type are passed as."""
    types: Any = numba.types
    kind = types.unliteral(kind)
    return types.int64 if isinstance(kind, types.Integer) and kind.signed else kind


def _enable_cache(compiled: Any, function: Kernel) -> None:
    """Cache what is compiled; where there is no place for it, every process compiles anew."""
    try:
        try:
            _enable_kernel_cache(compiled, function)
        except _OTHER_INTERNALS:
            compiled.enable_caching()
    except RuntimeError:
        # Nothing can be written. But if the user has chosen the places, the choice is wrong.
        if getattr(numba.config, "CACHE_LOCATOR_CLASSES", ""):
            raise


def _enable_kernel_cache(compiled: Any, function: Kernel) -> None:
    # As `cache=True` does, but only for this kernel: the host process and its own kernels keep
    # the cache that Numba gives them.
    if KernelCache is None or not hasattr(compiled, "_cache"):
        raise AttributeError("Numba has changed its internals")
    compiled._cache = KernelCache(function)  # type: ignore[no-untyped-call]  # noqa: SLF001


def kernel(function: Kernel) -> Kernel:
    """Compile a function over arrays at its first call; later processes load it from the cache.

    With NUMBA_DISABLE_JIT=1 in the environment the function runs as plain Python, for debugging and
    for the tests that compare both.
    """
    return _compiled(function, **_counting(True))


def borrowing(function: Kernel) -> Kernel:
    """Compile a kernel that allocates no array and returns none: it only borrows its caller's.

    Numba counts the references to an array wherever it is passed, sliced or given a second name. To
    count takes a locked instruction, many times as long as a step of most loops. Here nothing is
    counted, so what such a kernel allocated would never be freed; Numba refuses to compile it.
    """
    return _compiled(function, **_counting(False))


def _counting(counts: bool) -> dict[str, bool]:
    """Return the option; a kernel without it counts if the first does that it is compiled for."""
    known = hasattr(getattr(options, "DefaultOptions", None), "_nrt")
    return {"_nrt": counts} if known else {}


def inlined(function: Kernel) -> Kernel:
    """Compile a part of other kernels into each of them.

    A call passes every array of every tuple on its own, which costs more than a small loop.
    """
    return _compiled(function, inline="always")


@kernel
def mixed_in(mixed: int, value: int) -> int:
    """Return a hash with one more value in it, of 42 bits, so that no step takes more than 64."""
    return (mixed * 1_000_003 + int(value)) & 0x3FF_FFFF_FFFF


def _trailing_zeros(number: int) -> int:
    """Return how many zeros a number other than 0 ends with, in binary."""
    return (int(number) & -int(number)).bit_length() - 1


@intrinsic
def _count_trailing_zeros(_: Any, __: Any) -> Any:
    """Return the same, in one instruction."""

    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        return builder.cttz(given[0], context.get_constant(numba.types.boolean, 1))

    return numba.types.uint64(numba.types.uint64), generate


def _leave(array: Any, place: int) -> None:
    """Do nothing: plain Python has no use for it."""


@intrinsic
def _prefetch(_: Any, array: Any, __: Any) -> Any:
    """Have an item of an array fetched into the nearest cache, while other work goes on."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        items = context.make_array(signature.args[0])(context, builder, given[0]).data
        address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        fetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [address], ir.FunctionType(ir.VoidType(), [address] + 3 * [number])
        )
        # To read it, in the nearest cache, and it is data.
        arguments = [builder.bitcast(builder.gep(items, [given[1]]), address)]
        builder.call(fetch, [*arguments, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return numba.types.void(array, numba.types.intp), generate


def _leave_address(address: int) -> None:
    """Do nothing: plain Python has no use for it."""


@intrinsic
def _prefetch_address(_: Any, __: Any) -> Any:
    """Have what is at an address fetched into the nearest cache, to be changed there."""

    def generate(context: Any, builder: Any, _: Any, given: Any) -> Any:
        address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        fetch = builder.module.declare_intrinsic(
            "llvm.prefetch", [address], ir.FunctionType(ir.VoidType(), [address] + 3 * [number])
        )
        builder.call(fetch, [builder.inttoptr(given[0], address), number(1), number(3), number(1)])
        return context.get_dummy_value()

    return numba.types.void(numba.types.int64), generate


_IS_PLAIN: Final = numba.config.DISABLE_JIT  # type: ignore[attr-defined]
trailing_zeros: Final[Any] = _trailing_zeros if _IS_PLAIN else _count_trailing_zeros
prefetch: Final[Any] = _leave if _IS_PLAIN else _prefetch
prefetch_address: Final[Any] = _leave_address if _IS_PLAIN else _prefetch_address

"""Re-exports that load their module at first use (PEP 562), and extras that may be missing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from types import MappingProxyType
from typing import Any, Final

from tamis.errors import MissingExtraAttributeError, MissingExtraError, MissingExtraImportError

# The modules that a part of Tamis imports, by the extra of pyproject.toml that installs them.
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "client": ("httpx", "websockets"),
    "broker": (
        "joserfc",
        "prometheus_client",
        "pydantic_settings",
        "starlette",
        "structlog",
        "uvicorn",
    ),
    "kafka": ("confluent_kafka",),
    "spark": ("pyspark",),
    "xml": ("lxml",),
}


# Python's own import locks hand out half-made modules when two threads enter a package from two
# sides, which with lazy names happens at their first use.
_LOADING: Final = RLock()


def lazy_exports(
    package: str, homes: Mapping[str, str], elsewhere: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package; its submodules load at first use too.

    A package without an `__all__` of its own gets one at first use.

    Args:
        package: The name of the package.
        homes: The exported names, separated by spaces, by the module that defines them.
        elsewhere: What to use for names that one may look for here.
    """
    module_of = {name: module for module, names in homes.items() for name in names.split()}

    def __getattr__(name: str) -> Any:  # noqa: N807 - the package's, not ours
        try:
            value = installed() if name == "__all__" else load(name)
        except MissingExtraError as error:
            # `from package import name` asks with `hasattr`, and would lose the sentence.
            if sys._getframe(1).f_code.co_name == "_handle_fromlist":  # noqa: SLF001
                raise
            raise MissingExtraAttributeError(error.extra, error.packages) from None
        setattr(sys.modules[package], name, value)
        return value

    def load(name: str) -> Any:
        with _LOADING:
            if name in module_of:
                return getattr(import_module(module_of[name]), name)
            if not name.startswith("_") and find_spec(f"{package}.{name}"):
                return import_module(f"{package}.{name}")
        hint = f"; use {elsewhere[name]}" if name in elsewhere else ""
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    def installed() -> list[str]:
        """Return the names that a star import brings: all whose extras are installed."""
        names = []
        for name in sorted(module_of):
            with suppress(MissingExtraError):
                load(name)
                names.append(name)
        return names

    def __dir__() -> list[str]:  # noqa: N807 - as above
        return sorted({*vars(sys.modules[package]), *module_of})

    return __getattr__, __dir__


def require_extra(extra: str) -> None:
    """Raise an error with the command to run if the packages of an extra are not installed."""
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        raise MissingExtraImportError(extra, missing)

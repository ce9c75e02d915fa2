"""Generate the regular methods of the synchronous bus from those of the asynchronous one.

    python tools/generate_sync.py

They have the same signatures and docstrings, so that editors and type checkers treat both alike.
`client/sync.py` has the others by hand: those that need a thread of their own. A test checks that
the generated file is current.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CLIENT: Final = Path(__file__).parents[1] / "src" / "tamis" / "client"
TARGET: Final = CLIENT / "sync_methods.py"
SOURCES: Final = {"bus.py": "Bus", "management.py": "ManagingBus"}
BY_HAND: Final = {"open", "close", "publish_many", "run", "history"}

HEADER: Final = '''"""Regular methods of the synchronous bus, from tools/generate_sync.py."""
# ruff: noqa: A002 - these are the names of the asynchronous bus

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from tamis.client.bus import Bus
from tamis.client.messages import Publishable
from tamis.client.options import Lifetime
from tamis.filters import Filter, Mode
from tamis.protocol.management import ManagementCall
from tamis.protocol.views import DeadLetterView, Receipt, SubscriptionView, Trial

T = TypeVar("T")


class SyncMethods(ABC):
    """Methods of `Bus` without `await`."""

    @property
    @abstractmethod
    def _async_bus(self) -> Bus: ...

    @abstractmethod
    def _wait(self, ask: Callable[[Bus], Coroutine[Any, Any, T]]) -> T: ...

'''


def generate() -> str:
    """Return the text of the file."""
    methods = [text for name, kind in SOURCES.items() for text in _methods(CLIENT / name, kind)]
    return _formatted(HEADER + "\n".join(methods))


def _methods(path: Path, kind: str) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind]
    for node in found.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_") or node.name in BY_HAND:
            continue
        if isinstance(node, ast.AsyncFunctionDef):
            yield _method(node)
        elif any(ast.unparse(one) == "property" for one in node.decorator_list):
            yield f"    @property\n{_head(node)}        return self._async_bus.{node.name}\n"


def _returns(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.unparse(node.returns) if node.returns is not None else "None"


def _head(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    signature = f"def {node.name}({ast.unparse(node.args)}) -> {_returns(node)}:"
    return f'    {signature}\n        """{ast.get_docstring(node, clean=False)}"""\n'


def _method(node: ast.AsyncFunctionDef) -> str:
    given = [one.arg for one in node.args.args[1:]]
    given += [f"{one.arg}={one.arg}" for one in node.args.kwonlyargs]
    result = "" if _returns(node) == "None" else "return "
    call = f"self._wait(lambda bus: bus.{node.name}({', '.join(given)}))"
    return f"{_head(node)}        {result}{call}\n"


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    done = subprocess.run(  # noqa: S603 - our own command
        command, input=text, capture_output=True, text=True, check=True
    )
    return done.stdout


def main() -> None:
    """Write the file, or with `--check` only compare it."""
    text = generate()
    if "--check" not in sys.argv:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        sys.exit(f"{TARGET} is not current: run python tools/generate_sync.py")


if __name__ == "__main__":
    main()

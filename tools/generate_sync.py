"""Generate the regular methods of the synchronous classes from those of the asynchronous ones.

    python tools/generate_sync.py

They have the same signatures and docstrings, so that editors and type checkers treat both alike.
`client/sync.py` has the others by hand: those that need a thread of their own. The kinds of
collections are generated, too; what they do is in `collections/synchronous.py`. A test checks that
the generated files are current.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeGuard

TAMIS: Final = Path(__file__).parents[1] / "src" / "tamis"
CLIENT: Final = TAMIS / "client"
TARGET: Final = CLIENT / "sync_methods.py"
KINDS: Final = TAMIS / "collections" / "kinds.py"
KINDS_TARGET: Final = TAMIS / "collections" / "sync_kinds.py"
SOURCES: Final = {"bus.py": "Bus", "management.py": "ManagingBus"}
CONSUMER: Final = ("consumer.py", "Consumer")
BY_HAND: Final = {"open", "close", "publish_many", "run", "history"}
# A consumer may be closed while the synchronous one still holds some of its events.
NOT_SHARED: Final = {"is_closed"}

HEADER: Final = '''"""What synchronous buses and consumers copy, from tools/generate_sync.py."""
# ruff: noqa: A002 - these are the names of the asynchronous bus

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from tamis.client.bus import Bus
from tamis.client.consumer import Consumer
from tamis.client.messages import Publishable
from tamis.client.options import Lifetime
from tamis.filters import Filter, Mode
from tamis.protocol.management import ManagementCall, NewSubscription
from tamis.protocol.views import Creation, DeadLetterView, Receipt, SubscriptionView, Trial

T = TypeVar("T")


class SyncMethods(ABC):
    """Methods of `Bus` without `await`."""

    @property
    @abstractmethod
    def _async_bus(self) -> Bus: ...

    @abstractmethod
    def _wait(self, ask: Callable[[Bus], Coroutine[Any, Any, T]]) -> T: ...

'''


CONSUMER_HEADER: Final = '''

class SyncConsumerProperties:
    """Properties of `Consumer`."""

    _consumer: Consumer

'''

KINDS_HEADER: Final = '''"""The kinds of synchronous collections, from tools/generate_sync.py."""

from __future__ import annotations

from tamis.collections.kinds import (
{names})
from tamis.collections.members import T
from tamis.collections.synchronous import SyncDACollection


'''


def generate() -> str:
    """Return the text of the file."""
    methods = [
        _property(node, "_async_bus") if isinstance(node, ast.FunctionDef) else _method(node)
        for name, kind in SOURCES.items()
        for node in _public(CLIENT / name, kind)
    ]
    name, kind = CONSUMER
    properties = [
        _property(node, "_consumer")
        for node in _public(CLIENT / name, kind)
        if isinstance(node, ast.FunctionDef) and node.name not in NOT_SHARED
    ]
    text = HEADER + "\n".join(methods) + CONSUMER_HEADER + "\n".join(properties)
    return _formatted(text, TARGET)


def generate_kinds() -> str:
    """Return the text of the file with the kinds of collections."""
    tree = ast.parse(KINDS.read_text(encoding="utf-8"))
    kinds = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names = "".join(f"    {name},\n" for name in sorted(node.name for node in kinds))
    classes = [
        f"class Sync{node.name}(SyncDACollection[T]):\n"
        f'    """{ast.get_docstring(node, clean=False)}"""\n\n'
        f"    KIND = {node.name}\n"
        for node in kinds
    ]
    return _formatted(KINDS_HEADER.format(names=names) + "\n\n".join(classes), KINDS_TARGET)


def _public(path: Path, kind: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the public properties and coroutine functions of a class."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind]
    for node in found.body:
        is_method = isinstance(node, ast.AsyncFunctionDef) or _is_property(node)
        if is_method and not node.name.startswith("_") and node.name not in BY_HAND:
            yield node


def _is_property(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(one) == "property" for one in node.decorator_list
    )


def _property(node: ast.FunctionDef, owner: str) -> str:
    return f"    @property\n{_head(node)}        return self.{owner}.{node.name}\n"


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


def _formatted(text: str, target: Path) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(target), "-"]
    done = subprocess.run(  # noqa: S603 - our own command
        command, input=text, capture_output=True, text=True, check=True
    )
    return done.stdout


def main() -> None:
    """Write the files, or with `--check` only compare them."""
    for target, text in ((TARGET, generate()), (KINDS_TARGET, generate_kinds())):
        if "--check" not in sys.argv:
            target.write_text(text, encoding="utf-8")
        elif target.read_text(encoding="utf-8") != text:
            sys.exit(f"{target} is not current: run python tools/generate_sync.py")


if __name__ == "__main__":
    main()

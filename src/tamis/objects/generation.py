"""Generated code: a function for each class that takes every step of an invocation tree once.

All accessors that are wanted are merged into a tree, so that no prefix of a chain is evaluated
twice for an object. The tree becomes a function of Python, compiled from a syntax tree that is
built node by node: no text of a program is ever put together, names of members are only ever names
of attributes, and constants are values in the function's own namespace.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from tamis.objects.accessors import (
    AccessorSteps,
    ByName,
    CallStep,
    ClassStep,
    FieldStep,
    IndexStep,
    Step,
    class_names,
    holds_several,
    is_mere_absence,
    is_private,
)

Extraction = Callable[..., None]
"""Takes objects, what reads step by step where classes do not tell the way, and outlets.

An outlet is for one attribute, and takes its value in the next object.
"""


@dataclass
class InvocationNode:
    """What a chain of steps leads to, and the steps from there."""

    steps: AccessorSteps
    place: int | None = None
    """The attribute that it is, if it is wanted."""
    children: dict[Step, InvocationNode] = field(default_factory=dict)

    def below(self) -> Iterator[InvocationNode]:
        """Yield the wanted nodes below this one."""
        for child in self.children.values():
            if child.place is not None:
                yield child
            yield from child.below()


def invocation_tree(wanted: Sequence[AccessorSteps]) -> InvocationNode:
    """Return the tree of some chains, which share their prefixes."""
    root = InvocationNode(())
    for place, steps in enumerate(wanted):
        node = root
        for number, step in enumerate(steps, 1):
            node = node.children.setdefault(step, InvocationNode(steps[:number]))
        node.place = place
    return root


@lru_cache(maxsize=4096)
def _is_plain(cls: type) -> bool:
    """Return whether members of an instance are its attributes: it is no collection or mapping."""
    return not issubclass(cls, Mapping) and not holds_several(cls)


def generate_extractor(
    cls: type, wanted: Sequence[AccessorSteps], names: Sequence[str], by_name: ByName
) -> Extraction:
    """Return the function that extracts some attributes from objects of a class."""
    return _Generation(cls, names, by_name).function(invocation_tree(wanted))


OBJECTS: Final = "objects"
MESSAGE: Final = "message"
READ: Final = "read"


class _Generation:
    def __init__(self, cls: type, names: Sequence[str], by_name: ByName) -> None:
        self._cls = cls
        self._names = names
        self._count = 0
        self._namespace: dict[str, Any] = {
            "__builtins__": {"type": type, "Exception": Exception},
            "is_plain": _is_plain,
            "class_names": class_names,
            "fail": _failing(by_name),
        }

    def function(self, root: InvocationNode) -> Extraction:
        """Return the function for a tree."""
        outlets = [ast.arg(f"put{place}") for place in range(len(self._names))]
        body = self._below(root, MESSAGE)
        body += [_call_statement(f"put{place}", self._known(place)) for place in self._places(root)]
        loop = ast.For(_store(MESSAGE), _load(OBJECTS), body or [ast.Pass()], [])
        given = [ast.arg(OBJECTS), ast.arg(READ), *outlets]
        arguments = ast.arguments([], given, None, [], [], None, [])
        tree = ast.Module([ast.FunctionDef("extract", arguments, [loop], [])], [])
        code = compile(
            ast.fix_missing_locations(tree), f"<extraction of {self._cls.__name__}>", "exec"
        )
        function = next(one for one in code.co_consts if isinstance(one, types.CodeType))
        return types.FunctionType(function, self._namespace)

    def _places(self, root: InvocationNode) -> Iterable[int]:
        own = () if root.place is None else (root.place,)
        return [*own, *(node.place for node in root.below() if node.place is not None)]

    def _known(self, place: int) -> ast.expr:
        return _load(self._variables.get(place, MESSAGE))

    # --- constants and variables -------------------------------------------------------------

    _variables: dict[int, str]

    def _constant(self, value: object) -> ast.expr:
        name = f"constant{len(self._namespace)}"
        self._namespace[name] = value
        return _load(name)

    def _variable(self, node: InvocationNode) -> str:
        self._count += 1
        name = f"value{self._count}"
        if node.place is not None:
            self._variables[node.place] = name
        return name

    # --- the tree ----------------------------------------------------------------------------

    def _below(self, node: InvocationNode, value: str) -> list[ast.stmt]:
        """Return the statements that find all below a node."""
        if value == MESSAGE:
            self._variables = {}
        direct: list[ast.stmt] = []
        dispatched: list[ast.stmt] = []
        generic: list[ast.stmt] = []
        for step, child in node.children.items():
            variable = self._variable(child)
            taken = [*self._taken(step, child, value, variable), *self._children(child, variable)]
            if value == MESSAGE or isinstance(step, IndexStep):
                direct += taken
            else:
                dispatched += taken
                generic += self._read(child, node, value)
        if dispatched:
            is_plain = _called("is_plain", _called("type", _load(value)))
            direct.append(ast.If(is_plain, dispatched, generic))
        return direct

    def _children(self, child: InvocationNode, variable: str) -> list[ast.stmt]:
        if not child.children:
            return []
        body = self._below(child, variable)
        absent = [
            _assigned(self._variables[one.place], ast.Constant(None))
            for one in child.below()
            if one.place is not None
        ]
        is_there = ast.Compare(_load(variable), [ast.IsNot()], [ast.Constant(None)])
        return [ast.If(is_there, body, absent)]

    def _taken(
        self, step: Step, child: InvocationNode, value: str, variable: str
    ) -> list[ast.stmt]:
        name = self._constant(_name(child, self._names))
        match step:
            case ClassStep(class_name=class_name):
                if value == MESSAGE:
                    return [_assigned(variable, ast.Constant(class_name in class_names(self._cls)))]
                names = _called("class_names", _called("type", _load(value)))
                found = ast.Compare(self._constant(class_name), [ast.In()], [names])
                return [_assigned(variable, found)]
            case FieldStep(name=member) if member.isidentifier() and not is_private(member):
                taken: ast.expr = ast.Attribute(_load(value), member, ast.Load())
            case CallStep(name=member, arguments=arguments):
                method = ast.Attribute(_load(value), member, ast.Load())
                taken = ast.Call(method, [self._constant(one) for one in arguments], [])
            case IndexStep(index=index):
                taken = ast.Subscript(_load(value), self._constant(index), ast.Load())
            case _:
                steps = self._constant((step,))
                taken = _called(READ, _load(value), steps, _load(MESSAGE), name)
        failed = _called(
            "fail", _load(MESSAGE), _load(value), self._constant(step), name, _load("error")
        )
        handler = ast.ExceptHandler(_load("Exception"), "error", [_assigned(variable, failed)])
        return [ast.Try([_assigned(variable, taken)], [handler], [], [])]

    def _read(self, child: InvocationNode, node: InvocationNode, value: str) -> list[ast.stmt]:
        """Return the statements that find a child and all below it step by step."""
        wanted = [*([child] if child.place is not None else []), *child.below()]
        statements: list[ast.stmt] = []
        for one in wanted:
            assert one.place is not None  # noqa: S101 - only wanted ones are here
            steps = self._constant(one.steps[len(node.steps) :])
            name = self._constant(self._names[one.place])
            found = _called(READ, _load(value), steps, _load(MESSAGE), name)
            statements.append(_assigned(self._variables[one.place], found))
        return statements


def _name(child: InvocationNode, names: Sequence[str]) -> str:
    """Return an attribute that a failure is about: the node's, or the first below it."""
    if child.place is not None:
        return names[child.place]
    return next((names[one.place] for one in child.below() if one.place is not None), "")


def _failing(by_name: ByName) -> Callable[..., None]:
    def fail(message: object, value: object, step: Step, name: str, error: Exception) -> None:
        if not is_mere_absence(value, step, error):
            by_name.failures.note(message, name, error)

    return fail


# --- syntax ----------------------------------------------------------------------------------


def _load(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _store(name: str) -> ast.expr:
    return ast.Name(name, ast.Store())


def _called(function: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(_load(function), [*arguments], [])


def _assigned(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([_store(name)], value)


def _call_statement(function: str, argument: ast.expr) -> ast.stmt:
    return ast.Expr(_called(function, argument))

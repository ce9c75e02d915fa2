"""The ways of evaluating accessors that the paper compares, each as a reader of objects.

`ByName` looks every member up in every object. `ByType` looks it up once for each class.
`InvocationTree` takes no step twice for one object. `StaticCode` runs code that is generated for
each accessor. The engine does all of it at once: it runs code that is generated from the tree.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from tamis.objects.accessors import (
    FAILURES,
    Accessor,
    AccessorFailures,
    ByName,
    CallStep,
    FieldStep,
    Step,
    class_names,
    goes_into_elements,
    holds_several,
    is_private,
)
from tamis.objects.generation import Extraction, InvocationNode, generate_extractor, invocation_tree
from tamis.objects.patterns import ObjectFilter


class ByType(ByName):
    """Reads objects through the methods of their class, which are looked up once."""

    def __init__(self, failures: AccessorFailures = FAILURES) -> None:
        super().__init__(failures)
        self._resolved: Final[dict[tuple[type, Step], Callable[[Any], object]]] = {}

    def step(self, value: Any, step: Step) -> object:
        """Take one step."""
        key = type(value), step
        taken = self._resolved.get(key)
        if taken is None:
            taken = self._resolved[key] = self._resolve(*key)
        return taken(value)

    def _resolve(self, cls: type, step: Step) -> Callable[[Any], object]:
        found = getattr(cls, step.name, None) if isinstance(step, FieldStep | CallStep) else None
        match step:
            case FieldStep(name=name) if not issubclass(cls, Mapping) and not is_private(name):
                getter = found.fget if isinstance(found, property) else None
                return getter or attrgetter(name)
            case CallStep(arguments=arguments) if callable(found) and _is_method(cls, step.name):
                return lambda value: found(value, *arguments)
            case _:
                return lambda value: super(ByType, self).step(value, step)


def _is_method(cls: type, name: str) -> bool:
    """Return whether a class has a plain function of this name, which takes the object first."""
    return inspect.isfunction(inspect.getattr_static(cls, name, None))


class InvocationTree:
    """Reads all accessors of some filters from an object, and takes no step twice."""

    def __init__(
        self, filters: Iterable[ObjectFilter], failures: AccessorFailures = FAILURES
    ) -> None:
        accessors = {one.accessor.steps for each in filters for one in each.conditions()}
        self._root: Final = invocation_tree([*accessors])
        self._by_name: Final = ByType(failures)
        self.failures: Final = failures

    def reader(self, message: object) -> Callable[[object, Accessor], object]:
        """Return a reader that has read the message."""
        found: dict[tuple[Step, ...], object] = {(): message}
        self._evaluate(self._root, message, message, found)
        names, by_name = class_names(type(message)), self._by_name

        def read(given: object, accessor: Accessor) -> object:
            if given is not message:
                return by_name(given, accessor)
            return None if accessor.root and accessor.root not in names else found[accessor.steps]

        return read

    def _evaluate(
        self, node: InvocationNode, value: object, message: object, found: dict[Any, object]
    ) -> None:
        # Depth is bounded by the steps of an accessor.
        for step, child in node.children.items():
            if value is not None and goes_into_elements(value, step):
                for one in (child, *child.below()):
                    rest = one.steps[len(node.steps) :]
                    found[one.steps] = self._by_name.read(value, rest, message, "")
                continue
            taken = self._by_name.read(value, (step,), message, str(step))
            found[child.steps] = taken
            self._evaluate(child, taken, message, found)


class StaticCode:
    """Reads objects by code that is generated for each class and accessor."""

    def __init__(self, failures: AccessorFailures = FAILURES) -> None:
        self.failures: Final = failures
        self._by_name: Final = ByName(failures)
        self._generated: Final[dict[tuple[type, Accessor], Extraction]] = {}

    def __call__(self, message: object, accessor: Accessor) -> object:
        """Return what the accessor finds."""
        cls = type(message)
        if accessor.root and accessor.root not in class_names(cls):
            return None
        if not accessor.steps:
            return message
        if holds_several(cls) or isinstance(message, Mapping):
            # An element that is a collection itself has no class of its own to generate code for.
            return self._by_name(message, accessor)
        extract = self._generated.get((cls, accessor))
        if extract is None:
            extract = generate_extractor(cls, [accessor.steps], [accessor.name], self._by_name)
            self._generated[cls, accessor] = extract
        found: list[object] = []
        extract((message,), self._by_name.read, found.append)
        return found[0]

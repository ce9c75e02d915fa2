"""The patterns of many attributes as one tree, in which a document is followed.

Patterns that begin alike share branches, and a branch finds those that follow it by name. So an
element takes as long as the branches that it leads to, however many patterns there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from tamis.xml.node_patterns import PatternStep

T = TypeVar("T")


class NameIndex(Generic[T]):
    """What is said of elements or attributes with some names, found by the name that one has."""

    __slots__ = ("_any", "_exact", "_local", "_spaces")

    def __init__(self) -> None:
        self._exact: dict[str, T] = {}
        self._local: dict[str | None, T] = {}
        """By name, in whatever namespace."""
        self._spaces: dict[str | None, T] = {}
        """By namespace, with whatever name."""
        self._any: T | None = None

    def get(self, step: PatternStep) -> T | None:
        """Return what is said of the names that a step passes."""
        if step.name is None and step.namespace is None:
            return self._any
        if step.name is None:
            return self._spaces.get(step.namespace)
        if step.namespace is None:
            return self._local.get(step.name)
        return self._exact.get(step.shown_name)

    def put(self, step: PatternStep, value: T) -> None:
        """Note what is said of the names that a step passes."""
        if step.name is None and step.namespace is None:
            self._any = value
        elif step.name is None:
            self._spaces[step.namespace] = value
        elif step.namespace is None:
            self._local[step.name] = value
        else:
            self._exact[step.shown_name] = value

    @property
    def is_plain(self) -> bool:
        """Return whether it says something of whole names alone."""
        return not (self._local or self._spaces or self._any is not None)

    def of(self, tag: str) -> Iterator[T]:
        """Yield all that is said of a name, given it as lxml writes it."""
        found = self._exact.get(tag)
        if found is not None:
            yield found
        if not self.is_plain:
            yield from self.of_any(tag)

    def of_any(self, tag: str) -> Iterator[T]:
        """Yield what is said of a name together with others."""
        if self._any is not None:
            yield self._any
        if self._local or self._spaces:
            namespace, name = tag[1:].rsplit("}", 1) if tag[0] == "{" else ("", tag)
            if name in self._local:
                yield self._local[name]
            if namespace in self._spaces:
                yield self._spaces[namespace]

    def __bool__(self) -> bool:
        return bool(self._exact or self._local or self._spaces or self._any is not None)


class PatternBranch:
    """Where some patterns have come to: what ends here, and what may follow."""

    __slots__ = ("attributes", "branches", "deep", "ends", "is_deep", "number")

    def __init__(self, number: int, *, is_deep: bool) -> None:
        self.number: Final = number
        self.is_deep: Final = is_deep
        """Whether it holds for all elements below as well."""
        self.branches: Final = NameIndex[PatternBranch]()
        """The branches that elements in it lead to."""
        self.deep: PatternBranch | None = None
        """The branch of patterns that go on at any depth."""
        self.attributes: Final = NameIndex[list[int]]()
        """The numbers of patterns that end at attributes of the element."""
        self.ends: Final[list[int]] = []
        """The numbers of patterns that end at the element."""


class PatternTree:
    """Patterns by their numbers."""

    def __init__(self, patterns: Iterable[tuple[int, Sequence[PatternStep]]]) -> None:
        self.branches: Final = [PatternBranch(0, is_deep=False)]
        self._by_name: Final[dict[str, dict[int, PatternBranch]]] = {}
        """The branches that elements with a name lead to, by where they lead from."""
        self._deep: Final[set[int]] = set()
        self._vague: Final[set[int]] = set()
        """The branches that lead on by more than whole names."""
        self._has_local = False
        """Whether some of them go by a name in whatever namespace."""
        for number, steps in patterns:
            self._add(number, steps)

    def _add(self, number: int, steps: Sequence[PatternStep]) -> None:
        branch = self.branches[0]
        for step in steps:
            if step.is_deep:
                branch.deep = branch.deep or self._new(is_deep=True)
                branch = branch.deep
            if step.is_attribute:
                numbers = branch.attributes.get(step) or []
                branch.attributes.put(step, numbers)
                numbers.append(number)
                return
            following = branch.branches.get(step) or self._new(is_deep=False)
            branch.branches.put(step, following)
            if step.name is None or step.namespace is None:
                self._vague.add(branch.number)
                self._has_local |= step.name is not None
            else:
                self._by_name.setdefault(step.shown_name, {})[branch.number] = following
            branch = following
        branch.ends.append(number)

    def _new(self, *, is_deep: bool) -> PatternBranch:
        branch = PatternBranch(len(self.branches), is_deep=is_deep)
        self.branches.append(branch)
        if is_deep:
            self._deep.add(branch.number)
        return branch

    def start(self) -> frozenset[int]:
        """Return the branches that the document itself is in, before its outermost element."""
        return self._with_deep([self.branches[0]])

    def knows(self, tag: str) -> bool:
        """Return whether patterns may mention a name; all others lead to the same branches."""
        return tag in self._by_name or (bool(self._vague) and (self._has_local or tag[0] == "{"))

    def entered(self, branches: frozenset[int], tag: str) -> frozenset[int]:
        """Return the branches of an element, given those of the one that it is in."""
        named = self._by_name.get(tag, {})
        if len(named) < len(branches):
            reached = [branch for number, branch in named.items() if number in branches]
        else:
            reached = [named[number] for number in branches if number in named]
        for number in self._vague & branches:
            reached += self.branches[number].branches.of_any(tag)
        return self._with_deep(reached) | self._deep.intersection(branches)

    def _with_deep(self, branches: Iterable[PatternBranch]) -> frozenset[int]:
        found = set()
        for branch in branches:
            found.add(branch.number)
            if branch.deep is not None:
                found.add(branch.deep.number)
        return frozenset(found)

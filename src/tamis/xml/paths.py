"""Paths: steps from nodes to nodes, each with what keeps some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, cast

from tamis.xml.axes import Axis, in_document_order
from tamis.xml.nodes import XMLKind, XMLNode
from tamis.xml.work import Evaluation, Focus

OrderedNodes = Sequence[XMLNode]
"""OrderedNodes in document order, each once."""


class XMLExpression(Protocol):
    """A part of a query."""

    @property
    def is_positional(self) -> bool:
        """Return whether it depends on the place of the node among those with it."""
        ...

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> object:
        """Return what it is for a node: nodes, a truth value, or something of its language."""
        ...


class NodeExpression(XMLExpression, Protocol):
    """An expression that gives nodes."""

    def nodes(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the nodes that it finds from a node."""
        ...


class Selection(Protocol):
    """What keeps some of the nodes that a step finds: a filter or a subscript."""

    @property
    def is_positional(self) -> bool:
        """Return whether it depends on places, so that nodes cannot be looked at together."""
        ...

    @property
    def looks_at(self) -> int | None:
        """Return how many of the first nodes are enough to know which are kept; None: all."""
        ...

    def kept(self, evaluation: Evaluation, nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
        """Return the nodes that are kept, of nodes in the order in which places count."""
        ...


class NodeTest(NamedTuple):
    """What a step asks of a node: its kind, name and namespace; None: any."""

    kind: XMLKind | None = None
    name: str | None = None
    namespace: str | None = None

    def passes(self, node: XMLNode) -> bool:
        """Return whether a node is what the step asks for."""
        return (
            (self.kind is None or node.kind is self.kind)
            and (self.name is None or node.name == self.name)
            and (self.namespace is None or node.namespace == self.namespace)
        )


ANY_NODE: Final = NodeTest()


class NodeStep(Protocol):
    """From nodes to nodes."""

    def from_one(self, evaluation: Evaluation, focus: Focus) -> Sequence[XMLNode]:
        """Return the nodes that it finds from one node, in the order in which places count."""
        ...

    def from_many(self, evaluation: Evaluation, nodes: OrderedNodes) -> OrderedNodes:
        """Return the nodes that it finds from many."""
        ...


class AxisStep(NamedTuple):
    """The nodes in one direction that pass a test and all selections."""

    axis: Axis
    test: NodeTest
    selections: tuple[Selection, ...] = ()

    def from_one(self, evaluation: Evaluation, focus: Focus) -> Sequence[XMLNode]:
        """Return the nodes that it finds from one node, in the order in which places count."""
        found = self.axis.from_one(focus.node)
        if not self.selections or self.selections[0].looks_at is None:
            return self._kept(evaluation, [*found])
        return self._kept(evaluation, self._first(self.selections[0].looks_at, evaluation, found))

    def from_many(self, evaluation: Evaluation, nodes: OrderedNodes) -> OrderedNodes:
        """Return the nodes that it finds from many."""
        evaluation.spend(len(nodes))
        if self.axis.from_many is None or any(each.is_positional for each in self.selections):
            parts = [self.from_one(evaluation, Focus(node)) for node in nodes]
            return in_document_order(node for part in parts for node in part)
        return self._kept(evaluation, self.axis.from_many(nodes))

    def _first(
        self, count: int, evaluation: Evaluation, found: Iterable[XMLNode]
    ) -> Sequence[XMLNode]:
        """Return the first nodes that pass the test, without looking at others."""
        passing: list[XMLNode] = []
        for node in found:
            if len(passing) == count:
                break
            evaluation.spend(1)
            if self.test.passes(node):
                passing.append(node)
        return passing

    def _kept(self, evaluation: Evaluation, found: Sequence[XMLNode]) -> Sequence[XMLNode]:
        evaluation.spend(len(found) * self.axis.work)
        if self.test != ANY_NODE:
            found = [node for node in found if self.test.passes(node)]
        return _selected(evaluation, found, self.selections)


def _selected(
    evaluation: Evaluation, found: Sequence[XMLNode], selections: tuple[Selection, ...]
) -> Sequence[XMLNode]:
    for selection in selections:
        if not found:
            break
        found = selection.kept(evaluation, found)
    return found


class GroupStep(NamedTuple):
    """The nodes that an expression in parentheses, or a function, finds and selections keep."""

    inner: NodeExpression
    selections: tuple[Selection, ...] = ()

    def from_one(self, evaluation: Evaluation, focus: Focus) -> Sequence[XMLNode]:
        """Return the nodes that it finds from one node, in document order."""
        found = self.inner.nodes(evaluation, focus)
        evaluation.spend(1 + len(found))
        return _selected(evaluation, found, self.selections)

    def from_many(self, evaluation: Evaluation, nodes: OrderedNodes) -> OrderedNodes:
        """Return the nodes that it finds from many."""
        parts = [self.from_one(evaluation, Focus(node)) for node in nodes]
        return parts[0] if len(parts) == 1 else in_document_order(n for part in parts for n in part)


class NodePath(NamedTuple):
    """Steps, from the node at hand or from the document."""

    steps: tuple[NodeStep, ...]
    is_absolute: bool = False

    @property
    def is_positional(self) -> bool:
        """Return whether its first step looks at the place of the node at hand."""
        first = self.steps[0] if self.steps else None
        return not self.is_absolute and isinstance(first, GroupStep) and first.inner.is_positional

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the nodes that it finds."""
        return self.nodes(evaluation, focus)

    def nodes(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the nodes that it finds from a node."""
        if not self.is_absolute:
            return self._through(self.steps, evaluation, focus)
        # The same from everywhere, and often in a filter.
        found = evaluation.once(self, Focus(evaluation.document.root), self._from_document)
        return cast("OrderedNodes", found)

    def _from_document(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        return self._through(self.steps, evaluation, focus)

    def placed(self, evaluation: Evaluation, focus: Focus) -> list[Focus]:
        """Return the nodes with their places among those that the last step finds from one node."""
        if not self.steps:
            return [Focus(node) for node in self._start(evaluation, focus)]
        found: dict[int, Focus] = {}
        for node in self._through(self.steps[:-1], evaluation, focus):
            part = self.steps[-1].from_one(evaluation, Focus(node))
            for place, each in enumerate(part):
                found.setdefault(each.number, Focus(each, place, len(part)))
        return [found[number] for number in sorted(found)]

    def _through(
        self, steps: tuple[NodeStep, ...], evaluation: Evaluation, focus: Focus
    ) -> OrderedNodes:
        nodes = self._start(evaluation, focus)
        for number, step in enumerate(steps):
            if not nodes:
                break
            # Only the first step may look at the place of the node at hand.
            if number == 0 and not self.is_absolute and isinstance(step, GroupStep):
                nodes = step.from_one(evaluation, focus)
            else:
                nodes = step.from_many(evaluation, nodes)
        return nodes

    def _start(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        return (evaluation.document.root,) if self.is_absolute else (focus.node,)


class NodeUnion(NamedTuple):
    """The nodes that some of several expressions find."""

    terms: tuple[NodeExpression, ...]

    @property
    def is_positional(self) -> bool:
        """Return whether a term is."""
        return any(term.is_positional for term in self.terms)

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the nodes that it finds."""
        return self.nodes(evaluation, focus)

    def nodes(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the nodes that some of the terms find."""
        parts = [term.nodes(evaluation, focus) for term in self.terms]
        evaluation.spend(len(parts) + sum(map(len, parts)))
        return in_document_order(node for part in parts for node in part)


class NodeIntersection(NamedTuple):
    """The nodes that each of several expressions finds."""

    terms: tuple[NodeExpression, ...]

    @property
    def is_positional(self) -> bool:
        """Return whether a term is."""
        return any(term.is_positional for term in self.terms)

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the nodes that it finds."""
        return self.nodes(evaluation, focus)

    def nodes(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the nodes that each of the terms finds."""
        first, *others = [term.nodes(evaluation, focus) for term in self.terms]
        evaluation.spend(len(first) + sum(map(len, others)))
        common = set.intersection(*({node.number for node in part} for part in (first, *others)))
        return [node for node in first if node.number in common]

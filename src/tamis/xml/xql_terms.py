"""What XQL has beside paths: methods, functions, comparisons with quantifiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, cast

from tamis.xml.axes import in_document_order
from tamis.xml.nodes import XML_NAMESPACE, XMLKind, XMLNode
from tamis.xml.paths import NodeExpression, NodePath, OrderedNodes
from tamis.xml.values import XQLValue, comparison_holds, without_extra_space
from tamis.xml.work import CHARACTERS_PER_NODE, Evaluation, Focus

UserOperator = Callable[[XQLValue, XQLValue], bool]
"""A user's own comparison of the text of a node, or another value, with another."""
UserFunction = Callable[..., XQLValue | bool]
"""A user's own function: takes a literal, or the tuple of texts that a query finds, for each."""

# The numbers of the Document Object Model, and the names of the XQL proposal.
NODE_TYPES: Final[Mapping[XMLKind, tuple[int, str]]] = {
    XMLKind.ELEMENT: (1, "element"),
    XMLKind.ATTRIBUTE: (2, "attribute"),
    XMLKind.TEXT: (3, "text"),
    XMLKind.INSTRUCTION: (7, "processing_instruction"),
    XMLKind.COMMENT: (8, "comment"),
    XMLKind.DOCUMENT: (9, "document"),
    XMLKind.NAMESPACE: (13, "namespace"),
}


def _text(evaluation: Evaluation, focus: Focus) -> str:
    return without_extra_space(evaluation.text_of(focus.node))


METHODS: Final[Mapping[str, Callable[[Evaluation, Focus], XQLValue]]] = {
    "text": _text,
    "value": _text,
    "rawText": lambda evaluation, focus: evaluation.text_of(focus.node),
    "nodeName": lambda _, focus: focus.node.qualified_name,
    "baseName": lambda _, focus: focus.node.name,
    "namespace": lambda _, focus: focus.node.namespace,
    "prefix": lambda _, focus: focus.node.prefix,
    "nodeType": lambda _, focus: NODE_TYPES[focus.node.kind][0],
    "nodeTypeString": lambda _, focus: NODE_TYPES[focus.node.kind][1],
    "index": lambda _, focus: focus.position,
    "count": lambda _, focus: focus.size,
}
"""The methods that give a value of one node; `end()` gives a truth value."""

METHOD_NAMES: Final = (*METHODS, "end")
CAST_METHODS: Final = ("text", "value", "rawText")
"""Methods that give the text of a node, which a comparison may take for a number."""
NUMBER_METHODS: Final = ("nodeType", "index", "count")


class XQLOperand(Protocol):
    """A side of a comparison."""

    @property
    def is_positional(self) -> bool:
        """Return whether it depends on the place of the node at hand."""
        ...

    @property
    def is_cast(self) -> bool:
        """Return whether its texts may be taken for numbers."""
        ...

    def values(self, evaluation: Evaluation, focus: Focus) -> Sequence[XQLValue]:
        """Return all its values."""
        ...


class LiteralOperand(NamedTuple):
    """A literal."""

    constant: XQLValue
    is_positional: bool = False
    is_cast: bool = False

    def values(self, evaluation: Evaluation, focus: Focus) -> Sequence[XQLValue]:  # noqa: ARG002
        """Return the one value."""
        return (self.constant,)

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> XQLValue:  # noqa: ARG002
        """Return the value."""
        return self.constant


class NodesOperand(NamedTuple):
    """The texts of the nodes that an expression finds."""

    inner: NodeExpression
    is_cast: bool = True

    @property
    def is_positional(self) -> bool:
        """Return whether the expression is."""
        return self.inner.is_positional

    def values(self, evaluation: Evaluation, focus: Focus) -> Sequence[XQLValue]:
        """Return the text of each node."""
        found = self.inner.nodes(evaluation, focus)
        return [_text(evaluation, Focus(node)) for node in found]


class MethodCall(NamedTuple):
    """A method of the nodes that a path finds, or, without a path, of the node at hand."""

    name: str
    path: NodePath | None = None

    @property
    def is_positional(self) -> bool:
        """Return whether it depends on the place of the node at hand."""
        if self.path is None:
            return self.name in {"index", "count", "end"}
        return self.path.is_positional

    @property
    def is_cast(self) -> bool:
        """Return whether it gives texts of nodes."""
        return self.name in CAST_METHODS

    def values(self, evaluation: Evaluation, focus: Focus) -> Sequence[XQLValue]:
        """Return the value for each node; `count()` of a path is one number."""
        if self.path is None:
            return (METHODS[self.name](evaluation, focus),)
        if self.name == "count":
            return (len(self.path.nodes(evaluation, focus)),)
        method = METHODS[self.name]
        if self.name == "index":
            return [method(evaluation, each) for each in self.path.placed(evaluation, focus)]
        return [method(evaluation, Focus(node)) for node in self.path.nodes(evaluation, focus)]

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> object:
        """Return the values, or for `end()` whether the node, or some node, is the last."""
        if self.name != "end":
            return self.values(evaluation, focus)
        focuses = [focus] if self.path is None else self.path.placed(evaluation, focus)
        return any(each.position == each.size - 1 for each in focuses)


class FunctionCall(NamedTuple):
    """A user's own function."""

    name: str
    function: UserFunction
    arguments: tuple[XQLOperand, ...]
    is_cast: bool = False

    @property
    def is_positional(self) -> bool:
        """Return whether an argument is."""
        return any(argument.is_positional for argument in self.arguments)

    def values(self, evaluation: Evaluation, focus: Focus) -> Sequence[XQLValue]:
        """Return what the function returns."""
        return (self.evaluate(evaluation, focus),)

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> XQLValue | bool:
        """Return what the function returns."""
        evaluation.spend(1)
        return self.function(*(self._given(each, evaluation, focus) for each in self.arguments))

    def _given(
        self, argument: XQLOperand, evaluation: Evaluation, focus: Focus
    ) -> XQLValue | tuple[XQLValue, ...]:
        if isinstance(argument, LiteralOperand):
            return argument.constant
        return tuple(argument.values(evaluation, focus))


class XQLComparison(NamedTuple):
    """A comparison of some, or with `$all$` of every, value on the left with some on the right."""

    op: str
    left: XQLOperand
    right: XQLOperand
    of_all: bool = False
    is_caseless: bool = False
    user: UserOperator | None = None

    @property
    def is_positional(self) -> bool:
        """Return whether a side is."""
        return self.left.is_positional or self.right.is_positional

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> bool:
        """Return whether the values compare so."""
        lefts = self.left.values(evaluation, focus)
        rights = self.right.values(evaluation, focus)
        evaluation.spend(len(lefts) * len(rights))
        if self.is_caseless:
            # Each pair is folded.
            folded = len(rights) * _characters(lefts) + len(lefts) * _characters(rights)
            evaluation.spend(folded // CHARACTERS_PER_NODE)
        hold = (any(self._holds(left, right) for right in rights) for left in lefts)
        return all(hold) if self.of_all else any(hold)

    def _holds(self, left: XQLValue, right: XQLValue) -> bool:
        if self.user is not None:
            return bool(self.user(left, right))
        cast = self.left.is_cast and self.right.is_cast
        return comparison_holds(self.op, left, right, cast=cast, caseless=self.is_caseless)


def _characters(values: Sequence[XQLValue]) -> int:
    return sum(len(value) for value in values if isinstance(value, str))


class NearestAncestor(NamedTuple):
    """XQL's `ancestor(query)`: the nearest ancestor that the query finds from above it."""

    query: NodeExpression
    is_positional: bool = False

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the ancestor, if there is one."""
        return self.nodes(evaluation, focus)

    def nodes(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the ancestor, if there is one."""
        line: list[XMLNode] = []
        above = focus.node.parent
        while above is not None:
            line.append(above)
            above = above.parent
        found: set[int] = set()
        for node in line:
            result = evaluation.once(self, Focus(node), self._found)
            assert isinstance(result, frozenset)  # noqa: S101 - as `_found` returns it
            evaluation.spend(len(result))
            found |= result
        return next(((node,) for node in line if node.number in found), ())

    def _found(self, evaluation: Evaluation, focus: Focus) -> frozenset[int]:
        nodes = self.query.nodes(evaluation, focus)
        return frozenset(node.number for node in nodes)


class WithId(NamedTuple):
    """`id(…)`: the elements whose attribute `xml:id` is one of some words."""

    words: XQLOperand

    @property
    def is_positional(self) -> bool:
        """Return whether what the words come from is."""
        return self.words.is_positional

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the elements."""
        return self.nodes(evaluation, focus)

    def nodes(self, evaluation: Evaluation, focus: Focus) -> OrderedNodes:
        """Return the elements."""
        texts = map(str, self.words.values(evaluation, focus))
        wanted = {word for text in texts for word in without_extra_space(text).split(" ")}
        known = evaluation.once(WithId, Focus(evaluation.document.root), _elements_by_id)
        by_id = cast("Mapping[str, XMLNode]", known)
        evaluation.spend(len(wanted))
        return in_document_order(by_id[word] for word in wanted if word in by_id)


def _elements_by_id(evaluation: Evaluation, _: Focus) -> Mapping[str, XMLNode]:
    """Return the element of each `xml:id`; of several with the same, the first."""
    found: dict[str, XMLNode] = {}
    nodes = evaluation.document.nodes
    evaluation.spend(len(nodes))
    for node in nodes:
        is_id = node.name == "id" and node.namespace == XML_NAMESPACE
        if is_id and node.kind is XMLKind.ATTRIBUTE and node.parent is not None:
            found.setdefault(node.content, node.parent)
    return found

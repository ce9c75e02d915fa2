"""Axes: the nodes that lie in one direction, from one node and, in linear time, from many.

`from_one` gives nodes one after the other in the order in which places count, which is backward for
axes that lead back; whoever needs only the first does not pay for others. `from_many` takes and
gives nodes in document order, each once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from tamis.xml.nodes import NamespaceNode, XMLKind, XMLNode

_ATTRIBUTE: Final = XMLKind.ATTRIBUTE
_PARTS_OF_PLACE: Final = 2**20
"""More than an element can have namespaces, so that a fraction tells their order."""


class Axis(NamedTuple):
    """A direction in a document."""

    name: str
    from_one: Callable[[XMLNode], Iterable[XMLNode]]
    from_many: Callable[[Sequence[XMLNode]], Sequence[XMLNode]] | None
    """None: from each of them, no two of which lead to the same node."""
    principal: XMLKind = XMLKind.ELEMENT
    """What a name stands for."""
    work: int = 1
    """What it takes to find a node, compared with other axes."""


def in_document_order(nodes: Iterable[XMLNode]) -> list[XMLNode]:
    """Return nodes in document order, each once."""
    return sorted({*nodes}, key=_order)


def _order(node: XMLNode) -> float:
    if isinstance(node, NamespaceNode):
        return node.number + node.place / _PARTS_OF_PLACE
    return node.number


def _number(node: XMLNode) -> int:
    return node.number


def _is_in_tree(node: XMLNode) -> bool:
    """Return whether a node is a child of its parent: attributes and namespaces are not."""
    return node.kind is not _ATTRIBUTE and node.kind is not XMLKind.NAMESPACE


# --- from one node -----------------------------------------------------------------------------


def _self(node: XMLNode) -> Iterable[XMLNode]:
    return (node,)


def _parent(node: XMLNode) -> Iterable[XMLNode]:
    return () if node.parent is None else (node.parent,)


def _ancestors(node: XMLNode) -> Iterator[XMLNode]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _forward(nodes: Sequence[XMLNode], start: int, stop: int) -> Iterator[XMLNode]:
    """Yield nodes from a place that is no attribute's, without looking at attributes."""
    while start < stop:
        node = nodes[start]
        yield node
        start += 1 + len(node.attributes)


def _descendants(node: XMLNode) -> Iterator[XMLNode]:
    return _forward(node.nodes, node.number + 1 + len(node.attributes), node.last + 1)


def _siblings_before(node: XMLNode) -> Iterator[XMLNode]:
    if node.parent is not None and _is_in_tree(node):
        children = node.parent.children
        for place in range(bisect_left(children, node.number, key=_number) - 1, -1, -1):
            yield children[place]


def _siblings_after(node: XMLNode) -> Iterator[XMLNode]:
    if node.parent is not None and _is_in_tree(node):
        children = node.parent.children
        for place in range(bisect_right(children, node.number, key=_number), len(children)):
            yield children[place]


def _start_of_following(node: XMLNode) -> int:
    if _is_in_tree(node) or node.parent is None:
        return node.last + 1
    return node.parent.number + 1 + len(node.parent.attributes)


def _following(node: XMLNode) -> Iterator[XMLNode]:
    return _forward(node.nodes, _start_of_following(node), len(node.nodes))


def _preceding(node: XMLNode) -> Iterator[XMLNode]:
    start = node if _is_in_tree(node) else node.parent
    assert start is not None, "attributes and namespaces have an element"  # noqa: S101
    place = start.number - 1
    while place >= 0:
        each = node.nodes[place]
        if each.kind is _ATTRIBUTE and each.parent is not None:
            each = each.parent
        if each.last < start.number:
            yield each
        place = each.number - 1


# --- from many ---------------------------------------------------------------------------------


def _children_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return in_document_order(child for node in nodes for child in node.children)


def _attributes_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return [attribute for node in nodes for attribute in node.attributes]


def _parents_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return in_document_order(node.parent for node in nodes if node.parent is not None)


def _ancestors_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    found: set[XMLNode] = set()
    for node in nodes:
        above = node.parent
        while above is not None and above not in found:
            found.add(above)
            above = above.parent
    return in_document_order(found)


def _descendants_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    found: list[XMLNode] = []
    reached = -1
    for node in nodes:
        # What lies in a node that lies in one before it was added with that one.
        if node.last > reached:
            found += _descendants(node)
            reached = node.last
    return found


def _siblings_after_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    first: dict[XMLNode | None, XMLNode] = {}
    for node in filter(_is_in_tree, nodes):
        first.setdefault(node.parent, node)
    return in_document_order(each for node in first.values() for each in _siblings_after(node))


def _siblings_before_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    last = {node.parent: node for node in filter(_is_in_tree, nodes)}
    return in_document_order(each for node in last.values() for each in _siblings_before(node))


def _following_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return [*_following(min(nodes, key=_start_of_following))] if nodes else ()


def _preceding_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    # What lies before one of them lies before the last, too, whose ancestors hold the others.
    return [*_preceding(nodes[-1])][::-1] if nodes else ()


def _with_self(
    others: Callable[[Sequence[XMLNode]], Sequence[XMLNode]],
) -> Callable[[Sequence[XMLNode]], Sequence[XMLNode]]:
    return lambda nodes: in_document_order((*nodes, *others(nodes)))


AXES: Final[Mapping[str, Axis]] = {
    axis.name: axis
    for axis in (
        Axis("self", _self, lambda nodes: nodes),
        Axis("child", lambda node: node.children, _children_of_many),
        Axis("attribute", lambda node: node.attributes, _attributes_of_many, _ATTRIBUTE),
        # A node of its own for each of them: that is what their work stands for.
        Axis("namespace", lambda node: node.namespaces, None, XMLKind.NAMESPACE, work=16),
        Axis("parent", _parent, _parents_of_many),
        Axis("ancestor", _ancestors, _ancestors_of_many),
        Axis(
            "ancestor-or-self",
            lambda node: (node, *_ancestors(node)),
            _with_self(_ancestors_of_many),
        ),
        Axis("descendant", _descendants, _descendants_of_many),
        Axis(
            "descendant-or-self",
            lambda node: chain((node,), _descendants(node)),
            _with_self(_descendants_of_many),
        ),
        Axis("following-sibling", _siblings_after, _siblings_after_many),
        Axis("preceding-sibling", _siblings_before, _siblings_before_many),
        Axis("following", _following, _following_of_many),
        Axis("preceding", _preceding, _preceding_of_many),
    )
}

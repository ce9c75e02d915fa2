"""Axes: the nodes that lie in one direction, from one node and, in linear time, from many.

Both give nodes in document order; `from_many` takes them so, too, and gives each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tamis.xml.nodes import XMLKind, XMLNode

_ATTRIBUTE: Final = XMLKind.ATTRIBUTE


class Axis(NamedTuple):
    """A direction in a document."""

    name: str
    from_one: Callable[[XMLNode], Sequence[XMLNode]]
    from_many: Callable[[Sequence[XMLNode]], Sequence[XMLNode]]


def in_document_order(nodes: Iterable[XMLNode]) -> list[XMLNode]:
    """Return nodes in document order, each once."""
    return sorted({node.number: node for node in nodes}.values(), key=_number)


def _number(node: XMLNode) -> int:
    return node.number


# --- from one node -----------------------------------------------------------------------------


def _self(node: XMLNode) -> Sequence[XMLNode]:
    return (node,)


def _parent(node: XMLNode) -> Sequence[XMLNode]:
    return () if node.parent is None else (node.parent,)


def _all_in(node: XMLNode) -> Sequence[XMLNode]:
    inside = node.nodes[node.number + 1 : node.last + 1]
    return [node, *(each for each in inside if each.kind is not _ATTRIBUTE)]


# --- from many ---------------------------------------------------------------------------------


def _children_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return in_document_order(child for node in nodes for child in node.children)


def _attributes_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return in_document_order(attribute for node in nodes for attribute in node.attributes)


def _parents_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return in_document_order(node.parent for node in nodes if node.parent is not None)


def _all_in_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    found: list[XMLNode] = []
    reached = -1
    for node in nodes:
        # What lies in a node before it was added with that node, except an attribute.
        if node.number > reached:
            found += _all_in(node)
            reached = node.last
        elif node.kind is _ATTRIBUTE:
            found.append(node)
    return in_document_order(found)


AXES: Final[Mapping[str, Axis]] = {
    axis.name: axis
    for axis in (
        Axis("self", _self, lambda nodes: nodes),
        Axis("child", lambda node: node.children, _children_of_many),
        Axis("attribute", lambda node: node.attributes, _attributes_of_many),
        Axis("parent", _parent, _parents_of_many),
        Axis("descendant-or-self", _all_in, _all_in_many),
    )
}

"""Axes: the nodes that lie in one direction, from one node and, in linear time, from many.

`from_one` gives the nodes in the order in which positions count: backward for axes that lead back.
`from_many` takes and gives nodes in document order, each once.
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
    is_of_attributes: bool = False
    """Whether a name stands for attributes, rather than elements."""


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


def _ancestors(node: XMLNode) -> Sequence[XMLNode]:
    found = []
    above = node.parent
    while above is not None:
        found.append(above)
        above = above.parent
    return found


def _descendants(node: XMLNode) -> Sequence[XMLNode]:
    inside = node.nodes[node.number + 1 : node.last + 1]
    return [each for each in inside if each.kind is not _ATTRIBUTE]


def _following_siblings(node: XMLNode) -> Sequence[XMLNode]:
    if node.parent is None or node.kind is _ATTRIBUTE:
        return ()
    return [each for each in node.parent.children if each.number > node.number]


def _preceding_siblings(node: XMLNode) -> Sequence[XMLNode]:
    if node.parent is None or node.kind is _ATTRIBUTE:
        return ()
    return [each for each in node.parent.children if each.number < node.number][::-1]


def _following(node: XMLNode) -> Sequence[XMLNode]:
    return [each for each in node.nodes[node.last + 1 :] if each.kind is not _ATTRIBUTE]


def _preceding(node: XMLNode) -> Sequence[XMLNode]:
    earlier = node.nodes[: node.number]
    return [each for each in earlier if each.kind is not _ATTRIBUTE and each.last < node.number][
        ::-1
    ]


# --- from many ---------------------------------------------------------------------------------


def _children_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return in_document_order(child for node in nodes for child in node.children)


def _attributes_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return in_document_order(attribute for node in nodes for attribute in node.attributes)


def _parents_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return in_document_order(node.parent for node in nodes if node.parent is not None)


def _ancestors_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    found: dict[int, XMLNode] = {}
    for node in nodes:
        above = node.parent
        while above is not None and above.number not in found:
            found[above.number] = above
            above = above.parent
    return in_document_order(found.values())


def _descendants_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    found: list[XMLNode] = []
    reached = -1
    for node in nodes:
        # What lies in a node before it has been added with that node.
        if node.last > reached:
            found += _descendants(node)
            reached = node.last
    return found


def _following_siblings_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    first: dict[int, XMLNode] = {}
    for node in nodes:
        if node.parent is not None and node.kind is not _ATTRIBUTE:
            first.setdefault(node.parent.number, node)
    return in_document_order(each for node in first.values() for each in _following_siblings(node))


def _preceding_siblings_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    last: dict[int, XMLNode] = {}
    for node in nodes:
        if node.parent is not None and node.kind is not _ATTRIBUTE:
            last[node.parent.number] = node
    return in_document_order(each for node in last.values() for each in _preceding_siblings(node))


def _following_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return _following(min(nodes, key=lambda node: node.last)) if nodes else ()


def _preceding_of_many(nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
    return _preceding(nodes[-1])[::-1] if nodes else ()


def _with_self(
    others: Callable[[Sequence[XMLNode]], Sequence[XMLNode]],
) -> Callable[[Sequence[XMLNode]], Sequence[XMLNode]]:
    return lambda nodes: in_document_order((*nodes, *others(nodes)))


AXES: Final[Mapping[str, Axis]] = {
    axis.name: axis
    for axis in (
        Axis("self", _self, lambda nodes: nodes),
        Axis("child", lambda node: node.children, _children_of_many),
        Axis("attribute", lambda node: node.attributes, _attributes_of_many, True),
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
            lambda node: (node, *_descendants(node)),
            _with_self(_descendants_of_many),
        ),
        Axis("following-sibling", _following_siblings, _following_siblings_of_many),
        Axis("preceding-sibling", _preceding_siblings, _preceding_siblings_of_many),
        Axis("following", _following, _following_of_many),
        Axis("preceding", _preceding, _preceding_of_many),
    )
}

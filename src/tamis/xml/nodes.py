"""The nodes of a document, in document order: an element, its attributes, then its children."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

XML_NAMESPACE: Final = "http://www.w3.org/XML/1998/namespace"
"""The namespace of the prefix `xml`, which needs no declaration."""


class XMLKind(StrEnum):
    """What a node is."""

    DOCUMENT = "document"
    ELEMENT = "element"
    ATTRIBUTE = "attribute"
    TEXT = "text"
    COMMENT = "comment"
    INSTRUCTION = "instruction"
    """A processing instruction."""
    NAMESPACE = "namespace"
    """A namespace that an element can use: only XPath knows such nodes."""


class XMLNode:
    """One node of a document."""

    __slots__ = (
        "_namespaces",
        "_source",
        "attributes",
        "children",
        "content",
        "kind",
        "last",
        "name",
        "namespace",
        "nodes",
        "number",
        "parent",
        "prefix",
    )

    def __init__(
        self,
        kind: XMLKind,
        nodes: list[XMLNode],
        parent: XMLNode | None,
        *,
        name: str = "",
        namespace: str = "",
        prefix: str = "",
        content: str = "",
        source: Any = None,
    ) -> None:
        self.kind = kind
        self.nodes = nodes
        """All nodes of the document."""
        self.parent = parent
        self.name = name
        """The name without its prefix; of a processing instruction, its target."""
        self.namespace = namespace
        self.prefix = prefix
        self.content = content
        """The text of a node that has no nodes in it."""
        self.children: list[XMLNode] = []
        self.attributes: list[XMLNode] = []
        self.number = len(nodes)
        """Its place in document order."""
        self.last = self.number
        """The place of the last node in it."""
        self._source = source
        self._namespaces: Sequence[NamespaceNode] | None = None
        nodes.append(self)

    def __repr__(self) -> str:
        shown = self.xml
        return f"<{self.kind} {shown if len(shown) <= 60 else shown[:59] + '…'}>"

    @property
    def qualified_name(self) -> str:
        """Return the name as it is written, with its prefix."""
        return f"{self.prefix}:{self.name}" if self.prefix else self.name

    @property
    def namespaces(self) -> Sequence[NamespaceNode]:
        """Return a node for each namespace that the element can use, in the order of prefixes."""
        if self._namespaces is None:
            known: dict[str | None, str | None] = {}
            if self.kind is XMLKind.ELEMENT:
                known = {**self._source.nsmap, "xml": XML_NAMESPACE}
            # The namespace None takes back a default one.
            found = sorted((prefix or "", uri) for prefix, uri in known.items() if uri)
            self._namespaces = [
                NamespaceNode(self, prefix, uri, place)
                for place, (prefix, uri) in enumerate(found, start=1)
            ]
        return self._namespaces

    @property
    def value(self) -> str:
        """Return the text of the node; of an element, all text in it."""
        if self.kind is not XMLKind.ELEMENT and self.kind is not XMLKind.DOCUMENT:
            return self.content
        inside = self.nodes[self.number : self.last + 1]
        return "".join([node.content for node in inside if node.kind is XMLKind.TEXT])

    @property
    def xml(self) -> str:
        """Return the node as XML; namespaces that it uses are declared in it."""
        match self.kind:
            case XMLKind.DOCUMENT:
                return "".join(child.xml for child in self.children)
            case XMLKind.ATTRIBUTE:
                return f"{self.qualified_name}={quoteattr(self.content)}"
            case XMLKind.TEXT:
                return escape(self.content)
            case XMLKind.NAMESPACE:
                name = f"xmlns:{self.name}" if self.name else "xmlns"
                return f"{name}={quoteattr(self.content)}"
            case _:
                return str(etree.tostring(self._source, encoding="unicode", with_tail=False))


class NamespaceNode(XMLNode):
    """A namespace that an element can use, by its prefix; it is not one of the document's nodes.

    They are made when a query asks for them: there can be as many for each element as
    declarations in the whole document.
    """

    __slots__ = ("place",)

    def __init__(self, element: XMLNode, prefix: str, uri: str, place: int) -> None:
        super().__init__(XMLKind.NAMESPACE, [], element, name=prefix, content=uri)
        self.nodes = element.nodes
        self.number = self.last = element.number
        self.place = place
        """Its place among those of its element, from 1: they come after it, before attributes."""


def add_tree(root: Any) -> list[XMLNode]:
    """Return the nodes of a parsed document, given its outermost element."""
    nodes: list[XMLNode] = []
    document = XMLNode(XMLKind.DOCUMENT, nodes, None)
    before = [*root.itersiblings(preceding=True)][::-1]
    for source in (*before, root, *root.itersiblings()):
        _add(source, document)
    document.last = len(nodes) - 1
    return nodes


def _add(top: Any, document: XMLNode) -> None:
    """Add what is in a node; the document decides how deep that is, so there is no recursion."""
    # An element whose children are being added, and those that are left.
    opened = [(document, iter((top,)))]
    while opened:
        parent, sources = opened[-1]
        source = next(sources, None)
        if source is None:
            parent.last = len(parent.nodes) - 1
            opened.pop()
            # Only now: the text after an element comes after all that is in it.
            if opened:
                _add_text(parent._source.tail, opened[-1][0])  # noqa: SLF001 - the same module
            continue
        node = _node(source, parent)
        if node.kind is XMLKind.ELEMENT:
            _add_text(source.text, node)
            opened.append((node, iter(source)))
        else:
            _add_text(source.tail, parent)


def _node(source: Any, parent: XMLNode) -> XMLNode:
    if source.tag is etree.Comment:
        kind, name = XMLKind.COMMENT, ""
    elif source.tag is etree.ProcessingInstruction:
        kind, name = XMLKind.INSTRUCTION, source.target
    else:
        return _element(source, parent)
    node = XMLNode(kind, parent.nodes, parent, name=name, content=source.text or "", source=source)
    parent.children.append(node)
    return node


def _element(source: Any, parent: XMLNode) -> XMLNode:
    namespace, name = _split(source.tag)
    node = XMLNode(
        XMLKind.ELEMENT,
        parent.nodes,
        parent,
        name=name,
        namespace=namespace,
        prefix=source.prefix or "",
        source=source,
    )
    parent.children.append(node)
    for place, (tag, value) in enumerate(source.attrib.items(), start=1):
        namespace, name = _split(tag)
        attribute = XMLNode(
            XMLKind.ATTRIBUTE,
            parent.nodes,
            node,
            name=name,
            namespace=namespace,
            prefix=_attribute_prefix(source, place, namespace) if namespace else "",
            content=value,
        )
        node.attributes.append(attribute)
    return node


def _attribute_prefix(source: Any, place: int, namespace: str) -> str:
    if namespace == XML_NAMESPACE:
        return "xml"
    # lxml tells the prefix of an attribute only so. Its `nsmap` is made of all that is declared
    # around an element, for each element again.
    return str(_attribute_name(place)(source)).split(":")[0]


@lru_cache(maxsize=1024)
def _attribute_name(place: int) -> Any:
    return etree.XPath(f"name(@*[{place}])")


def _add_text(text: str | None, parent: XMLNode) -> None:
    if text and parent.kind is XMLKind.ELEMENT:
        node = XMLNode(XMLKind.TEXT, parent.nodes, parent, content=text)
        parent.children.append(node)


def _split(tag: str) -> tuple[str, str]:
    """Return namespace and local name of lxml's `{namespace}name`."""
    if tag[0] != "{":
        return "", tag
    namespace, _, name = tag[1:].rpartition("}")
    return namespace, name

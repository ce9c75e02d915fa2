"""XML documents, and queries over them: XQL (1998) and XPath 1.0, evaluated exactly."""

from tamis.lazy import require_extra

require_extra("xml")

from tamis.xml.documents import Document, XMLLimits
from tamis.xml.nodes import XMLKind, XMLNode
from tamis.xml.queries import XMLQuery, query
from tamis.xml.work import XMLQueryLimits

__all__ = [
    "Document",
    "XMLKind",
    "XMLLimits",
    "XMLNode",
    "XMLQuery",
    "XMLQueryLimits",
    "query",
]

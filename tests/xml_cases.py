"""The cases of `conformance/xml/`: queries over a document, and what they give."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import FilterError
from tamis.xml import Document, XMLKind, XMLNode, query

FOLDER = Path(__file__).parent.parent / "conformance" / "xml"

parsed = cache(Document.parse)


def cases(language: str) -> list[Any]:
    """Return the cases of a language as parameters of a test."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        topic = json.loads(path.read_text(encoding="utf-8"))
        if topic["language"] == language:
            found += [
                pytest.param(topic, case, id=f"{path.stem}:{case['id']}")
                for case in topic["queries"]
            ]
    return found


def label(node: XMLNode) -> str:
    """Return a node as cases write it: by its attribute `id`, or as XML."""
    ids = [each.value for each in node.attributes if each.name == "id" and not each.namespace]
    return f"#{ids[0]}" if ids else node.xml


def check(topic: Mapping[str, Any], case: Mapping[str, Any]) -> None:
    """Check one case."""
    text, language = case["query"], topic["language"]
    if "error" in case:
        with pytest.raises(FilterError) as refused:
            query(text, language=language, namespaces=topic.get("namespaces", {}))
        assert case["error"] in str(refused.value)
        return
    parsed_query = query(text, language=language, namespaces=topic.get("namespaces", {}))
    document = parsed(topic["document"])
    if "finds" in case or "kinds" in case:
        found = parsed_query.select(document)
        labels = [label(node) for node in found]
        expected = case["finds"] if "finds" in case else case["kinds"]
        shown = labels if "finds" in case else [XMLKind(node.kind).value for node in found]
        assert shown == expected
        assert parsed_query.matches(document) is bool(expected)
    elif "values" in case:
        assert list(parsed_query.evaluate(document)) == case["values"]
    else:
        result = parsed_query.evaluate(document)
        assert type(result) is type(case["is"])
        assert result == case["is"]

"""What is proposed for a document, a document can show."""

from __future__ import annotations

import pytest

from tamis.matching import Engine
from tamis.xml import Document


@pytest.mark.parametrize(
    ("filter_", "text", "change"),
    [
        # The text goes with its number.
        ("`/a/b` = 5", "<a><b>4</b></a>", {"/a/b": 5}),
        ("`/a/b` = 5 and `/a/c` is present", "<a><b>4</b></a>", {"/a/b": 5, "/a/c": True}),
        ("`/a/b` > 'x'", "<a><b>x</b></a>", {"/a/b": "x-"}),
        ("`/a/b` != 'x'", "<a><b>x</b></a>", {"/a/b": "x-"}),
        # No text of XML is between the two.
        ("`/a/b` > 'x' and `/a/b` < 'x\t'", "<a><b>x</b></a>", None),
    ],
)
def test_a_change_is_one_that_a_document_can_show(
    filter_: str, text: str, change: dict[str, object] | None
) -> None:
    engine = Engine()
    engine.add("s", filter_)
    found = engine.explain("s", Document.parse(text))
    assert (found.matched, found.change) == (False, change)
    if found.changed is not None:
        assert engine.match(found.changed) == ["s"]


def test_what_cannot_be_seen_is_proposed_last() -> None:
    engine = Engine()
    engine.add("s", "a > 'x'")
    assert engine.explain("s", {"a": "x"}).change == {"a": "x-"}

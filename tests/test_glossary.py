"""The glossary defines each term once, and only terms that are used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import tamis

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES, SOURCE = GLOSSARY.read_text(encoding="utf-8").split("## In the source code only")


def terms(section: str) -> list[str]:
    """Return the terms that rows of a section define."""
    rows = re.findall(r"^\| (\*\*.*?) \|", section, re.MULTILINE)
    return [term.lower() for row in rows for term in re.findall(r"\*\*([^*]+)\*\*", row)]


def words(files: Iterable[Path]) -> str:
    """Return the text of files, with names such as `ShardGroup` and `shard_group` as words."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    text = re.sub(r"([a-z])([A-Z])", r"\1 \2", text) + text
    return re.sub(r"[\s_]+", " ", text).lower()


def test_every_term_is_defined_once() -> None:
    # A query is asked of documents, in a language, and of data sources, as a filter.
    defined = Counter(terms(PAGES) + terms(SOURCE)) - Counter(["query"])
    assert not {term for term, count in defined.items() if count > 1}


def test_every_term_is_used_where_the_glossary_says() -> None:
    pages = words({*ROOT.glob("docs/**/*.md"), ROOT / "README.md"} - {GLOSSARY})
    assert not {term for term in terms(PAGES) if term.removesuffix("ing") not in pages}
    source = words(Path(tamis.__file__).parent.rglob("*.py"))
    assert not {term for term in terms(SOURCE) if term not in source}

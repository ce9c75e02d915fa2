"""Draw the pictures in docs/concepts/: `python tools/draw_pictures.py`."""

from __future__ import annotations

from pathlib import Path

from tamis import Engine, Schema
from tamis.diagrams.pictures import Picture

CONCEPTS = Path(__file__).parent.parent / "docs" / "concepts"


def pictures() -> dict[str, Picture]:
    """Return the pictures by the names of their files."""
    engine = Engine(Schema({"company": "str", "price": "float"}))
    engine.add("pc-watch", 'company in ("IBM", "Dell") and price <= 1000')
    engine.add("dear-ibm", 'company = "IBM" and price > 500')
    engine.add("bargain", 'price < 100 or company = "Dell" and price <= 1000')
    return {
        "matching-breakpoints.svg": engine.draw("pc-watch", breakpoints=True),
        "matching-shared.svg": engine.draw("pc-watch", "dear-ibm", "bargain"),
    }


if __name__ == "__main__":
    for name, picture in pictures().items():
        picture.save(CONCEPTS / name)

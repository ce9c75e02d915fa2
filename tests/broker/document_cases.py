"""Orders in XML and JSON, and what subscriptions ask of them, for the tests of brokers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random
from typing import Any, Final, NamedTuple

from tamis.broker import Session
from tamis.errors import FilterError
from tamis.events import Event
from tamis.languages import parse
from tamis.xml import Document, query
from xml_workload import RandomQueries, RandomXPaths, random_document


def order(*lines: tuple[str, int], number: int = 17, **attributes: str) -> str:
    """Return an order as XML."""
    inside = "".join(
        f"<line><sku>{sku}</sku><quantity>{quantity}</quantity></line>" for sku, quantity in lines
    )
    more = "".join(f" {name}='{value}'" for name, value in attributes.items())
    return f"<order number='{number}'{more}>{inside}</order>"


CHAIRS: Final = order(("chair", 9), ("table", 1))
TABLES: Final = order(("chair", 1), ("table", 9))
"""It has a chair, and nine of something: only exactly is it known that these are not chairs."""
# The engine cannot tell the two orders apart by this one; `$not$` is left to check.
MANY_CHAIRS: Final = "order/line[sku = 'chair' $and$ $not$ quantity < 5]"
ITEMS: Final = 'items[sku = "a" and quantity > 3]'
RIGHT_ITEMS: Final = {"items": [{"sku": "a", "quantity": 4}, {"sku": "b", "quantity": 1}]}
WRONG_ITEMS: Final = {"items": [{"sku": "a", "quantity": 1}, {"sku": "b", "quantity": 4}]}


def as_event(text: str) -> bytes:
    """Return a document as events of the format `xml` are."""
    return json.dumps(text).encode()


async def publish_documents(session: Session, *texts: str) -> None:
    """Publish documents, one by one."""
    for text in texts:
        await session.publish([as_event(text)], format="xml")


def texts_of(deliveries: Iterable[Any]) -> list[Any]:
    """Return what was delivered, decoded."""
    return [json.loads(bytes(one.data)) for one in deliveries]


class Asked(NamedTuple):
    """A random subscription."""

    text: str
    language: str

    def is_satisfied(self, published: str | dict[str, Any]) -> bool:
        """Return what the oracle says."""
        if self.language == "tamis":
            return isinstance(published, dict) and parse(self.text).matches(Event(published))
        found = query(self.text, language=self.language)
        return isinstance(published, str) and found.matches(Document.parse(published))


def random_asked(random: Random) -> Asked:
    """Return a query that needs no prefixes and operators, or a test of elements."""
    while True:
        choice = random.random()
        if choice < 0.25:
            return Asked(_random_elements(random), "tamis")
        language = "xpath" if choice < 0.4 else "xql"
        made = RandomXPaths(random) if language == "xpath" else RandomQueries(random)
        asked = Asked(made.query(), language)
        try:
            query(asked.text, language=language)
        except FilterError:
            continue
        return asked


def random_published(random: Random) -> str | dict[str, Any]:
    """Return a document, or JSON with elements."""
    if random.random() < 0.7:
        return random_document(random)
    items = [
        {name: random.choice((1, 2, "x", [1, 2])) for name in "bc" if random.random() < 0.8}
        for _ in range(random.randint(0, 3))
    ]
    return {"items": items, "b": random.choice((1, 2))}


def _random_elements(random: Random) -> str:
    tests = [
        f"{random.choice('bc')} {random.choice(('=', '!=', '<', '>'))} {random.choice((1, 2))}"
        for _ in range(2)
    ]
    inside = random.choice((" and ", " or ")).join(tests)
    negated = random.choice(("", "not "))
    around = random.choice(("", " and b = 1", " or b = 2"))
    return f"{negated}items[{inside}]{around}"

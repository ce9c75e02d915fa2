"""What does a filter mean if an attribute is absent? It depends on the mode."""

from tamis import EventError, Mode, Schema, attribute, parse

SCHEMA = Schema({"price": attribute("float", default=-1.0), "company": "str"})
FILTERS = [
    "price < 1000",
    "not (price < 1000)",
    "price < 1000 or price >= 1000",
    'price < 1000 or company = "IBM"',
]
EVENT = {"company": "IBM"}


def verdict(filter_text: str, mode: Mode) -> str:
    try:
        matches = parse(filter_text).matches(EVENT, mode, SCHEMA)
    except EventError:
        return "refused"
    return "matches" if matches else "-"


print(f"{EVENT} has no price.")
print(f"{'':32}", *(f"{mode:8}" for mode in Mode))
for text in FILTERS:
    print(f"{text:32}", *(f"{verdict(text, mode):8}" for mode in Mode))

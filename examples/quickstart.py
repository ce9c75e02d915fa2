"""Which subscriptions does each event satisfy?"""

from tamis import attr, parse

SUBSCRIPTIONS = {
    "cheap PCs": parse('product contains "PC" and price <= 1000'),
    "IBM or Dell": parse('company in ("IBM", "Dell")'),
    # The same, built in Python instead of parsed.
    "big orders": attr("price") * attr("quantity") > 50_000,
}

EVENTS = [
    {"company": "IBM", "product": "PC AT, 20 MHz, 256 KB RAM", "price": 5000, "quantity": 20},
    {"company": "Dell", "product": "Dimension PC", "price": 899.5},
    {"company": "Future Inc.", "product": "100 GHz Super PC"},
]

for event in EVENTS:
    names = [name for name, filter_ in SUBSCRIPTIONS.items() if filter_.matches(event)]
    print(f"{event['company']}: {', '.join(names) or 'no subscription'}")

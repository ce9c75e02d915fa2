"""A broker forwards a filter to its neighbour only if no filter it has forwarded covers it."""

from tamis import Filter, covers, parse

WANTED = [
    "price < 100",
    'company = "IBM" and price < 50',
    'company starts with "I"',
    'company in ("IBM", "Intel") and price > 500',
    "price between 10 and 20",
]

forwarded: list[Filter] = []
for filter_ in map(parse, WANTED):
    wider = next((other for other in forwarded if covers(other, filter_)), None)
    if wider is not None:
        print(f"{filter_}\n    is covered by {wider}")
        continue
    forwarded = [other for other in forwarded if not covers(filter_, other)] + [filter_]
    print(f"{filter_}\n    is forwarded")

print(f"\n{len(forwarded)} of {len(WANTED)} filters are forwarded.")
difference = covers(parse("price < 100"), parse('company starts with "I"'))
print(f"The first does not cover the third: {difference.witness()} matches only the third.")

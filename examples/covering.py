"""A broker asks its neighbour only for what it does not get already."""

from tamis import Filter, covers, parse

WANTED = [
    "price < 100",
    'company = "IBM" and price < 50',
    'company starts with "I"',
    'company in ("IBM", "Intel") and price > 500',
    "price between 10 and 20",
]

asked: list[Filter] = []
for filter_ in map(parse, WANTED):
    wider = next((other for other in asked if covers(other, filter_)), None)
    if wider is not None:
        print(f"{filter_}\n    is covered by {wider}")
        continue
    asked = [other for other in asked if not covers(filter_, other)] + [filter_]
    print(f"{filter_}\n    has to be asked for")

print(f"\n{len(asked)} of {len(WANTED)} filters travel further.")
difference = covers(parse("price < 100"), parse('company starts with "I"'))
print(f"The first does not cover the third: see {difference.witness()}.")

"""Publish readings of a few sensors. Run it twice: the broker stores each reading once."""

import tamis

READINGS = [
    {"sensor": "boiler", "celsius": 74.5},
    {"sensor": "boiler", "celsius": 91.0},
    {"sensor": "cellar", "celsius": 12.0},
    {"sensor": "attic", "celsius": 96.5, "battery": "low"},
    {"sensor": "boiler", "celsius": 88.0},
]

# The readings are numbered from 1 under the publisher name `sensors`; each number is stored once.
with tamis.connect_sync(publisher="sensors", sequence=1) as bus:
    receipt = bus.publish_many(READINGS)

print(f"{receipt.count - receipt.duplicates} readings stored, {receipt.duplicates} duplicates")

"""Subscriptions and events through a session of Spark Connect; found.json has what was found.

python -m spark.matching.connect_program FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from tamis.errors import SparkError
from tamis.spark import (
    Tally,
    change_subscriptions,
    compile_subscriptions,
    match,
    register,
    stream,
)

SYMBOLS = "ABC"


def subscriptions() -> list[tuple[str, str]]:
    rng = Random(1)
    return [
        (f"s{n}", f'symbol = "{rng.choice(SYMBOLS)}" and price < {rng.randrange(100)}')
        for n in range(40)
    ]


def events() -> list[tuple[int, str, float]]:
    rng = Random(2)
    return [(n, rng.choice(SYMBOLS), float(rng.randrange(100))) for n in range(300)]


def main(folder: Path) -> dict[str, Any]:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    library = folder / "library"
    table = spark.createDataFrame(subscriptions(), "id string, filter string")
    compile_subscriptions(table, library, shards=2)
    rows = spark.createDataFrame(events(), "n int, symbol string, price double")
    rows.createOrReplaceTempView("events")
    tally = Tally()
    matched = rows.transform(match(library, output="pairs", keep=["n"], tally=tally))
    found: dict[str, Any] = {"match": [(row.n, row.subscription) for row in matched.collect()]}
    found["counts"] = tally.counts()._asdict()
    register(spark, library, "alerts")
    exploded = "SELECT n, explode(alerts(struct(*))) AS subscription FROM events"
    of_table = "SELECT n, subscription FROM alerts_pairs(TABLE(events))"
    errors = "SELECT count(alerts_error('{')) AS errors FROM events"
    for name, query in (("function", exploded), ("table", of_table)):
        found[name] = [(row.n, row.subscription) for row in spark.sql(query).collect()]
    [counted] = spark.sql(errors).collect()
    found["errors"] = counted["errors"]
    changed = [("s0", "", "delete"), ("new", "price >= 0", "insert")]
    changes = spark.createDataFrame(changed, "id string, filter string, change string")
    found["subscriptions"] = change_subscriptions(changes, library).version.subscriptions
    feed = spark.readStream.format("rate").load()
    try:
        stream(feed, library, to=folder / "results", checkpoint=folder / "checkpoint")
    except SparkError as error:
        found["stream"] = str(error)
    return found


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "found.json").write_text(json.dumps(main(place)), encoding="utf-8")

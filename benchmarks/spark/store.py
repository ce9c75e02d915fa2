"""A library in a store: `python -m benchmarks.spark.store --port 5000`.

At the port is a service that speaks S3, such as `moto_server`. The same subscriptions of the
workload `market` are compiled to a folder and to the store, and the same events meet both in turns,
after a first turn in which files are fetched. A run is a whole job with a sink that keeps nothing,
on `local[2]`. Beside seconds stands processor time, of Java and all workers, which other programs
on the machine do not change.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyarrow import fs
from pyspark.sql import DataFrame

from benchmarks.harness import options, step
from benchmarks.spark.processor_time import processor_time
from tamis.spark import compile_subscriptions, event_rows, local_session, match, subscription_rows

WORKLOAD = "market"
ROUNDS = 7
ADDRESS = "s3a://benchmark/library"


def settings(service: str) -> dict[str, str]:
    """Return what opens the service."""
    known = {"access.key": "key", "secret.key": "secret", "endpoint": service}
    named = {**known, "endpoint.region": "us-east-1"}
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in named.items()}


def make_bucket(service: str) -> None:
    """Make the bucket, unless it is there."""
    scheme, _, host = service.partition("://")
    system = fs.S3FileSystem(
        access_key="key",
        secret_key="secret",  # noqa: S106 - of a service on this machine
        endpoint_override=host,
        scheme=scheme,
        region="us-east-1",
        allow_bucket_creation=True,
    )
    system.create_dir("benchmark")


class Cost(NamedTuple):
    """What a job took."""

    seconds: float
    work: float
    """Processor time."""


def cost_of(events: DataFrame, library: str) -> Cost:
    """Return what it takes to match all events, and to keep nothing."""
    started, before = time.monotonic(), processor_time()
    matched = events.transform(match(library, output="counts", keep=()))
    matched.write.format("noop").mode("overwrite").save()
    return Cost(time.monotonic() - started, processor_time() - before)


def sentence_of(name: str, found: Mapping[str, Sequence[float]]) -> str:
    """Return medians, spread and their ratio."""
    local, remote = median(found["folder"]), median(found["store"])
    told = (
        f"{place} {median(n):.2f} s ({min(n):.2f} to {max(n):.2f})" for place, n in found.items()
    )
    return f"{name}: {', '.join(told)}: {local / remote:.2f} of the speed"


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Measure and print."""
    service = f"http://127.0.0.1:{chosen.port}"
    make_bucket(service)
    spark = local_session("local[2]", settings=settings(service))
    table = subscription_rows(spark, WORKLOAD, chosen.subscriptions).localCheckpoint()
    path = str(folder / "events.parquet")
    event_rows(spark, WORKLOAD, chosen.events).write.parquet(path)
    events = spark.read.parquet(path)
    places = {"folder": str(folder / "library"), "store": ADDRESS}
    for name, library in places.items():
        with step(f"compiled to a {name}"):
            compile_subscriptions(table, library)
        with step(f"first match from a {name}"):
            cost_of(events, library)
    found: dict[str, list[Cost]] = {name: [] for name in places}
    for _ in range(ROUNDS):
        for name, library in places.items():
            found[name].append(cost_of(events, library))
    spark.stop()
    print(f"{chosen.subscriptions:,} subscriptions, {chosen.events:,} events, medians of {ROUNDS}")
    for field in Cost._fields:
        by_place = {name: [getattr(one, field) for one in costs] for name, costs in found.items()}
        print(sentence_of(field, by_place))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run with the data in a temporary folder."""
    chosen = options(__doc__, arguments, subscriptions=100_000, events=500_000, port=5000)
    with TemporaryDirectory(prefix="tamis-store-") as folder:
        run(chosen, Path(folder))


if __name__ == "__main__":
    main()

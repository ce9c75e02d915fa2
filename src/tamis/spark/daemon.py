"""The process from which Spark forks Python workers, with the kernels loaded before the fork.

Otherwise every worker spends a second or two loading them. The setting `spark.python.daemon.module`
names this module.
"""

from __future__ import annotations

import gc

import pyarrow as pa

from tamis.matching import Engine, load_kernels


def load_modules() -> None:
    """Load everything that matching and reading columns need."""
    load_kernels()
    engine = Engine()
    engine.add(1, 'number < 5 and text = "a" or text contains "b"')
    events = pa.table({"number": [1.5, 2.5], "text": ["a", "b"]})
    engine.match_batch(events).pairs()


if __name__ == "__main__":
    from pyspark.daemon import manager

    load_modules()
    # Spark makes every worker collect garbage after every task. Scanning what is loaded here, none
    # of it garbage, took 66 of the 68 milliseconds of an empty task.
    gc.collect()
    gc.freeze()
    manager()

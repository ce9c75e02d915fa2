"""The process that Spark forks its Python workers from, with the kernels loaded before the fork.

A worker that loads them itself takes a second or two, and does so for every worker.
"""

from __future__ import annotations

import gc

import pyarrow as pa

from tamis.matching import Engine, load_kernels


def load() -> None:
    """Load all that matching needs, and what reads columns."""
    load_kernels()
    engine = Engine()
    engine.add(1, 'number < 5 and text = "a" or text contains "b"')
    events = pa.table({"number": [1.5, 2.5], "text": ["a", "b"]})
    engine.match_batch(events).pairs()


if __name__ == "__main__":
    from pyspark.daemon import manager

    load()
    # Spark has every worker look for garbage after every task. What is here by now stays, and to
    # look through it took 66 of the 68 milliseconds of an empty task.
    gc.collect()
    gc.freeze()
    manager()

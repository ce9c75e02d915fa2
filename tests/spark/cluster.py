"""A standalone cluster on this machine: a master and workers, each in a process and a folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

from tamis.spark.runtime.java import provide_java
from waiting import eventually

HOST = "127.0.0.1"
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class Cluster(NamedTuple):
    """A cluster that runs: where its master is, and the processes of its workers."""

    master: str
    workers: list[int]


@contextmanager
def standalone(
    folder: Path,
    workers: int = 1,
    variables: Mapping[str, str] | None = None,
    on_a_machine: Callable[[Sequence[str | Path]], Sequence[str | Path]] = lambda command: command,
) -> Iterator[Cluster]:
    """Run a cluster whose workers live below a folder, each as a command `on_a_machine`."""
    provide_java()
    with ExitStack() as stack:

        def start(name: str, host: str, *arguments: str) -> tuple[Path, int]:
            place = folder / name
            place.mkdir(parents=True)
            log = place / "log"
            command: list[str | Path] = [
                SPARK_CLASS,
                f"org.apache.spark.deploy.{arguments[0]}",
                *arguments[1:],
            ]
            process = subprocess.Popen(  # noqa: S603
                on_a_machine(command),
                cwd=place,
                env={
                    **os.environ,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "PYSPARK_PYTHON": sys.executable,
                    **(variables or {}),
                    "SPARK_LOCAL_IP": host,
                },
                stdout=stack.enter_context(log.open("wb")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return log, process.pid

        log, _ = start("master", HOST, "master.Master", "--host", HOST, "--port", "0", *_WEB)
        eventually(lambda: _MASTER.search(log.read_text()), timeout=120)
        cluster = Cluster(_MASTER.findall(log.read_text())[0], [])
        for number in range(workers):
            # What executors of the same host have shuffled, Spark reads from its own disk.
            name, host = f"worker-{number}", f"127.0.0.{number + 2}"
            options = ["--host", host, "--cores", "1", "--memory", "1g", *_WEB]
            # Relative to the folder that the worker starts in.
            place = ["--work-dir", "work", cluster.master]
            log, process = start(name, host, "worker.Worker", *options, *place)
            eventually(lambda log=log: _REGISTERED in log.read_text(), timeout=120)  # type: ignore[misc]
            cluster.workers.append(process)
        yield cluster


_WEB = ("--webui-port", "0")

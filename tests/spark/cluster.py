"""A standalone cluster on this machine: a master and workers, each in a process and a folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tamis.spark.runtime.java import provide_java
from waiting import eventually

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


@contextmanager
def standalone(
    folder: Path, workers: int = 1, variables: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a cluster whose workers live below a folder; give the URL of its master."""
    provide_java()
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> Path:
            place = folder / name
            place.mkdir(parents=True)
            log = place / "log"
            process = subprocess.Popen(  # noqa: S603
                [SPARK_CLASS, f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]],
                cwd=place,
                env={
                    **os.environ,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": sys.executable,
                    **(variables or {}),
                },
                stdout=stack.enter_context(log.open("wb")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return log

        log = start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", *_WEB)
        eventually(lambda: _MASTER.search(log.read_text()), timeout=120)
        [url] = _MASTER.findall(log.read_text())
        for number in range(workers):
            name = f"worker-{number}"
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", *_WEB]
            log = start(name, "worker.Worker", *options, "--work-dir", str(folder / name), url)
            eventually(lambda log=log: _REGISTERED in log.read_text(), timeout=120)  # type: ignore[misc]
        yield url


_WEB = ("--webui-port", "0")

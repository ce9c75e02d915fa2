"""A service that speaks S3, in a process and an environment of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from waiting import eventually

# The service takes a score of packages that no other test needs.
PACKAGE = "moto[server]>=5.2"
_ADDRESS = re.compile(r"Running on (http://127.0.0.1:\d+)")


@contextmanager
def object_store(folder: Path) -> Iterator[str]:
    """Run the service with the bucket `bucket`; give its address."""
    folder.mkdir(exist_ok=True)
    python = folder / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "environment"], check=True)  # noqa: S603
    uv = Path(sys.executable).with_name("uv")
    with_uv = [str(uv), "pip", "install", "--python", str(python)]
    install = with_uv if uv.exists() else [str(python), "-m", "pip", "install"]
    subprocess.run([*install, "--quiet", PACKAGE], check=True)  # noqa: S603
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603
            [python.with_name("moto_server"), "-H", "127.0.0.1", "-p", "0"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        [address] = eventually(lambda: _ADDRESS.findall(log.read_text()), timeout=120)
        connected(address).create_dir("bucket")
        yield address
    finally:
        process.terminate()
        process.wait()


def connected(address: str) -> fs.S3FileSystem:
    """Return a client of the service."""
    scheme, _, host = address.partition("://")
    return fs.S3FileSystem(
        access_key="key",
        secret_key="secret",  # noqa: S106 - of no service but this
        endpoint_override=host,
        scheme=scheme,
        region="us-east-1",
        allow_bucket_creation=True,
    )

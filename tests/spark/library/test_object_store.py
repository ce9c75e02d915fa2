"""A library in a service that speaks S3: the same results as from a folder, or one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from spark.library.object_store import connected, object_store
from tamis.errors import LibraryError
from tamis.spark.runtime.stores import ObjectStore, StoreAccess

TESTS = Path(__file__).parents[2]
SECRET = "a-secret-that-shows-nowhere"  # noqa: S105 - of no service
REFUSAL = b"""<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>No.</Message></Error>"""


class _Refusing(BaseHTTPRequestHandler):
    """Refuses every request, as a service does whose credentials are wrong."""

    def _refuse(self) -> None:
        self.send_response(403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(REFUSAL)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(REFUSAL)

    do_GET = do_HEAD = do_PUT = do_POST = _refuse  # noqa: N815 - names of http.server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_wrong_credentials_are_one_sentence_without_them() -> None:
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        options = {"fs.s3a.access.key": "key", "fs.s3a.secret.key": SECRET}
        options |= {"fs.s3a.endpoint": address, "fs.s3a.endpoint.region": "us-east-1"}
        store = ObjectStore("s3a://bucket/library", StoreAccess(options))
        with pytest.raises(LibraryError, match="the store refuses the credentials") as caught:
            store.names("versions")
        server.shutdown()
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with object_store(tmp_path_factory.mktemp("store")) as address:
        yield address


def run(service: str, folder: Path, what: str) -> dict[str, Any]:
    """Run a step of `store_program.py` in a process of its own, with a cache of its own."""
    command = [sys.executable, "-m", "spark.library.store_program", what, service, SECRET]
    process = subprocess.run(  # noqa: S603
        [*command, str(folder)],
        cwd=TESTS,
        env={**os.environ, "TAMIS_LIBRARY_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert SECRET not in process.stdout + process.stderr
    answer: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return answer


@pytest.mark.slow
def test_a_store_gives_the_results_of_a_folder(service: str, tmp_path: Path) -> None:
    found = run(service, tmp_path, "compare")
    assert found["differences"] == 0
    assert found["matches"] > 1000
    assert found["rejected"] == 1
    copies = sorted((tmp_path / "cache").glob("*[!k]"))
    assert len(copies) >= found["files"]

    # What a machine has for copies may be damaged, and is fetched again.
    for copy in copies:
        data = bytearray(copy.read_bytes())
        data[len(data) // 2] ^= 1
        copy.write_bytes(data)
    assert run(service, tmp_path, "match") == {"matches": found["matches"]}

    # The objects themselves may be damaged, which is told.
    store = connected(service)
    for copy in (tmp_path / "cache").glob("*[!k]"):
        copy.unlink()
    victim = f"bucket/library/{found['snapshot']}"
    whole = store.open_input_stream(victim).read()
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 1
    for damaged in (whole[: len(whole) // 2], bytes(flipped)):
        with store.open_output_stream(victim) as stream:
            stream.write(damaged)
        refused = run(service, tmp_path, "match")["error"]
        assert "the object is damaged" in refused
        assert "\n" not in refused

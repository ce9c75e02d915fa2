"""The document at /openapi.json, and whether the broker does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from broker.server import ServerProcess, running
from tamis.broker.frontend.http.openapi import COMPONENT_NAMES, document
from tamis.broker.frontend.http.routes import OPERATIONS

from .conftest import Guarded

HERE = Path(__file__).parent
# They never end; test_sse.py has them.
STREAMS = ("stream_events", "stream_subscription")
# It would dial whatever addresses occur to it; tests/broker/peers has it.
DIALS = ("add_peer",)
GENERATED = re.compile(r"([\d,]+) generated, ([\d,]+) passed")


def schemathesis(server: ServerProcess, *options: str, token: str = "") -> int:
    """Run schemathesis against the broker; return how many requests it made."""
    excluded = [f"--exclude-operation-id={name}" for name in (*STREAMS, *DIALS)]
    header = ["--header", f"Authorization: Bearer {token}"] if token else []
    done = subprocess.run(  # noqa: S603 - our own command
        [
            *(sys.executable, "-m", "schemathesis.cli"),
            *("--config-file", str(HERE / "schemathesis.toml")),
            *("run", f"{server.url}/openapi.json", "--no-color", "--continue-on-failure"),
            *("--generation-database", "none", "--warnings", "off"),
            *excluded,
            *header,
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=server.folder,
        env={**os.environ, "PYTHONPATH": str(HERE), "SCHEMATHESIS_HOOKS": "schemathesis_hooks"},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{server.errors}"
    found = GENERATED.search(done.stdout)
    assert found is not None, done.stdout
    return int(found[1].replace(",", ""))


def check_no_mishap(server: ServerProcess) -> None:
    assert server.is_running
    assert "internal error" not in server.log


def test_the_broker_does_what_its_document_says(server: ServerProcess) -> None:
    # The phase of coverage, hundreds of requests, is in the slow suite.
    options = ("--phases=examples,fuzzing,stateful", "--max-examples=3", "--seed=1")
    assert schemathesis(server, *options) > 60
    check_no_mishap(server)


@pytest.mark.slow
def test_with_a_policy_every_operation_needs_a_token(guarded: Guarded) -> None:
    options = ("--phases=examples,fuzzing", "--max-examples=2", "--seed=1")
    assert schemathesis(guarded.server, *options, token=guarded.admin) > 30
    check_no_mishap(guarded.server)


def test_every_operation_has_a_name_and_a_summary(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["summary"] for one in operations)
    assert all(set(one["responses"]) >= {"400", "503"} for one in operations)


@pytest.mark.slow
def test_the_broker_does_what_its_document_says_at_length(tmp_path: Path, guarded: Guarded) -> None:
    with running(tmp_path / "open") as server:
        count = schemathesis(server, "--max-examples=500", "--seed=2")
        check_no_mishap(server)
    options = ("--max-examples=100", "--seed=3")
    count += schemathesis(guarded.server, *options, token=guarded.admin)
    check_no_mishap(guarded.server)
    print(f"\nschemathesis: {count:,} requests, 0 failures, 0 answers with 5xx")


def test_components_keep_the_names_that_clients_were_generated_with() -> None:
    described = document(OPERATIONS, tokens_required=False)
    schemas = described["components"]["schemas"]
    assert schemas.keys() >= {*COMPONENT_NAMES.values()}
    assert not schemas.keys() & COMPONENT_NAMES.keys()
    assert schemas["Problem"]["title"] == "Problem"
    references = {*re.findall(r"#/components/schemas/(\w+)", json.dumps(described))}
    assert references <= schemas.keys()

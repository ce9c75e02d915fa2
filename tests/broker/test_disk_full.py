"""A full disk: publishing is refused, nothing is lost, and it goes on when there is room."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker.server import running
from waiting import eventually

EVENT = {"a": 1, "filling": "x" * 2_000}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(  # noqa: S603 - a fixed command
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)],  # noqa: S607
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)  # noqa: S603, S607


def fill(disk: Path, leave: int = 200_000) -> Path:
    """Take nearly all of the room that is left."""
    ballast = disk / "ballast"
    room = os.statvfs(disk)
    ballast.write_bytes(b"\0" * max(0, room.f_bavail * room.f_bsize - leave))
    return ballast


def publish_until_refused(client: httpx.Client) -> httpx.Response:
    for _ in range(2_000):
        answer = client.post("/v1/events", json=EVENT)
        if answer.status_code != 200:
            return answer
    raise AssertionError("there is still room")


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    with running(small_disk, largest_batch=10) as server, server.client() as client:
        made = client.post("/v1/subscriptions", json={"filter": "a = 1", "id": "all"})
        assert made.status_code == 201, made.text
        ballast = fill(small_disk)
        acknowledged = 0
        for _ in range(500):
            answer = client.post("/v1/events", json=EVENT)
            if answer.status_code != 200:
                break
            acknowledged += 1
        assert answer.status_code == 507, answer.text
        assert answer.json()["code"] == "storage_full"
        assert "nothing was stored" in answer.json()["detail"]
        assert acknowledged
        ballast.unlink()
        last = {**EVENT, "last": True}
        eventually(lambda: client.post("/v1/events", json=last).status_code == 200)
        seen = 0
        while got := client.post(
            "/v1/subscriptions/all/fetch", json={"limit": 100, "wait": 1}
        ).json()["events"]:
            seen += sum(1 for event in got if "last" not in event["data"])
            sequences = [event["sequence"] for event in got]
            client.post("/v1/subscriptions/all/acknowledge", json={"sequences": sequences})
        assert seen == acknowledged


@pytest.mark.timing
def test_with_a_full_disk_everything_is_answered_and_nothing_hangs(small_disk: Path) -> None:
    with (
        running(small_disk, log_level="debug", stop_timeout=2) as server,
        server.client() as client,
    ):
        made = client.post("/v1/subscriptions", json={"filter": "a = 1", "id": "all"})
        assert made.status_code == 201, made.text
        assert client.get("/ready").status_code == 200
        fill(small_disk, leave=20_000)
        answers = [publish_until_refused(client)]
        # The state may have had some room left when the log had none.
        for number in range(200):
            wanted = {"filter": f"b = {number}", "id": f"s{number}"}
            answers.append(client.post("/v1/subscriptions", json=wanted, timeout=5))
            if answers[-1].status_code == 507:
                break
        answers.append(client.patch("/v1/subscriptions/all", json={"lifetime": 60}, timeout=5))
        answers.append(client.get("/v1/events?filter=true", timeout=5))
        answers.append(client.delete("/v1/subscriptions/all", timeout=5))
        for answer in (answers[0], *answers[-4:]):
            assert answer.status_code == 507, answer.text
            assert answer.json()["code"] == "storage_full"
            assert str(small_disk) not in answer.text
        publish_until_refused(client)
        assert client.get("/ready").status_code == 503
        assert str(small_disk) in server.log
        started = time.monotonic()
        assert server.stop() == 0, server.log
        assert time.monotonic() - started < 15

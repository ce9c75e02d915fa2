"""A full disk: publishing is refused, nothing is lost, and it goes on when there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

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


def fill(disk: Path) -> Path:
    """Take nearly all of the room that is left."""
    ballast = disk / "ballast"
    room = os.statvfs(disk)
    ballast.write_bytes(b"\0" * max(0, room.f_bavail * room.f_bsize - 200_000))
    return ballast


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

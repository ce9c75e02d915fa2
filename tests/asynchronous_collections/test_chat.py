"""The chat of the paper, episodes I and II, between processes over a real broker."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from broker.server import running

CHAT = Path(__file__).parents[2] / "examples" / "chat"
SAID = ["Hi everyone", "Has anybody seen Bob?", "I cannot sleep", "Bob sleeps"]


async def start(url: str, *command: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(CHAT / command[0]), *command[1:]),
        env={**os.environ, "TAMIS_URL": url},
        stdout=asyncio.subprocess.PIPE,
    )


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().rstrip()


async def chat(url: str) -> list[list[str]]:
    """Return what Bob hears in each episode."""
    bobs = [await start(url, "bob.py", episode) for episode in ("I", "II")]
    try:
        for bob in bobs:
            assert await line_of(bob) == "listening"
        assert await (await start(url, "alice.py", *SAID)).wait() == 0
        numbers = zip(bobs, (4, 2), strict=True)
        return [[await line_of(bob) for _ in range(number)] for bob, number in numbers]
    finally:
        for bob in bobs:
            bob.kill()
            await bob.communicate()


@pytest.mark.slow
def test_bob_hears_alice_and_then_only_what_is_about_him(tmp_path: Path) -> None:
    async def in_time(url: str) -> list[list[str]]:
        async with asyncio.timeout(120):
            return await chat(url)

    with running(tmp_path) as server:
        everything, about_me = asyncio.run(in_time(server.url))
    assert everything == [f"Message from Alice: {text}" for text in SAID]
    assert about_me == [line for line in everything if "Bob" in line]

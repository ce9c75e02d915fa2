"""A task that waits for an event goes on where the event arrives."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

import tamis
from broker.server import ServerProcess
from tamis.prompt_waiter import PromptWaiter

from .buses import run, topic

Scenario = Callable[[], Awaitable[None]]

_word = contextvars.ContextVar("_word", default="of nobody")


def run_python_tasks(main: Any) -> None:
    """Run with tasks in Python, which debuggers and some loops use."""
    with asyncio.Runner() as runner:
        make: Any = asyncio.tasks._PyTask  # type: ignore[attr-defined]
        runner.get_loop().set_task_factory(lambda loop, work, **how: make(work, loop=loop, **how))
        runner.run(main)


@pytest.fixture(params=[asyncio.run, uvloop.run, run_python_tasks])
def run_with(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    found: Callable[[Any], None] = request.param
    return found


class Waiting:
    """A task that waits, and what came of it."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.waiter = PromptWaiter()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> str:
        _word.set("of the task")
        self.steps.append("waits")
        try:
            await self.waiter
        except asyncio.CancelledError:
            self.steps.append("cancelled")
            raise
        assert asyncio.current_task() is self.task
        self.steps.append(_word.get())
        await asyncio.sleep(0)  # a turn for the others
        return "the result"


async def called(function: Callable[[], object]) -> None:
    """Call a function where no task runs, as the loop does when something arrives."""
    done = asyncio.get_running_loop().create_future()
    errors: list[Exception] = []

    def call() -> None:
        try:
            function()
        except Exception as error:
            errors.append(error)
        done.set_result(None)

    asyncio.get_running_loop().call_soon(call)
    await done
    assert not errors, errors


def test_the_task_goes_on_before_whoever_wakes_it_and_in_its_own_context(
    run_with: Callable[[Any], None],
) -> None:
    async def main() -> None:
        waiting = Waiting()
        await asyncio.sleep(0)  # a turn for the others

        def wake() -> None:
            waiting.waiter.wake()
            assert waiting.steps == ["waits", "of the task"]
            assert _word.get() == "of nobody"
            assert asyncio.current_task() is None
            # A second time is no time.
            waiting.waiter.wake()
            waiting.waiter.wake_later()
            assert not waiting.waiter.cancel()

        await called(wake)
        assert await waiting.task == "the result"
        assert waiting.steps == ["waits", "of the task"]

    run_with(main())


@pytest.mark.parametrize("name", ["wake", "wake_later"])
def test_inside_of_another_task_it_goes_on_later(
    run_with: Callable[[Any], None], name: str
) -> None:
    async def main() -> None:
        waiting = Waiting()
        await asyncio.sleep(0)  # a turn for the others
        getattr(waiting.waiter, name)()
        assert waiting.steps == ["waits"]
        assert await waiting.task == "the result"

    run_with(main())


def test_a_waiter_that_was_woken_before_lets_its_task_pass(run_with: Callable[[Any], None]) -> None:
    async def main() -> None:
        waiting = Waiting()
        waiting.waiter.wake()
        assert await waiting.task == "the result"

    run_with(main())


def test_a_task_that_is_cancelled_waits_no_longer(run_with: Callable[[Any], None]) -> None:
    async def main() -> None:
        waiting = Waiting()
        await asyncio.sleep(0)  # a turn for the others
        waiting.task.cancel("the reason")
        waiting.waiter.wake()
        with pytest.raises(asyncio.CancelledError, match="the reason"):
            await waiting.task
        assert waiting.steps == ["waits", "cancelled"]
        waiting = Waiting()
        await asyncio.sleep(0)  # a turn for the others
        # Cancelled between being woken and going on.
        waiting.waiter.wake_later()
        waiting.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting.task
        assert waiting.steps == ["waits", "cancelled"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await PromptWaiter()

    run_with(main())


def test_what_the_task_raises_is_none_of_the_wakers_business(
    run_with: Callable[[Any], None],
) -> None:
    async def main() -> None:
        waiter = PromptWaiter()

        async def fail() -> None:
            await waiter
            raise LookupError("the task's own")

        task = asyncio.create_task(fail())
        await asyncio.sleep(0)  # a turn for the others
        await called(waiter.wake)
        with pytest.raises(LookupError, match="the task's own"):
            await task

    run_with(main())


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_task_that_ends_the_program_ends_the_loop_but_not_the_read(
    kind: type[BaseException],
) -> None:
    """Found by a stranger: what else the read had brought was lost, and nothing showed it."""
    loop, did = asyncio.new_event_loop(), list[str]()

    async def end(waiter: PromptWaiter) -> None:
        await waiter
        raise kind

    async def main() -> None:
        waiter = PromptWaiter()
        task = loop.create_task(end(waiter))
        await asyncio.sleep(0)  # a turn for the others

        def read() -> None:
            waiter.wake()
            did.append("the rest of the read")

        loop.call_soon(read)
        await asyncio.gather(task)

    work = loop.create_task(main())
    with pytest.raises(kind):
        loop.run_until_complete(work)
    assert did == ["the rest of the read"]
    with pytest.raises(kind):
        loop.run_until_complete(work)
    assert isinstance(work.exception(), kind)
    loop.close()


def test_an_application_may_do_anything_where_an_event_arrives(server: ServerProcess) -> None:
    """Two subscriptions, of which the first event of one closes the other."""
    word = topic()

    async def main() -> None:
        async with tamis.connect(server.url) as bus, tamis.connect(server.url) as publisher:
            first = await bus.subscribe(f"topic = '{word}'")
            second = await bus.subscribe(f"topic = '{word}' and n >= 0")
            seen: list[int] = []

            async def take(mine: Any, others: Any) -> None:
                async for event in mine:
                    seen.append(event["n"])
                    others.leave()
                    # Publishing sends at once, in the middle of the read.
                    await bus.publish({"topic": word, "n": event["n"] + 1})
                    if event["n"] >= 5:
                        return

            tasks = [
                asyncio.create_task(take(first, second)),
                asyncio.create_task(take(second, first)),
            ]
            await publisher.publish({"topic": word, "n": 0})
            done, _ = await asyncio.wait(tasks, timeout=30)
            # One of them was closed by the other, which has all events in order.
            assert len(done) == 2
            assert seen == [0, 1, 2, 3, 4, 5]
            assert await bus.publish({"topic": word, "n": 6})

    run(main())


def test_it_goes_on_though_whoever_wakes_it_runs_in_its_context(
    run_with: Callable[[Any], None],
) -> None:
    """Found by a reviewer: a context cannot be entered twice, and the task waited for ever."""

    async def work() -> None:
        context, waiter = contextvars.copy_context(), PromptWaiter()

        async def wait() -> str:
            await waiter
            return "went on"

        waiting = asyncio.get_running_loop().create_task(wait(), context=context)
        await asyncio.sleep(0)  # a turn for the task
        asyncio.get_running_loop().call_soon(waiter.wake, context=context)
        async with asyncio.timeout(10):
            assert await waiting == "went on"

    run_with(work())

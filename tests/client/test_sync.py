"""The synchronous twin, over the network and within one process."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tamis
from broker.server import ServerProcess
from tamis.client import Receipt, SyncBus, SyncMessage
from tamis.client.bus import Bus
from tamis.protocol import Code

from .buses import topic

ConnectSync = Callable[..., SyncBus]


@pytest.fixture(params=["network", "in process"])
def bus(request: pytest.FixtureRequest) -> Iterator[SyncBus]:
    make: ConnectSync = tamis.open_bus_sync
    if request.param == "network":
        url = request.getfixturevalue("server").url

        def make(**options: Any) -> SyncBus:
            return tamis.connect_sync(url, **options)

    with make() as bus:
        yield bus


def test_events_come_in_a_plain_loop(bus: SyncBus) -> None:
    name = topic()
    numbers = []
    with bus.subscribe(f"topic = '{name}' and n < 200", durable=name) as subscription:
        assert bus.publish({"topic": name, "n": 0}).count == 1
        assert bus.publish_many({"topic": name, "n": n} for n in range(1, 300)).count == 299
        for event in subscription:
            assert isinstance(event, SyncMessage)
            numbers.append(event["n"])
            if event["n"] == 199:
                break
    assert numbers == [*range(200)]
    bus.flush()
    assert bus.subscription(name).in_flight == 0
    bus.delete(name)


def test_by_hand_events_are_settled_one_by_one(bus: SyncBus) -> None:
    name = topic()
    options: Any = {"durable": name, "acknowledge": "manual"}
    with bus.subscribe(f"topic = '{name}'", **options) as subscription:
        bus.publish_many({"topic": name, "n": n} for n in range(3))
        first, second, third = (subscription.next(20) for _ in range(3))
        second.ack()
        third.nack(delay=0)
        again = subscription.next(20)
        assert (again["n"], again.attempt) == (2, 2)
        again.ack()
    with bus.subscribe(f"topic = '{name}'", **options) as subscription:
        assert subscription.next(20)["n"] == first["n"] == 0
        with pytest.raises(TimeoutError, match=r"no event arrived within 0\.1 s"):
            subscription.next(0.1)
        subscription.close(delete=True)


def test_functions_are_called_in_the_thread_that_runs(bus: SyncBus) -> None:
    name = topic()
    seen: list[tuple[int, int]] = []
    here = threading.current_thread()

    @bus.on(f"topic = '{name}'", durable=name, start="earliest")
    def collect(event: SyncMessage) -> None:
        assert threading.current_thread() is here
        seen.append((event["n"], event.attempt))
        if event["n"] == 1 and event.attempt == 1:
            event.nack(delay=0)
        if len(seen) == 4:
            bus.close()

    bus.publish_many({"topic": name, "n": n} for n in range(3))
    bus.run()
    assert sorted(seen) == [(0, 1), (1, 1), (1, 2), (2, 1)]


def test_a_function_may_close_the_bus_while_events_wait_for_it(bus: SyncBus) -> None:
    """Found by a stranger: the next event waited for an answer, and closing waited for that."""
    name, closed = topic(), threading.Event()
    seen: list[int] = []

    @bus.on(f"topic = '{name}'", start="earliest")
    def collect(event: SyncMessage) -> None:
        if seen:
            # The next one is handed over now.
            bus.close()
            closed.set()
        seen.append(event["n"])

    bus.publish_many({"topic": name, "n": n} for n in range(20))
    begun = time.monotonic()
    bus.run()
    assert closed.is_set()
    assert seen == [0, 1]
    assert time.monotonic() - begun < 10


def test_threads_that_run_end_together(bus: SyncBus) -> None:
    """Found by a reviewer: whoever ended first left nothing to tell the others."""
    name = topic()
    for number in range(3):
        bus.on(f"topic = '{name}' and n = {number}")(lambda _: bus.close())
    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(bus.run) for _ in range(3)]
        time.sleep(0.1)  # until they wait
        bus.publish({"topic": name, "n": 1})
        for one in running:
            one.result(20)


def test_a_run_that_was_interrupted_goes_on_in_the_next(bus: SyncBus) -> None:
    """Found by a reviewer: the next one made one call, and closed the bus."""
    name = topic()
    seen: list[int] = []

    @bus.on(f"topic = '{name}'", start="earliest")
    def collect(event: SyncMessage) -> None:
        seen.append(event["n"])
        if seen == [0, 1]:
            raise KeyboardInterrupt
        if event["n"] == 4:
            bus.close()

    bus.publish_many({"topic": name, "n": n} for n in range(5))
    with pytest.raises(KeyboardInterrupt):
        bus.run()
    bus.run()
    assert seen == [0, 1, 1, 2, 3, 4]


def test_a_function_that_meets_a_cancellation_in_a_loop_of_its_own_has_failed(bus: SyncBus) -> None:
    name = topic()
    attempts: list[int] = []
    logging.getLogger("tamis.client").disabled = True

    async def meet_a_cancellation() -> None:
        raise asyncio.CancelledError

    @bus.on(f"topic = '{name}'", durable=name, start="earliest")
    def fragile(event: SyncMessage) -> None:
        attempts.append(event.attempt)
        if event.attempt == 1:
            asyncio.run(meet_a_cancellation())
        bus.close()

    bus.publish({"topic": name})
    try:
        bus.run()
    finally:
        logging.getLogger("tamis.client").disabled = False
    assert attempts == [1, 2]


def test_a_bus_that_is_opened_again_knows_nothing_of_before(server: ServerProcess) -> None:
    """Found by a reviewer: it called the functions of before, and closed itself at once."""
    name = topic()
    bus = tamis.connect_sync(server.url)
    seen: list[tuple[int, int]] = []
    for session in range(2):
        with bus:

            @bus.on(f"topic = '{name}'")
            def collect(event: SyncMessage, session: int = session) -> None:
                seen.append((session, event["n"]))
                if event["n"] == 1:
                    bus.close()

            bus.publish_many({"topic": name, "n": n} for n in range(5))
            bus.run()
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_function_that_ends_the_program_keeps_nobody_from_closing(
    server: ServerProcess, error: type[BaseException]
) -> None:
    name = topic()
    seen: list[int] = []
    begun = time.monotonic()

    def work() -> None:
        with tamis.connect_sync(server.url) as bus:

            @bus.on(f"topic = '{name}'", durable=name, start="earliest")
            def collect(event: SyncMessage) -> None:
                seen.append(event["n"])
                if event["n"] == 1:
                    raise error

            bus.publish_many({"topic": name, "n": n} for n in range(3))
            bus.run()

    with pytest.raises(error):
        work()
    assert seen == [0, 1]
    assert time.monotonic() - begun < 10
    # Whoever comes next gets what was not done.
    with (
        tamis.connect_sync(server.url) as bus,
        bus.subscribe(f"topic = '{name}'", durable=name) as again,
    ):
        assert [next(again)["n"] for _ in range(2)] == [1, 2]
    with tamis.connect_sync(server.url) as bus:
        bus.delete(name)


def test_refusals_are_raised(bus: SyncBus) -> None:
    with pytest.raises(tamis.RefusedError, match=r"column 8\)\n  price <\n         \^"):
        bus.subscribe("price <")
    with pytest.raises(tamis.EventError):
        bus.publish({"a": float("nan")})
    bus.on("price <")(lambda _: None)
    with pytest.raises(tamis.RefusedError) as caught:
        bus.run()
    assert caught.value.code == Code.BAD_FILTER


def test_it_manages_as_its_twin_does(bus: SyncBus) -> None:
    name = topic()
    subscription = bus.subscribe("price < 5", durable=name, lifetime=60)
    assert (subscription.id, subscription.filter) == (name, "price < 5")
    assert subscription.expires_at is not None
    assert repr(subscription).startswith(f"<SyncConsumer {name} 'price < 5', active")
    assert [view.id for view in bus.subscriptions() if view.id == name] == [name]
    assert bus.renew(name, None).expires_at is None
    assert [trial.matches for trial in bus.try_filter("price < 5", [{"price": 4}])] == [True]
    assert "price is 4" in bus.explain({"price": 4}, id=name)
    assert bus.dead_letters(name) == []
    sequences = [event.sequence for event in bus.history(f"topic = '{name}'")]
    assert sequences == sorted(sequences)
    assert bus.requeue(name, [1]) == 0
    assert bus.delete_dead_letters(name, [1]) == 0
    assert bus.status()["ready"] is True
    assert bus.principal == "anonymous"
    assert bus.is_connected
    assert bus.sequence == 1
    assert len(bus.publisher) == 16
    assert subscription.missed == 0
    bus.delete(name)
    with pytest.raises(tamis.SubscriptionEndedError, match="deleted"):
        subscription.next(20)


def test_events_of_a_subscription_can_be_published_at_once(bus: SyncBus) -> None:
    name = topic()
    with bus.subscribe(f"topic = '{name}'") as subscription:
        bus.publish_many({"topic": name, "n": n} for n in range(5))
        copies = ({"topic": f"{name}-copy", "n": subscription.next(20)["n"]} for _ in range(5))
        assert bus.publish_many(copies).count == 5


def test_it_can_be_used_from_many_threads(bus: SyncBus) -> None:
    name = topic()
    receipts: list[Receipt] = []

    def publish() -> None:
        receipts.extend(bus.publish({"topic": name}) for _ in range(20))

    with bus.subscribe(f"topic = '{name}'") as subscription:
        threads = [threading.Thread(target=publish) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        got = {subscription.next(20).sequence for _ in range(100)}
    assert got == {receipt.first for receipt in receipts}


def test_a_closed_bus_says_so_and_leaves_no_thread() -> None:
    bus = tamis.open_bus_sync()
    assert repr(bus) == "<SyncBus, not open>"
    with pytest.raises(tamis.DisconnectedError, match="the bus is not open; use `with`"):
        bus.publish({"a": 1})
    with bus:
        assert repr(bus).startswith("<SyncLocalBus in a temporary folder, connected")
        subscription = bus.subscribe("a = 1")
    with pytest.raises(tamis.DisconnectedError, match="the bus is closed"):
        bus.publish({"a": 1})
    with pytest.raises(tamis.DisconnectedError, match="the bus is closed"):
        next(subscription)
    bus.close()
    assert "tamis client" not in {thread.name for thread in threading.enumerate()}


def test_what_goes_wrong_at_the_beginning_is_raised_and_leaves_no_thread() -> None:
    with pytest.raises(tamis.DisconnectedError, match="cannot be reached"):
        tamis.connect_sync("http://127.0.0.1:1").open()
    assert "tamis client" not in {thread.name for thread in threading.enumerate()}


def test_closing_ends_a_loop_in_another_thread(bus: SyncBus) -> None:
    events: list[SyncMessage] = []
    subscription = bus.subscribe("never = 1")
    thread = threading.Thread(target=lambda: events.extend(subscription))
    thread.start()
    bus.close()
    thread.join(20)
    assert not thread.is_alive()
    assert events == []


SCRIPT = """
import sys, tamis
with tamis.connect_sync(sys.argv[1]) as bus:
    print("listening", flush=True)
    try:
        for event in bus.subscribe("never = 1"):
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print("closed")
"""


def test_ctrl_c_ends_the_waiting(server: ServerProcess) -> None:
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-W", "error", "-c", SCRIPT, server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        time.sleep(0.3)  # until it waits for an event
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("interrupted\nclosed\n", "", 0)


def test_the_twins_have_the_same_names() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert names(Bus) - names(SyncBus) == set()
    # Runs what is asynchronous in the bus's own thread, for collections.
    assert names(SyncBus) - names(Bus) == {"call_async"}
    assert names(tamis.client.Consumer) - names(tamis.client.SyncConsumer) == {
        # Subscribing starts a synchronous consumer.
        "start",
        # Those who pull from queues call these.
        "ask_for_no_more",
        "leave",
        # The connection and messages call these.
        *("acknowledge", "reject", "send_settlements", "deliveries", "request", "confirmed"),
        *("begin_flush", "deliver", "dropped", "disconnected", "settlements", "end", "stop"),
    }
    assert names(tamis.client.SyncConsumer) - names(tamis.client.Consumer) == set()
    # Besides, what consumers of queries have as plain attributes.
    assert names(tamis.client.SyncQueryConsumer) - names(tamis.client.SyncConsumer) == {
        *("query", "residue", "refused")
    }
    assert names(tamis.Message) == names(tamis.client.SyncMessage)


def test_several_events_can_be_taken_at_once(bus: SyncBus) -> None:
    name = topic()
    consumer = bus.subscribe(f"topic = '{name}'", durable=name)
    bus.publish_many({"topic": name, "n": n} for n in range(10))
    taken: list[tamis.client.SyncMessage] = []
    while len(taken) < 9:
        found = consumer.take(9 - len(taken))
        assert 0 < len(found) <= 9 - len(taken)
        taken += found
    assert [event["n"] for event in taken] == [*range(9)]
    # The last ones are acknowledged by asking for the next.
    assert not taken[-1].is_settled
    assert consumer.take(5)[0]["n"] == 9
    assert all(event.is_settled for event in taken)
    was_closed = consumer.is_closed
    with pytest.raises(tamis.OptionError, match="limit is 0"):
        consumer.take(0)
    with pytest.raises(tamis.OptionError, match="timeout is 'soon'"):
        consumer.take(1, timeout="soon")
    with pytest.raises(TimeoutError, match=r"no event arrived within 0\.01 s"):
        consumer.take(5, timeout=0.01)
    consumer.close(delete=True)
    assert (was_closed, consumer.is_closed) == (False, True)
    assert consumer.take(5) == []


def test_a_consumer_can_be_flushed(bus: SyncBus) -> None:
    name = topic()
    consumer = bus.subscribe(f"topic = '{name}'", durable=name, acknowledge="manual")
    bus.publish({"topic": name})
    consumer.next(20).ack()
    consumer.flush()
    assert bus.subscription(name).pending == bus.subscription(name).in_flight == 0
    consumer.close(delete=True)


def test_the_generated_methods_are_current() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "tools" / "generate_sync.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, "")


def test_a_bus_made_of_an_address_says_how_it_is_made() -> None:
    with pytest.raises(tamis.TamisError, match=r"is made by tamis.connect_sync\('http://a'\)"):
        SyncBus("http://a")  # type: ignore[arg-type]

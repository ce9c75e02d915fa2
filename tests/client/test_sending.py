"""When a client sends what it has to say: at once where it can, and always in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec

from seeds import in_volume
from tamis.client import Consumer
from tamis.client.bus import Bus
from tamis.client.direct_websocket import FrameSource
from tamis.client.options import ClientOptions
from tamis.client.transport import Transport
from tamis.protocol import (
    Acknowledge,
    Credit,
    Deliver,
    Delivery,
    Hello,
    Ping,
    Pong,
    Publish,
    Published,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    Welcome,
    decode_request,
    encode_frame,
)
from tamis.protocol.frames import Reply, Request
from waiting import eventually_async, let_others_run

from .buses import run

WELCOME = Welcome(principal="me", version="1", largest_frame=100_000, largest_event=100_000)


class BrokerInHand(Transport):
    """A broker that answers as a test wants, at the other end of a connection like a socket."""

    def __init__(self) -> None:
        self.got: list[Request] = []
        self.is_ready = True
        """Whether it takes frames that cannot wait."""
        self.takes_one = False
        """Whether it takes only one more of them."""
        self.takes = asyncio.Event()
        """Set while it takes frames that can wait."""
        self.takes.set()
        self._replies: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, frame: bytes) -> None:
        await self.takes.wait()
        self._take(frame)

    def send_now(self, next_frame: FrameSource) -> bool:
        while self.is_ready:
            frame = next_frame()
            if frame is None:
                return True
            self._take(frame)
            self.is_ready = not self.takes_one
        return False

    async def receive(self) -> bytes:
        return await self._replies.get()

    async def close(self) -> None:
        """Nothing is to be closed."""

    def say(self, reply: Reply) -> None:
        self._replies.put_nowait(encode_frame(reply))

    def deliver(self, *sequences: int) -> None:
        events = [
            Delivery(sequence=one, time=0.0, publisher="p", data=msgspec.Raw(b"{}"))
            for one in sequences
        ]
        self.say(Deliver(subscription="s", events=events))

    def of_kind(self, *kinds: type) -> list[Any]:
        return [frame for frame in self.got if isinstance(frame, kinds)]

    def publications(self) -> list[int]:
        """Return how many events each publication had."""
        return [len(frame.events) for frame in self.of_kind(Publish)]

    def _take(self, frame: bytes) -> None:
        request = decode_request(frame)
        self.got.append(request)
        match request:
            case Ping():
                self.say(Pong(ref=request.ref))
            case Hello():
                self.say(WELCOME)
            case Subscribe():
                self.say(Subscribed(ref=request.ref, subscription="s"))
            case Unsubscribe():
                self.say(Unsubscribed(ref=request.ref, subscription="s"))

    def accept(self) -> None:
        """Answer the latest publication."""
        frame = self.of_kind(Publish)[-1]
        self.say(Published(ref=frame.ref, count=len(frame.events), first=1))


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Bus, BrokerInHand]]:
    broker = BrokerInHand()

    async def dial() -> Transport:
        return broker

    def no_management() -> Any:
        raise AssertionError("nobody manages here")

    bus = Bus("in hand", dial, no_management, ClientOptions.of({}))
    await bus.open()
    await let_others_run(5)
    try:
        yield bus, broker
    finally:
        broker.takes.set()
        await bus.close(drain=False)


# --- publications --------------------------------------------------------------------------------


def test_a_publication_is_sent_where_it_is_published() -> None:
    async def main() -> None:
        async with connected() as (bus, broker):
            broker.takes.clear()
            published = asyncio.create_task(bus.publish({"n": 1}))
            await let_others_run()
            assert broker.publications() == [1]
            broker.accept()
            assert (await published).count == 1

    run(main())


def test_publications_share_frames_while_there_are_many() -> None:
    async def main() -> None:
        async with connected() as (bus, broker):

            async def publish(count: int) -> list[int]:
                """Publish events at once; return how many each frame had."""
                frames = len(broker.publications())
                tasks = [asyncio.create_task(bus.publish({"n": n})) for n in range(count)]
                await let_others_run(3)
                for frame in broker.of_kind(Publish)[frames:]:
                    broker.say(Published(ref=frame.ref, count=len(frame.events)))
                await asyncio.gather(*tasks)
                return broker.publications()[frames:]

            # The first does not wait for others, until it turns out that there are some.
            assert await publish(20) == [1, 19]
            assert await publish(20) == [20]
            assert await publish(1) == [1]
            assert await publish(20) == [1, 19]

    run(main())


def test_nothing_overtakes_what_waits_to_be_sent() -> None:
    async def main() -> None:
        async with connected() as (bus, broker):
            broker.is_ready = False
            broker.takes.clear()
            tasks: list[asyncio.Task[Any]] = [asyncio.create_task(bus.subscribe("true").start())]
            await let_others_run(3)
            broker.is_ready = True
            tasks.append(asyncio.create_task(bus.publish({"n": 1})))
            await let_others_run(3)
            assert broker.of_kind(Subscribe, Publish) == []
            broker.takes.set()
            await let_others_run(3)
            assert [type(one) for one in broker.of_kind(Subscribe, Publish)] == [Subscribe, Publish]
            for task in tasks:
                task.cancel()

    run(main())


def test_publications_keep_their_order_whether_they_wait_or_not() -> None:
    async def scenario(random: Random) -> None:
        async with connected() as (bus, broker):
            tasks: list[asyncio.Task[object]] = []
            answered = 0
            for _ in range(200):
                broker.is_ready = random.random() < 0.5
                (broker.takes.set if random.random() < 0.5 else broker.takes.clear)()
                for _ in range(random.choice([0, 1, 1, 3])):
                    tasks.append(asyncio.create_task(bus.publish({"n": len(tasks)})))
                frames = broker.of_kind(Publish)
                if answered < len(frames) and random.random() < 0.5:
                    frame = frames[answered]
                    broker.say(Published(ref=frame.ref, count=len(frame.events)))
                    answered += 1
                await let_others_run(random.randint(0, 3))
            broker.takes.set()
            while not all(task.done() for task in tasks):
                for frame in broker.of_kind(Publish)[answered:]:
                    broker.say(Published(ref=frame.ref, count=len(frame.events)))
                    answered += 1
                await let_others_run()
            frames = broker.of_kind(Publish)
            events = [msgspec.json.decode(event)["n"] for one in frames for event in one.events]
            assert events == [*range(len(tasks))]

    for seed in range(in_volume(5)):
        run(scenario(Random(seed)), strictly=False)


# --- acknowledgements and credit -----------------------------------------------------------------


async def take(consumer: Consumer, broker: BrokerInHand, *sequences: int) -> None:
    for sequence in sequences:
        broker.deliver(sequence)
        assert (await consumer.next(20)).sequence == sequence


def test_an_acknowledgement_is_sent_when_its_consumer_waits_for_more() -> None:
    async def main() -> None:
        async with connected() as (bus, broker):
            consumer = await bus.subscribe("true", durable="d")
            await take(consumer, broker, 1, 2, 3)
            waiting = asyncio.create_task(consumer.next())
            await let_others_run()
            settled = [one for frame in broker.of_kind(Acknowledge) for one in frame.sequences]
            assert settled == [1, 2, 3]
            waiting.cancel()

    run(main())


def test_an_acknowledgement_precedes_the_end_of_its_subscription() -> None:
    async def main() -> None:
        async with connected() as (bus, broker):
            consumer = await bus.subscribe("true", durable="d", acknowledge="manual")
            broker.deliver(1, 2, 3)
            messages = await consumer.take(3, 20)
            broker.takes_one = True
            await messages[0].ack()
            await messages[1].ack()
            # It is urgent: only the first frame is sent at once, and the others wait.
            await messages[2].nack(delay=1)
            assert isinstance(broker.got[-1], Acknowledge)
            await consumer.close()
            last = broker.got[-4:]
            kinds = [type(frame).__name__ for frame in last]
            assert kinds == ["Acknowledge", "Reject", "Credit", "Unsubscribe"]

    run(main())


def test_credit_is_collected_while_the_broker_does_not_miss_it() -> None:
    async def main() -> None:
        async with connected() as (bus, broker):
            consumer = await bus.subscribe("true", window=1000)
            loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
            await take(consumer, broker, *range(1, 101))
            waiting = asyncio.create_task(consumer.next())
            await eventually_async(lambda: sum(one.events for one in broker.of_kind(Credit)) == 100)
            # Every 20 milliseconds, and once more.
            assert len(broker.of_kind(Credit)) <= (loop.time() - began) / 0.02 + 1
            waiting.cancel()

    run(main(), strictly=False)


def test_half_of_the_credit_is_given_again_at_once() -> None:
    async def main() -> None:
        async with connected() as (bus, broker):
            consumer = await bus.subscribe("true", window=10)
            broker.deliver(*range(1, 11))
            await consumer.take(4)
            assert broker.of_kind(Credit) == []
            await consumer.take(1)
            assert [one.events for one in broker.of_kind(Credit)] == [5]

    run(main())

"""Publications despite lost connections and refusals: stored once, in order, or reported."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seeds import in_volume
from tamis.client.messages import (
    MAX_EVENTS_PER_FRAME,
    EncodedEvent,
    PublicationLimits,
    encode_event,
)
from tamis.client.queues import MAX_FRAMES_IN_FLIGHT, Outbox, PendingPublication
from tamis.errors import DisconnectedError, RefusedError
from tamis.events import CloudEvent
from tamis.protocol import Code, Publish, Published
from tamis.protocol.views import Receipt

UNAVAILABLE = RefusedError(Code.UNAVAILABLE, "not now")
TOO_MANY = RefusedError(Code.TOO_MANY, "too fast")
BAD_EVENT = RefusedError(Code.BAD_EVENT, "never")
CONFLICT = RefusedError(Code.CONFLICT, "another event has this number")
OUT_OF_ORDER = RefusedError(Code.OUT_OF_ORDER, "another number is expected")

LARGEST_FRAME = 100_000


def limits(size: int) -> PublicationLimits:
    """Return limits that are the same for one event and for several."""
    return PublicationLimits(size, size)


class Client:
    """An outbox with numbers for events, which are what the broker sees of them."""

    def __init__(
        self, most: int = 1000, *, first: int | None = 1, is_patient: bool = False
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.outbox = Outbox("me", most, 10**6, first=first, is_patient=is_patient)
        self.all: list[PendingPublication] = []
        self.next = 1
        self.limits = limits(LARGEST_FRAME - 1000)
        self._ref = 0

    def publish(self, events: int = 1, data: object = None) -> PendingPublication:
        numbered = [encode_event({"n": self.next + i, "data": data}) for i in range(events)]
        return self.add(numbered)

    def add(self, events: list[EncodedEvent]) -> PendingPublication:
        done: asyncio.Future[Receipt] = self.loop.create_future()
        publication = self.outbox.add(self.next, events, done)
        self.next = publication.end
        self.all.append(publication)
        return publication

    def frame(self) -> Publish | None:
        self._ref += 1
        return self.outbox.next(self._ref, self.limits)

    def sent(self) -> list[int]:
        frame = self.frame()
        if frame is None:
            return []
        return [*range(frame.sequence, frame.sequence + len(frame.events))]

    def accept(
        self, count: int, duplicates: int = 0, first: int | None = 1, *, ref: int | None = None
    ) -> None:
        ref = self._ref if ref is None else ref
        self.outbox.accepted(Published(ref=ref, count=count, duplicates=duplicates, first=first))

    def refuse(self, error: RefusedError) -> bool:
        return self.outbox.refused(self._ref, error)

    def close(self) -> None:
        self.outbox.fail(DisconnectedError("over"))
        for publication in self.all:
            if not publication.done.cancelled():
                publication.done.exception()
        self.loop.close()


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    client.close()


def test_what_is_published_while_answers_are_awaited_goes_together(client: Client) -> None:
    for number in range(1, MAX_FRAMES_IN_FLIGHT + 1):
        client.publish()
        assert client.sent() == [number]
    client.publish()
    client.publish(2)
    assert client.sent() == []
    client.accept(1, ref=1)
    assert client.sent() == [5, 6, 7]


def test_frames_after_a_refused_one_are_sent_again_when_all_are_answered(client: Client) -> None:
    publications = [client.publish() for _ in range(1)]
    assert client.sent() == [1]
    publications += [client.publish(), client.publish()]
    assert client.sent() == [2, 3]
    publications.append(client.publish())
    assert client.sent() == [4]
    assert not client.outbox.refused(1, BAD_EVENT)
    assert client.sent() == []
    assert not client.outbox.refused(2, OUT_OF_ORDER)
    assert client.sent() == []
    assert not client.outbox.refused(3, OUT_OF_ORDER)
    frame = client.frame()
    assert frame is not None
    # Together, for they were not to blame.
    assert (frame.sequence, len(frame.events), frame.skip) == (2, 3, True)
    assert publications[0].done.exception() is BAD_EVENT
    assert not any(one.done.done() for one in publications[1:])


def test_those_that_follow_a_temporarily_refused_one_are_not_to_blame() -> None:
    client = Client(is_patient=True)
    publications = []
    for number in (1, 2):
        publications.append(client.publish())
        assert client.sent() == [number]
    assert client.outbox.refused(1, TOO_MANY)
    assert not client.outbox.refused(2, OUT_OF_ORDER)
    assert not any(one.done.done() for one in publications)
    assert client.sent() == [1]
    client.close()


def test_a_conflict_is_one_of_the_name_and_fails_everything(client: Client) -> None:
    for number in (1, 2):
        client.publish()
        assert client.sent() == [number]
    client.publish()
    assert not client.outbox.refused(1, CONFLICT)
    assert [one.done.exception() for one in client.all] == [CONFLICT] * 3
    assert client.sent() == []
    client.publish()
    assert client.sent() == [4]


def test_a_frame_that_leaves_out_numbers_waits_for_those_in_flight(client: Client) -> None:
    client.publish()
    assert client.sent() == [1]
    client.publish().done.cancel()
    client.publish()
    # If the broker refused the first, it would take this one nevertheless.
    assert client.sent() == []
    client.accept(1, ref=1)
    assert client.sent() == [3]


def test_each_publication_gets_its_own_receipt(client: Client) -> None:
    first, second, third = client.publish(2), client.publish(2), client.publish(3)
    assert client.sent() == [1, 2, 3, 4, 5, 6, 7]
    client.accept(7, duplicates=3, first=40)
    assert first.done.result() == Receipt(2, 2, None)
    assert second.done.result() == Receipt(2, 1, 40)
    assert third.done.result() == Receipt(3, 0, 41)


def test_what_was_not_answered_is_sent_again_under_the_same_numbers(client: Client) -> None:
    client.publish(2)
    assert client.sent() == [1, 2]
    client.publish()
    client.outbox.disconnected()
    assert client.sent() == [1, 2, 3]


def test_a_refusal_is_final(client: Client) -> None:
    publication = client.publish()
    client.sent()
    assert not client.refuse(BAD_EVENT)
    assert publication.done.exception() is BAD_EVENT
    client.outbox.disconnected()
    assert client.sent() == []
    client.publish()
    assert client.sent() == [2]


def test_where_several_were_refused_together_it_is_found_out_which_was_meant(
    client: Client,
) -> None:
    for _ in range(6):
        client.publish()
    frames = []
    while numbers := client.sent():
        frames.append(numbers)
        if 5 in numbers:
            client.refuse(BAD_EVENT)
        else:
            client.accept(len(numbers))
    assert frames == [[1, 2, 3, 4, 5, 6], [1, 2, 3], [4, 5, 6], [4], [5], [6]]
    assert client.all[4].done.exception() is BAD_EVENT
    assert all(one.done.result().count == 1 for one in client.all if one.sequence != 5)


def test_a_patient_client_sends_fewer_events_again() -> None:
    client = Client(is_patient=True)
    for _ in range(4):
        client.publish()
    assert client.sent() == [1, 2, 3, 4]
    assert client.refuse(TOO_MANY)
    assert client.sent() == [1, 2]
    assert client.refuse(TOO_MANY)
    assert client.sent() == [1]
    assert client.refuse(TOO_MANY)
    assert client.sent() == [1]
    client.accept(1)
    assert client.sent() == [2]
    client.close()


def test_what_an_unavailable_broker_refused_is_sent_again(client: Client) -> None:
    client.publish(2)
    assert client.sent() == [1, 2]
    assert client.refuse(UNAVAILABLE)
    assert client.sent() == [1, 2]


def test_a_cancelled_publication_is_not_sent_and_makes_room() -> None:
    client = Client(most=2)
    client.publish(2).done.cancel()
    assert not client.outbox.has_room(1, 10)
    assert client.sent() == []
    assert client.outbox.has_room(1, 10)
    client.close()


def test_the_numbers_in_a_frame_follow_each_other(client: Client) -> None:
    client.publish()
    client.publish().done.cancel()
    client.publish()
    assert client.sent() == [1]
    client.accept(1)
    assert client.sent() == [3]


def test_a_frame_says_when_numbers_before_it_are_left_out(client: Client) -> None:
    frames = []
    for answer in (None, BAD_EVENT, None, None):
        client.publish()
        frame = client.frame()
        assert frame is not None
        frames.append((frame.sequence, frame.skip))
        if answer is None:
            client.accept(1)
        else:
            client.refuse(answer)
    assert frames == [(1, False), (2, False), (3, True), (4, False)]
    # A name that the broker may know already continues after any number.
    named = Client(first=None)
    named.publish()
    frame = named.frame()
    assert frame is not None
    assert frame.skip
    named.close()


def test_one_publication_of_any_size_fits() -> None:
    client = Client(most=2)
    assert client.outbox.has_room(1000, 10**9)
    client.publish()
    assert client.outbox.has_room(1, 10)
    assert not client.outbox.has_room(2, 10)
    assert not client.outbox.has_room(1, 10**6)
    client.close()


def test_a_frame_is_not_larger_than_the_broker_takes(client: Client) -> None:
    for _ in range(3):
        client.publish(data="x" * 40_000)
    assert client.sent() == [1, 2]
    client.accept(2)
    for _ in range(MAX_EVENTS_PER_FRAME + 5):
        client.publish()
    assert client.sent() == [*range(3, 3 + MAX_EVENTS_PER_FRAME)]


def test_cloudevents_do_not_go_with_other_events(client: Client) -> None:
    client.publish()
    client.add([encode_event(CloudEvent(id="1", source="/a", type="t"))])
    client.publish()
    for expected, format_ in ((1, "json"), (2, "cloudevents"), (3, "json")):
        frame = client.frame()
        assert frame is not None
        assert (frame.sequence, frame.format, frame.publisher) == (expected, format_, "me")
        client.accept(1)


class Broker:
    """Stores what has the next number; whatever it answers may be lost."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.frames: deque[Publish] = deque()
        self.answers: deque[tuple[int, Published | RefusedError]] = deque()

    def store(self) -> None:
        frame = self.frames.popleft()
        numbers = range(frame.sequence, frame.sequence + len(frame.events))
        last = max(self.stored, default=0)
        if numbers.start > last + 1 and not frame.skip:
            self.answers.append((frame.ref, OUT_OF_ORDER))
            return
        assert all(n in self.stored for n in numbers if n <= last), "taken for a repetition"
        new = [n for n in numbers if n > last]
        first = len(self.stored) + 1 if new else None
        self.stored += new
        duplicates = len(numbers) - len(new)
        reply = Published(ref=frame.ref, count=len(numbers), duplicates=duplicates, first=first)
        self.answers.append((frame.ref, reply))

    def refuse(self, error: RefusedError) -> None:
        self.answers.append((self.frames.popleft().ref, error))


ACTIONS = st.lists(
    st.sampled_from(
        [
            "publish",
            "publish 3",
            "send",
            "store",
            "unavailable",
            "too many",
            "bad",
            "answer",
            "answer",
            "break",
            "cancel",
        ]
    ),
    max_size=80,
)


@settings(max_examples=in_volume(150))
@given(ACTIONS, st.booleans())
def test_every_publication_is_stored_once_in_order_or_fails(
    actions: list[str], is_patient: bool
) -> None:
    """A broker that refuses for all kinds of reasons, and a connection that may always break."""
    client, broker = Client(is_patient=is_patient), Broker()
    try:
        for action in [*actions, "break", *["send", "store", "answer"] * 120]:
            _act(action, client, broker)
        assert broker.stored == sorted(set(broker.stored))
        for publication in client.all:
            numbers = range(publication.sequence, publication.end)
            if publication.done.cancelled():
                continue
            if publication.done.exception() is not None:
                assert not set(numbers) & set(broker.stored)
                continue
            receipt = publication.done.result()
            assert [*numbers] == [n for n in broker.stored if n in numbers]
            if receipt.first is not None:
                assert broker.stored[receipt.first - 1] == numbers[receipt.duplicates]
    finally:
        client.close()


def _act(action: str, client: Client, broker: Broker) -> None:
    refusals = {"unavailable": UNAVAILABLE, "too many": TOO_MANY, "bad": BAD_EVENT}
    match action:
        case "publish" | "publish 3":
            client.publish(3 if action == "publish 3" else 1)
        case "send":
            frame = client.frame()
            if frame is not None:
                broker.frames.append(frame)
        case "store" if broker.frames:
            broker.store()
        case "unavailable" | "too many" | "bad" if broker.frames:
            broker.refuse(refusals[action])
        case "answer" if broker.answers:
            ref, answer = broker.answers.popleft()
            if isinstance(answer, Published):
                client.outbox.accepted(answer)
            else:
                client.outbox.refused(ref, answer)
        case "break":
            broker.frames.clear()
            broker.answers.clear()
            client.outbox.disconnected()
        case "cancel":
            for publication in client.all:
                if not publication.done.done():
                    publication.done.cancel()
                    break


def test_a_frame_keeps_to_the_limits_of_a_batch(client: Client) -> None:
    client.limits = PublicationLimits(LARGEST_FRAME, events=3, batch_bytes=100)
    for _ in range(4):
        client.publish()
    client.publish(data="x" * 200)
    client.publish()
    # One event alone may exceed the bytes, which are for several.
    for expected in ([1, 2, 3], [4], [5], [6]):
        assert client.sent() == expected
        client.accept(len(expected))


def test_what_no_frame_can_hold_any_longer_fails_alone(client: Client) -> None:
    large, small = client.publish(data="x" * 40_000), client.publish()
    # After a reconnect, the broker takes less.
    client.limits = limits(10_000)
    assert client.sent() == [2]
    error = large.done.exception()
    assert isinstance(error, RefusedError)
    assert (error.code, str(error)) == (
        Code.TOO_LARGE,
        "the publication exceeds the broker's limit of 10,000 bytes",
    )
    client.accept(1)
    assert small.done.result().count == 1

"""What a subscription keeps: credit, acknowledgements, and what comes twice."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from seeds import in_volume
from tamis.client.queues import Inbox
from tamis.protocol import Acknowledge, Credit, Delivery, Reject


def delivery(sequence: int, attempt: int = 1) -> Delivery:
    return Delivery(
        sequence=sequence, time=0.0, publisher="p", data=msgspec.Raw(b"{}"), attempt=attempt
    )


def deliveries(*sequences: int) -> list[Delivery]:
    return [delivery(sequence) for sequence in sequences]


def taken(inbox: Inbox, limit: int = 100) -> list[int]:
    return [one.sequence for one in inbox.take(limit)]


def durable(window: int = 10) -> Inbox:
    inbox = Inbox(window, settles=True, is_kept=True)
    assert inbox.connect() == window
    return inbox


def test_events_come_out_in_order_and_their_credit_is_given_again() -> None:
    inbox = durable()
    inbox.put(deliveries(1, 2, 3))
    assert taken(inbox, 2) == [1, 2]
    assert taken(inbox) == [3]
    assert inbox.frames("s") == [Credit(subscription="s", events=3)]
    assert inbox.frames("s") == []


def test_acknowledgements_go_together() -> None:
    inbox = durable()
    inbox.put(deliveries(1, 2, 3))
    taken(inbox)
    inbox.acknowledge(1)
    inbox.acknowledge(3)
    inbox.reject(2, 0.5, "not now")
    assert inbox.frames("s") == [
        Acknowledge(subscription="s", sequences=[1, 3]),
        Reject(subscription="s", sequence=2, delay=0.5, reason="not now"),
        Credit(subscription="s", events=3),
    ]


def test_after_a_reconnect_the_broker_redelivers_unread_events() -> None:
    inbox = durable()
    inbox.put(deliveries(1, 2, 3))
    assert taken(inbox, 1) == [1]
    assert inbox.connect() == 10
    inbox.put(deliveries(1, 2, 3, 4))
    assert taken(inbox) == [1, 2, 3, 4]


def test_what_was_acknowledged_does_not_come_out_again_and_is_acknowledged_again() -> None:
    inbox = durable()
    inbox.put(deliveries(1, 2))
    assert taken(inbox, 1) == [1]
    inbox.connect()
    inbox.put(deliveries(1, 2))
    inbox.acknowledge(1)
    inbox.frames("s")
    assert taken(inbox) == [2]
    assert inbox.frames("s")[0] == Acknowledge(subscription="s", sequences=[1])


def test_a_broker_that_loses_patience_does_not_make_an_event_wait_twice() -> None:
    inbox = durable()
    inbox.put(deliveries(1, 2))
    inbox.put([delivery(1, attempt=2)])
    assert [(one.sequence, one.attempt) for one in inbox.take(100)] == [(1, 2), (2, 1)]
    assert inbox.frames("s") == [Credit(subscription="s", events=3)]


def test_without_a_durable_name_what_waits_stays_and_takes_its_part_of_the_credit() -> None:
    inbox = Inbox(10, settles=False, is_kept=False)
    inbox.connect()
    inbox.put(deliveries(1, 2, 3))
    assert inbox.connect() == 7
    assert inbox.last == 3
    inbox.acknowledge(1)
    assert taken(inbox) == [1, 2, 3]
    assert inbox.frames("s") == [Credit(subscription="s", events=3)]


@settings(max_examples=in_volume(100))
@given(st.integers(1, 20), st.lists(st.integers(0, 5), max_size=100))
def test_a_consumer_never_starves_and_no_more_than_the_window_waits(
    window: int, takes: list[int]
) -> None:
    """The broker sends all it may; the client tells of credit only when it is urgent."""
    inbox = Inbox(window, settles=False, is_kept=False)
    credit, sequence = inbox.connect(), 0
    for limit in takes:
        inbox.put(deliveries(*range(sequence + 1, sequence + credit + 1)))
        sequence, credit = sequence + credit, 0
        assert 0 < len(inbox) <= window
        inbox.take(limit)
        if inbox.report_due(is_idle=False) == "now":
            credit = sum(frame.events for frame in inbox.frames("s") if isinstance(frame, Credit))
        assert len(inbox) or credit

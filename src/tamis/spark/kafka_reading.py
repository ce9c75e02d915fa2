"""Reading a span of a partition of Kafka: all of it, and no more, or a sentence why not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tamis.errors import SparkError
from tamis.spark.kafka_client import (
    END_OF_PARTITION,
    GONE,
    NO_SUCH_OFFSET,
    READING,
    SECONDS_OF_A_LOOK,
    away,
    held_in,
    made_right,
    passes,
    tell_of,
)
from tamis.spark.kafka_offsets import Place, Span
from tamis.spark.kafka_options import Settings

# As many as are handed on at a time; a message may have a megabyte.
_MESSAGES: Final = 1_000


class Task(NamedTuple):
    """A part of a batch that is read at one go."""

    settings: Settings
    place: Place
    span: Span

    def messages(self) -> Iterator[list[Message]]:
        """Yield all messages of the span, some at a time."""
        reading = _Reading(self)
        try:
            yield from reading.messages()
        finally:
            reading.close()


class _Reading:
    """A client that reads one span of one partition."""

    def __init__(self, task: Task) -> None:
        self._settings, self._place, self._span = task
        self._at = self._span.begin
        self._gap: int | None = None
        self._ended: int | None = None
        with made_right(self._settings) as self._complaints:
            self._consumer = Consumer(
                {**self._settings.client, **READING, "error_cb": self._complaints.note}
            )
        self._go_to(self._span.begin)

    def close(self) -> None:
        self._consumer.close()

    def messages(self) -> Iterator[list[Message]]:
        heard = time.monotonic()
        while self._at < self._span.end and not self._is_ended():
            before = self._at
            found = self._taken()
            if found:
                yield found
            if self._at > before:
                heard = time.monotonic()
            elif time.monotonic() > heard + self._settings.patience:
                self._give_up()
                break
        if self._gap is not None:
            self._tell_of_gap(self._gap)

    def _taken(self) -> list[Message]:
        wanted = min(_MESSAGES, self._span.end - self._at)
        found = self._consumer.consume(wanted, SECONDS_OF_A_LOOK)
        return [message for message in found if self._takes(message)]

    def _takes(self, message: Message) -> bool:
        error = message.error()
        if error is not None:
            self._hear(error, message.offset())
            return False
        offset = message.offset()
        assert offset is not None  # noqa: S101 - only what was not sent yet has none
        if offset > self._at and self._gap is None:
            self._gap = self._at
        self._at = offset + 1
        return self._at <= self._span.end

    def _is_ended(self) -> bool:
        """Tell whether the partition ends behind the span: what is missing, Kafka has cleared."""
        return self._ended is not None and self._ended >= self._span.end

    def _hear(self, error: KafkaError, offset: int | None) -> None:
        code = error.code()
        if code == END_OF_PARTITION:
            self._ended = offset
            if self._is_ended() and self._gap is None:
                self._gap = self._at
        elif code == NO_SUCH_OFFSET:
            self._skip()
        elif code in GONE:
            tell_of([f"{self._place} is gone"], self._settings)
            self._at = self._span.end
        elif not passes(error):
            raise SparkError(f"{self._place} cannot be read: {error.str()}")

    def _skip(self) -> None:
        """Go on with what there is, if that is wanted: the offset is no longer there."""
        held = self._held()
        tell_of([_missing(self._place, self._at, held)], self._settings)
        self._gap = None
        self._at = min(max(self._at, held.begin), self._span.end)
        if self._at > held.end:
            self._at = self._span.end
        self._go_to(self._at)

    def _tell_of_gap(self, gap: int) -> None:
        """Tell whether offsets without a message have been lost.

        Kafka takes messages away at the beginning of a partition when they are too old, and
        anywhere else because it was asked to: by a later message with the same key, or by the end
        of a transaction, which has an offset too.
        """
        held = self._held()
        if held.begin > gap:
            tell_of([_missing(self._place, gap, held)], self._settings)

    def _give_up(self) -> None:
        if self._ended is None:
            raise away(self._settings, self._complaints.last or f"{self._place} gives nothing")
        tell_of([_missing(self._place, self._at, Span(0, self._ended))], self._settings)

    def _held(self) -> Span:
        try:
            found = held_in(self._consumer, [self._place], self._settings.patience)
        except KafkaException as error:
            raise away(self._settings, error.args[0].str()) from None
        return found[self._place]

    def _go_to(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(*self._place, offset)])


def _missing(place: Place, at: int, held: Span) -> str:
    return (
        f"the stream has come to {at} in {place}, which has offsets from {held.begin} to {held.end}"
    )

"""Subscriptions to objects: the broker evaluates what it can, the rest is checked here."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tamis.client.consumer import Consumer, ConsumerRegistry, logger
from tamis.client.messages import Message, NoAcknowledgements, ReceivedEvent
from tamis.client.option_checks import check_function
from tamis.client.options import ConsumerOptions, SubscribeOptions
from tamis.errors import EventError, LimitError, OptionError
from tamis.filters import Mode
from tamis.filters.boolean import And
from tamis.objects import ObjectFilter, StandIn, decode_object, read_object_header
from tamis.objects.collection_names import in_collection
from tamis.objects.message_classes import class_called
from tamis.objects.patterns import require_object_filter
from tamis.objects.pushdown import pushed_down
from tamis.protocol import Delivery
from tamis.units import Duration

MOST_REFUSALS: Final = 16
"""Sentences about objects that could not be read; all are counted."""

FilterOverObjects = ObjectFilter | StandIn
OnRefused = Callable[[EventError | LimitError], object]


class ObjectDelivery(Delivery, frozen=True):
    """An event with the object that it carries."""

    carried: Any = None


class ObjectRequest(NamedTuple):
    """A filter over objects and the options of a subscription, complete."""

    filter: ObjectFilter
    options: ConsumerOptions
    on_refused: OnRefused | None

    @classmethod
    def of(cls, given: FilterOverObjects, window: int, options: SubscribeOptions) -> ObjectRequest:
        """Return the request; refuse options that filters over objects do not have."""
        for name in ("language", "mode"):
            if options.get(name) is not None:
                raise OptionError(name, "is for filters over attributes: leave it out")
        on_refused = check_function("on_refused", options.get("on_refused"))
        condition = require_object_filter(given)
        asked: SubscribeOptions = {**options, "mode": Mode.SQL}
        asked.pop("on_refused", None)
        collection = asked.pop("collection", None)
        pushed = pushed_down(condition)
        if collection is not None:
            pushed = And.of((in_collection(collection), pushed))
        request = ConsumerOptions.of(pushed, window, asked)
        return cls(condition, request, on_refused)


def asked_classes(filter_: ObjectFilter) -> list[type]:
    """Return the classes of messages that a filter asks for."""
    roots = dict.fromkeys(condition.accessor.root for condition in filter_.conditions())
    return [cls for root in roots if (cls := class_called(root)) is not None]


def object_of(message: ReceivedEvent) -> Any:
    """Return the object that a message carries; a plain event is the message itself."""
    delivery = message.delivery
    return delivery.carried if isinstance(delivery, ObjectDelivery) else message


def carried_object(message: ReceivedEvent, asked: Sequence[type]) -> Any:
    """Return the object that a message carries; raise `EventError` if it cannot be read here."""
    found = _with_object(message.delivery, asked)
    return found.carried if isinstance(found, ObjectDelivery) else message


class CheckedConsumer(Consumer):
    """Events that carry objects which satisfy a filter; the others are acknowledged here."""

    def __init__(self, registry: ConsumerRegistry, request: ObjectRequest) -> None:
        super().__init__(registry, request.options)
        self._condition: Final = request.filter
        self._asked: Final = asked_classes(request.filter)
        self._on_refused: Final = request.on_refused
        self.refused = 0
        """How many objects could not be read."""
        self.refusals: Final = deque[str](maxlen=MOST_REFUSALS)
        """Why, the last ones."""

    async def deliveries(self, limit: int) -> list[Delivery]:
        """Return the events whose objects satisfy the filter."""
        while arrived := await super().deliveries(limit):
            checked = [self._checked(delivery) for delivery in arrived]
            satisfying = [delivery for delivery in checked if delivery is not None]
            if satisfying:
                return satisfying
        return []

    def _checked(self, delivery: Delivery) -> Delivery | None:
        try:
            found = _with_object(delivery, self._asked)
        except (EventError, LimitError) as error:
            self._refuse(delivery, error)
            return None
        given = found.carried if isinstance(found, ObjectDelivery) else _plain(delivery)
        if self._condition.matches(given):
            return found
        self.acknowledge(delivery.sequence)
        return None

    def _refuse(self, delivery: Delivery, error: EventError | LimitError) -> None:
        """Report an object that cannot be read; where events are kept, it becomes a dead letter."""
        self.refused += 1
        self.refusals.append(f"event {delivery.sequence}: {error}")
        self.reject(delivery.sequence, None, str(error))
        if self._on_refused is None:
            logger.warning("%r: event %d cannot be read: %s", self, delivery.sequence, error)
            return
        try:
            self._on_refused(error)
        except Exception:
            logger.exception("%r: on_refused failed", self)


def _plain(delivery: Delivery) -> ReceivedEvent:
    return ReceivedEvent(delivery, NoAcknowledgements())


def _with_object(delivery: Delivery, asked: Sequence[type]) -> Delivery:
    if delivery.format != "json":
        return delivery
    header = read_object_header(delivery.data)
    if header is None:
        return delivery
    return ObjectDelivery(
        delivery.sequence,
        delivery.time,
        delivery.publisher,
        delivery.data,
        delivery.attempt,
        delivery.format,
        decode_object(delivery.data, header, asked),
    )


class ObjectConsumer:
    """Objects that satisfy a filter; made by `Bus.subscribe`.

    It has what a `Consumer` has, and yields objects. `messages` yields them with their messages,
    which know where they were stored, and can be acknowledged one by one.
    """

    def __init__(self, registry: ConsumerRegistry, request: ObjectRequest) -> None:
        self._request: Final = request
        self.checked: Final = CheckedConsumer(registry, request)

    @property
    def id(self) -> str | None:
        """Return the subscription's id; for a durable subscription, the name you gave it."""
        return self.checked.id

    @property
    def filter(self) -> ObjectFilter:
        """Return the filter."""
        return self._request.filter

    @property
    def pushed_down(self) -> str:
        """Return the part of the filter that the broker evaluates."""
        return self.checked.filter

    @property
    def missed(self) -> int:
        """Return how many events are known to be missing."""
        return self.checked.missed

    @property
    def refused(self) -> int:
        """Return how many objects could not be read."""
        return self.checked.refused

    @property
    def refusals(self) -> list[str]:
        """Return why the last ones of these could not be read."""
        return [*self.checked.refusals]

    @property
    def is_closed(self) -> bool:
        """Return whether no more objects will come."""
        return self.checked.is_closed

    def __repr__(self) -> str:
        return f"<ObjectConsumer {self.filter!r}: {self.checked!r}>"

    async def start(self) -> Self:
        """Subscribe; raise `RefusedError` if the broker refuses."""
        await self.checked.start()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def close(self, *, delete: bool = False) -> None:
        """Stop receiving objects; a durable subscription stays unless you delete it."""
        await self.checked.close(delete=delete)

    async def flush(self) -> None:
        """Wait until all acknowledgements and rejections so far are on the broker's disk."""
        await self.checked.flush()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.checked.__aexit__(kind, error, traceback)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        require_automatic(self.checked)
        return object_of(await anext(self.checked))

    async def next(self, timeout: Duration | None = None) -> Any:
        """Return the next object; raise `TimeoutError` if none comes in time."""
        require_automatic(self.checked)
        return object_of(await self.checked.next(timeout))

    async def take(self, limit: int, timeout: Duration | None = None) -> list[Any]:
        """Return the objects that have arrived, waiting for the first; none once it is closed."""
        require_automatic(self.checked)
        return [object_of(message) for message in await self.checked.take(limit, timeout)]

    async def messages(self) -> AsyncIterator[tuple[Any, Message]]:
        """Yield each object with its message, which can be acknowledged or rejected."""
        async for message in self.checked:
            yield object_of(message), message


def require_automatic(consumer: Consumer) -> None:
    """Refuse to yield objects that nobody could acknowledge."""
    if not consumer.acknowledges_automatically:
        raise OptionError(
            "acknowledge",
            "is 'manual', and objects cannot be acknowledged: iterate over messages(), which "
            "yields each object with its message",
        )

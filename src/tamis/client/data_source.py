"""The client's end of a data source: queries come in, a function yields the rows."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, suppress
from itertools import islice
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec

from tamis.client import option_checks as checks
from tamis.client.cancellation import cancellations, is_cancelled
from tamis.client.messages import Publishable, encode_event
from tamis.errors import DisconnectedError, EventError, OptionError, RefusedError, TamisError
from tamis.filters import Filter, FilterLimits
from tamis.filters.boolean import MAX_DEPTH
from tamis.languages import parse
from tamis.languages.constraints import Constraint, constraints_of
from tamis.protocol.frames import MAX_NAME_CHARACTERS, QueryRequest
from tamis.protocol.queries import Ask, Serve, ServedAll, ServedRows, Serving

logger: Final = logging.getLogger("tamis.client")

MAX_ROWS_PER_FRAME: Final = 500
MAX_FRAME_BYTES: Final = 64 * 1024
"""About as much is sent at once."""
ROWS_PER_THREAD_CALL: Final = 100
SECONDS_TO_COLLECT: Final = 0.02
"""Rows that come this close after each other are sent together."""
# A broker has checked the filter by its own limits.
_ANY_SIZE: Final = FilterLimits(text=2**30, atoms=2**30, depth=MAX_DEPTH, steps=2**62)


class SourceRequest(NamedTuple):
    """What a source is asked for."""

    filter: Filter
    """Rows that do not match it are left out, so a source may yield more than it must."""

    @property
    def constraints(self) -> Mapping[str, list[Constraint]] | None:
        """Return the same as a message with constraints, None if that cannot express it."""
        return constraints_of(self.filter)


SourceRows = Iterable[Publishable] | AsyncIterable[Publishable]
SourceHandler = Callable[[SourceRequest], SourceRows | Awaitable[SourceRows]]
"""Returns the rows that answer a query: a list, a generator, or an asynchronous generator."""


class SourceOptions(NamedTuple):
    """What a source advertises, checked."""

    filter: str
    language: str
    name: str
    many: bool

    @classmethod
    def of(cls, filter_: str | Filter, language: str, name: str, many: bool) -> SourceOptions:
        """Return the options; refuse what cannot be used."""
        if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
            raise OptionError(
                "name", f"must be a text of up to {MAX_NAME_CHARACTERS} printable characters"
            )
        is_text = isinstance(filter_, str)
        return cls(
            filter=checks.check_filter(filter_),
            language=checks.check_language(language) if is_text else "tamis",
            name=name,
            many=checks.check_flag("many", many),
        )


class SourceRegistry(Protocol):
    """The part of a bus that a source needs."""

    @property
    def timeout(self) -> float | None:
        """Return the seconds to wait for an answer."""

    def start_source(self, source: DataSource) -> None:
        """Advertise, now and after every reconnect."""

    async def end_source(self, source: DataSource) -> None:
        """Withdraw a source."""

    def send_query(self, frame: QueryRequest) -> None:
        """Send a frame, if there is a connection."""


class DataSource:
    """Answers queries with the rows that a function yields; made by `Bus.serve`.

    It is asked from `async with` on, until that ends. After a lost connection it advertises again.
    """

    def __init__(
        self, registry: SourceRegistry, options: SourceOptions, handler: SourceHandler
    ) -> None:
        self._registry = registry
        self._options = options
        self._handler = handler
        self._id = ""
        self._confirmed: asyncio.Future[None] | None = None
        self._answers: dict[str, _SourceAnswer] = {}
        self._over = asyncio.Event()
        self._error: TamisError | None = None
        self.asked = 0
        """How many queries it was asked."""

    @property
    def id(self) -> str:
        """Return the broker's id of the source; another after each connection."""
        return self._id

    @property
    def filter(self) -> str:
        """Return what is advertised."""
        return self._options.filter

    @property
    def is_closed(self) -> bool:
        """Return whether it is asked no more."""
        return self._over.is_set()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "serving" if self._id else "not serving"
        return f"<DataSource {self._options.name or self.filter!r:.80}, {state}>"

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Advertise; raise `RefusedError` if the broker refuses."""
        if self._confirmed is None:
            self._confirmed = asyncio.get_running_loop().create_future()
            self._registry.start_source(self)
        await self._wait_for_broker()
        return self

    async def advertise(self, filter_: str | Filter, *, language: str = "tamis") -> None:
        """Advertise another filter from now on, because the data has changed."""
        options, name = self._options, self._options.name
        self._options = SourceOptions.of(filter_, language, name, options.many)
        if self._confirmed is None:
            await self.start()
            return
        self._confirmed = asyncio.get_running_loop().create_future()
        self._registry.start_source(self)
        await self._wait_for_broker()

    async def _wait_for_broker(self) -> None:
        if self._confirmed is None:
            return
        try:
            async with asyncio.timeout(self._registry.timeout):
                await asyncio.shield(self._confirmed)
        except TimeoutError:
            raise DisconnectedError("the broker did not confirm the source in time") from None

    async def run(self) -> None:
        """Answer queries until the source is closed; raise the error that ends it."""
        await self.start()
        await self._over.wait()
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Answer no more queries."""
        if self._confirmed is not None and not self.is_closed:
            self._over.set()
            await self._stop_all()
            await self._registry.end_source(self)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- for the connection ----------------------------------------------------------------------

    def request(self, ref: int) -> Serve:
        """Return the frame that advertises it."""
        options = self._options
        return Serve(
            ref=ref,
            filter=options.filter,
            language=options.language,
            name=options.name,
            many=options.many,
            source=self._id,
        )

    def confirmed(self, reply: Serving) -> None:
        """Note the id."""
        self._id = reply.source
        if self._confirmed is not None and not self._confirmed.done():
            self._confirmed.set_result(None)

    def refused(self, error: TamisError) -> None:
        """Note that the broker refuses it."""
        if self._confirmed is not None and not self._confirmed.done():
            self._confirmed.set_exception(error)
            self._confirmed.exception()
        if not self._id:
            self.fail(error)

    def disconnected(self) -> None:
        """Stop answering: nobody can be told."""
        self._id = ""
        for answer in self._answers.values():
            answer.stop()

    def fail(self, error: TamisError) -> None:
        """End with an error."""
        self._error = self._error or error
        if self._confirmed is not None and not self._confirmed.done():
            self._confirmed.set_exception(error)
            self._confirmed.exception()
        self.disconnected()
        self._over.set()

    def ask(self, asked: Ask) -> None:
        """Answer a query."""
        self.asked += 1
        answer = _SourceAnswer(asked, self._handler, self._registry.send_query)
        self._answers[asked.ask] = answer
        answer.start(lambda: self._answers.pop(asked.ask, None))

    def give_credit(self, ask: str, bytes_: int) -> None:
        """Resume an answer."""
        if ask in self._answers:
            self._answers[ask].give_credit(bytes_)

    def stop(self, ask: str) -> None:
        """Stop an answer that nobody waits for."""
        if ask in self._answers:
            self._answers[ask].stop()

    async def _stop_all(self) -> None:
        answers = [*self._answers.values()]
        for answer in answers:
            answer.stop()
        await asyncio.gather(*(a.task for a in answers if a.task), return_exceptions=True)


class _SourceAnswer:
    """One answer on its way: rows are sent as long as there is credit for them."""

    def __init__(
        self, asked: Ask, handler: SourceHandler, send: Callable[[QueryRequest], None]
    ) -> None:
        self._asked = asked
        self._handler = handler
        self._send = send
        self._credit = asked.credit
        self._has_credit = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self, done: Callable[[], object]) -> None:
        self.task = asyncio.create_task(self._run(), name="tamis source")
        self.task.add_done_callback(lambda _: done())

    def give_credit(self, bytes_: int) -> None:
        self._credit += bytes_
        self._has_credit.set()

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        problem, before = "", cancellations()
        try:
            await self._answer()
        except RefusedError as error:
            problem = str(error)
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error, before):
                raise
            # Whoever asks need not know more of this process.
            problem = f"its function raised {type(error).__name__}"
            logger.exception("a query could not be answered")
        self._send(ServedAll(ask=self._asked.ask, error=problem))

    async def _answer(self) -> None:
        request = SourceRequest(parse(self._asked.filter, limits=_ANY_SIZE))
        async with aclosing(_RowProducer(self._handler, request)) as producer:
            while rows := await producer.take():
                await self._send_rows(rows)

    async def _send_rows(self, rows: list[bytes]) -> None:
        """Send rows once there is credit for them."""
        while self._credit <= 0:
            self._has_credit.clear()
            await self._has_credit.wait()
        self._credit -= sum(map(len, rows))
        self._send(ServedRows(ask=self._asked.ask, rows=msgspec.Raw(b"[" + b",".join(rows) + b"]")))


def _row_text(row: Publishable) -> bytes:
    encoded = encode_event(row)
    if encoded.format != "json":
        raise EventError("a row is a mapping or JSON text, not a CloudEvent")
    return encoded.text.strip()


class _RowProducer:
    """Runs a function that yields rows, at most one frame of them ahead of what is sent."""

    def __init__(self, handler: SourceHandler, request: SourceRequest) -> None:
        self._rows: list[bytes] = []
        self._size = 0
        self._has_rows = asyncio.Event()
        self._is_full = asyncio.Event()
        """Also set at the end: there is no point in waiting for more."""
        self._has_room = asyncio.Event()
        self._task = asyncio.create_task(self._run(handler, request))

    async def take(self) -> list[bytes]:
        """Return the next rows, none after the last."""
        await self._has_rows.wait()
        # Rows are collected for a frame, but not while the next ones take their time.
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_TO_COLLECT):
                await self._is_full.wait()
        rows, self._rows, self._size = self._rows, [], 0
        self._has_room.set()
        if self._task.done():
            if not rows:
                # It raises what the function has raised.
                self._task.result()
        else:
            self._has_rows.clear()
            self._is_full.clear()
        return rows

    async def _run(self, handler: SourceHandler, request: SourceRequest) -> None:
        try:
            async with aclosing(_chunks(handler, request)) as chunks:
                async for chunk in chunks:
                    for row in chunk:
                        await self._put(_row_text(row))
        finally:
            self._has_rows.set()
            self._is_full.set()

    async def _put(self, text: bytes) -> None:
        while self._rows and (
            self._size + len(text) > MAX_FRAME_BYTES or len(self._rows) == MAX_ROWS_PER_FRAME
        ):
            self._is_full.set()
            self._has_room.clear()
            await self._has_room.wait()
        self._rows.append(text)
        self._size += len(text)
        self._has_rows.set()

    async def aclose(self) -> None:
        """Stop the function, if it is asynchronous; a thread ends by itself."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _chunks(
    handler: SourceHandler, request: SourceRequest
) -> AsyncGenerator[list[Publishable], None]:
    """Yield the rows of a function, a few at a time, whichever kind of iterable it returns."""
    # A plain function may take its time before it returns.
    is_async = inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler)
    found: Any = handler(request) if is_async else await asyncio.to_thread(handler, request)
    if inspect.isawaitable(found):
        found = await found
    if isinstance(found, AsyncGenerator):
        async with aclosing(found):
            async for row in found:
                yield [row]
    elif isinstance(found, AsyncIterable):
        async for row in found:
            yield [row]
    elif not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
        raise OptionError("handler", f"must return rows, not {type(found).__name__}")
    else:
        rows = iter(found)
        while some := await asyncio.to_thread(_some, rows):
            yield some


def _some(rows: Iterator[Publishable]) -> list[Publishable]:
    return list(islice(rows, ROWS_PER_THREAD_CALL))

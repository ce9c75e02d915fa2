"""Asking and answering: what a session does with queries, within its rights and quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tamis.access import Rights
from tamis.broker.operations.fair_executor import Slices
from tamis.broker.publish.batches import split_batch
from tamis.broker.queries.row_checks import RowChecker
from tamis.broker.queries.service import QuerySink
from tamis.broker.sessions.base import SessionBase
from tamis.broker.subscribe.filter_reader import FilterReader
from tamis.errors import AccessError, OptionError, RefusedError, TamisError
from tamis.events.schema import did_you_mean
from tamis.events.values import brief
from tamis.filters import Filter, Mode
from tamis.filters.element_test import refuse_element_tests
from tamis.filters.printing import ANY
from tamis.languages import parse
from tamis.languages.exactness import refuse_approximated
from tamis.protocol import Code
from tamis.protocol.frames import FRAME_ERRORS, MAX_NAME_CHARACTERS
from tamis.protocol.queries import Query, Serve
from tamis.routing.aggregates import Aggregate
from tamis.routing.data_advertisements import DataAdvertisement
from tamis.routing.query_messages import RowSight

MAX_ROWS_PER_FRAME: Final = 1_000
MAX_CREDIT_BYTES: Final = 2**40
# To look for similar names takes a while.
MAX_GUESSED: Final = 3
MAX_COMPARED: Final = 1_000


class Queries(SessionBase):
    """What a session does with queries; rows show it what its rights allow."""

    # --- answering -------------------------------------------------------------------------------

    async def serve(self, wanted: Serve, sink: QuerySink) -> str:
        """Advertise data with which this session answers queries; return the id of the source."""
        self._require_open()
        if not self.rights.may_serve:
            raise AccessError(Code.FORBIDDEN, "your roles do not allow you to answer queries")
        if len(wanted.name) > MAX_NAME_CHARACTERS or not wanted.name.isprintable():
            raise RefusedError(
                Code.BAD_REQUEST,
                f"a source's name has up to {MAX_NAME_CHARACTERS} printable characters",
            )
        advertisement = await self._answer_in_slices(self._advertisement(wanted))
        self._require_open()
        return self._services.queries.serve(
            self,
            self.principal.name,
            sink,
            name=wanted.name,
            advertisement=advertisement,
            id_=wanted.source,
        )

    def _advertisement(self, wanted: Serve) -> Slices[DataAdvertisement]:
        yield
        settings, engine = self._services.settings, self._services.engine
        limits = FilterReader(settings, engine.mode).limits
        try:
            filter_ = parse(wanted.filter, wanted.language, limits=limits)
            refuse_element_tests(filter_, "what a source serves")
            bound = filter_ if engine.schema is None else filter_.bind(engine.schema)
        except TamisError as error:
            raise RefusedError(Code.BAD_FILTER, str(error)) from None
        advertisement = DataAdvertisement.of(bound, many=wanted.many)
        # How it compares with others is remembered, so that advertising takes no time.
        yield from self._services.queries.router.advertisements.compare(advertisement)
        return advertisement

    async def withdraw(self, source: str) -> None:
        """End a source."""
        self._services.queries.withdraw(self, source)

    async def serve_rows(self, ask: str, rows: msgspec.Raw) -> None:
        """Answer a query with rows; those that do not match are left out."""
        self._require_open()
        service = self._services.queries
        filter_ = service.filter_of(self, ask)
        if filter_ is None:
            # It was stopped meanwhile.
            return
        try:
            texts = [bytes(one) for one in split_batch(bytes(rows), MAX_ROWS_PER_FRAME)]
        except FRAME_ERRORS:
            raise RefusedError(Code.BAD_REQUEST, "rows must be an array of objects") from None
        services = self._services
        largest = services.settings.largest_event
        checker = RowChecker(services.decoder, services.engine.schema, largest)
        checking = checker.check(texts, filter_, self.rights.may_serve_row)
        run = services.decode_executor.run_slices
        checked = await self._while_open(run(self.principal.name, checking))
        service.take(self, ask, checked.rows, checked.skipped)
        if checked.problem:
            service.finish(self, ask, checked.problem)

    async def finish_serving(self, ask: str, problem: str) -> None:
        """Note that there are no more rows that answer a query, or why not."""
        shown = "".join(c if c.isprintable() else " " for c in problem[:200])
        self._services.queries.finish(self, ask, shown)

    # --- asking ----------------------------------------------------------------------------------

    async def ask(self, wanted: Query, sink: QuerySink, begun: Callable[[str], None]) -> None:
        """Begin a query; `begun` is told its id before there is anything to say about it."""
        self._require_open()
        self._check_query(wanted)
        aggregate = None
        if wanted.aggregate:
            try:
                aggregate = Aggregate.parse(wanted.aggregate)
            except OptionError as error:
                raise RefusedError(Code.BAD_REQUEST, str(error)) from None
        rights = self.rights
        filter_, hint = await self._answer_in_slices(self._query_filter(wanted, rights))
        if self.rights is not rights:
            raise RefusedError(Code.CONFLICT, "your rights have changed; ask again")
        self._require_open()
        if aggregate is not None and aggregate.attribute:
            self._check_attribute(aggregate.attribute)
        self._services.queries.ask(
            self,
            self.principal.name,
            sink,
            filter_,
            seconds=min(wanted.timeout, self._services.settings.query_seconds),
            credit=wanted.credit,
            limit=wanted.limit,
            aggregate=aggregate,
            sight=self._sight(filter_, rights) if rights.hides_anything else None,
            hint=hint,
            begun=begun,
        )

    def _check_query(self, wanted: Query) -> None:
        if not 0 < wanted.timeout < float("inf"):
            raise RefusedError(Code.BAD_REQUEST, "a timeout is a positive number of seconds")
        if wanted.limit is not None and wanted.limit < 1:
            raise RefusedError(Code.BAD_REQUEST, "a limit is 1 or more")
        if not 0 <= wanted.credit <= MAX_CREDIT_BYTES:
            raise RefusedError(Code.BAD_REQUEST, "credit is a number of bytes")

    def _query_filter(self, wanted: Query, rights: Rights) -> Slices[tuple[Filter, str]]:
        """Return the filter, and a guess at what may be wrong with it."""
        yield
        manager = self._services.subscription_manager
        parsed, _ = manager.parse_allowed(wanted.filter, wanted.language, Mode.SQL, rights)
        filter_ = rights.check_filter(parsed)
        try:
            refuse_approximated(filter_, "a query of data sources")
        except TamisError as error:
            raise RefusedError(Code.BAD_FILTER, str(error)) from None
        # What it will be asked about is remembered, so that asking takes no time.
        yield from self._services.queries.router.advertisements.relate(filter_)
        return filter_, self._hint(filter_, rights)

    def _hint(self, filter_: Filter, rights: Rights) -> str:
        """Return a guess at a misspelt attribute; empty: none seems to be."""
        # Made at once, whatever happens to advertisements meanwhile.
        advertised = [*self._services.queries.router.advertisements.attributes]
        unknown = sorted(filter_.attributes() - {*advertised, ANY})[:MAX_GUESSED]
        known = [one for one in advertised[:MAX_COMPARED] if rights.may_mention([one])]
        for name in unknown:
            if hint := did_you_mean(name, known):
                return f"no data is advertised that has {brief(name)}; {hint}"
        return ""

    def _check_attribute(self, name: str) -> None:
        """Refuse an aggregate of something hidden, like a filter that mentions it."""
        if not self.rights.may_mention([name]):
            raise AccessError(Code.FORBIDDEN, f"{name!r:.80} is not an attribute that you may see")

    def _sight(self, filter_: Filter, rights: Rights) -> RowSight:
        """Return what the rights show of rows that match the filter."""
        decoder, names = self._services.decoder, filter_.attributes()

        def see(row: bytes) -> bytes | None:
            sight = rights.sight(decoder.decode(row, "json").event)
            if sight is None or not sight.covers(names):
                return None
            if sight.is_whole:
                return row
            return msgspec.json.encode(sight.document(msgspec.json.decode(row)))

        return see

    def give_query_credit(self, query: str, bytes_: int) -> None:
        """Grant a query more bytes of rows."""
        if not 0 <= bytes_ <= MAX_CREDIT_BYTES:
            raise RefusedError(Code.BAD_REQUEST, "credit is a number of bytes")
        self._services.queries.credit(self, query, bytes_)

    def cancel_query(self, query: str) -> None:
        """End a query early."""
        self._services.queries.cancel(self, query)

    def end_queries(self) -> None:
        """End the session's sources and queries."""
        self._services.queries.end_client(self)

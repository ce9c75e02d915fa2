"""Inspection of events: dead letters, history, trials of filters, explanations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tamis.access import Rights
from tamis.analysis.explain import Explanation, explain_in_pieces
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.operations.fair_executor import Slices
from tamis.broker.sessions.base import SessionBase
from tamis.broker.subscribe.history import HistoryQuery, sequence_at
from tamis.errors import EventError, LimitError, RefusedError, TamisError
from tamis.events import Event, EventLimits, decode_json
from tamis.events.gathering import HoldsAttributes
from tamis.filters import Filter, Mode
from tamis.languages.exactness import QueryTest, satisfies_exactly
from tamis.matching import Engine
from tamis.protocol import Code
from tamis.protocol.management import (
    MAX_PAGE_ITEMS,
    ExplanationView,
    parse_position,
)
from tamis.protocol.views import (
    DeadLetterView,
    HistoryView,
    Trial,
)

EXPLANATION_SECONDS: Final = 0.5


def explain_document(
    id_: str, filter_: Filter, mode: Mode, sample: Event | HoldsAttributes
) -> Explanation:
    """Explain why a document satisfies a filter, or why an event does not satisfy a query."""
    engine = Engine()
    if isinstance(filter_, QueryTest):
        engine.add(id_, filter_.text, language=filter_.language)
    else:
        engine.add(id_, filter_, mode=mode)
    return engine.explain(id_, sample, seconds=EXPLANATION_SECONDS)


class Inspection(SessionBase):
    """What a session may ask; the answers show what its rights allow."""

    # --- stored events ---------------------------------------------------------------------------

    async def dead_letters(
        self, id_: str, *, after: int = 0, limit: int = 100
    ) -> list[DeadLetterView]:
        """Return the dead letters that the principal may see now."""
        read, most = self._services.dead_letters.read_page, min(limit, MAX_PAGE_ITEMS)
        return await self._answer_by_rights(
            lambda rights: read(self._with_letters(id_), rights, after, most)
        )

    async def requeue(self, id_: str, sequences: Sequence[int]) -> int:
        """Queue dead letters again as if they had never been sent; return how many."""
        seen = await self._visible_letters(id_, sequences)
        subscription = self._find(id_)
        count = await self._services.subscription_manager.requeue(subscription, seen)
        await self._answer_in_thread(self._services.dead_letter_bounds.refresh, subscription)
        return count

    async def delete_dead_letters(self, id_: str, sequences: Sequence[int]) -> int:
        """Delete dead letters; return how many there were."""
        seen = await self._visible_letters(id_, sequences)
        subscription, delete = self._find(id_), self._services.store.state.delete_dead_letters
        count = await self._answer_in_thread(delete, subscription.number, seen)
        await self._answer_in_thread(self._services.dead_letter_bounds.refresh, subscription)
        return count

    async def _visible_letters(self, id_: str, sequences: Sequence[int]) -> list[int]:
        find = self._services.dead_letters.find_visible
        return await self._answer_by_rights(
            lambda rights: find(self._with_letters(id_), rights, sequences)
        )

    def _with_letters(self, id_: str) -> ActiveSubscription:
        """Return a subscription whose dead letters may be read with these rights."""
        subscription = self._find(id_)
        stored = subscription.stored
        self._services.subscription_manager.parse_stored(
            stored.name, stored.filter, stored.language, stored.mode, self.rights
        )
        return subscription

    async def history(
        self,
        filter_: str,
        *,
        language: str = "tamis",
        mode: str | None = None,
        start: int | str = "earliest",
        end: int | str = "latest",
        limit: int = 100,
    ) -> HistoryView:
        """Return past events that match a filter, and where to continue; keep no state."""
        self._require_open()
        log, most = self._services.store.log, min(limit, MAX_PAGE_ITEMS)
        first, end_ = (sequence_at(log, parse_position(one)) for one in (start, end))

        def search(rights: Rights) -> Slices[HistoryView]:
            manager = self._services.subscription_manager
            parsed, chosen = manager.parse_allowed(filter_, language, mode, rights)
            wanted = HistoryQuery(parsed, chosen, first, end_, most)
            # A generator of its own, so that a thread parses the filter.
            return (yield from self._services.history.read(wanted, rights))

        return await self._answer_by_rights(search)

    # --- trying ----------------------------------------------------------------------------------

    async def try_filter(
        self,
        filter_: str,
        *,
        language: str = "tamis",
        mode: str | None = None,
        events: Sequence[bytes | msgspec.Raw],
    ) -> list[Trial]:
        """Return which sample events a filter matches; no stored event is read."""
        self._require_open()
        return await self._answer_in_slices(self._try(filter_, language, mode, events))

    def _try(
        self,
        filter_: str,
        language: str,
        mode: str | None,
        events: Sequence[bytes | msgspec.Raw],
    ) -> Slices[list[Trial]]:
        subscription_manager = self._services.subscription_manager
        parsed, chosen = subscription_manager.parse_allowed(filter_, language, mode, self.rights)
        own = self.rights.check_filter(parsed)
        trials = []
        for event in events:
            yield
            try:
                sample = self._sample(event)
                trials.append(Trial(satisfies_exactly(own, chosen, sample, self.rights.schema)))
            except TamisError as error:
                trials.append(Trial(None, str(error)))
        return trials

    async def explain(
        self,
        *,
        id_: str | None = None,
        filter_: str | None = None,
        language: str = "tamis",
        mode: str | None = None,
        event: bytes | msgspec.Raw,
    ) -> ExplanationView:
        """Explain why a sample event matches or not, without revealing the filters of roles."""
        self._require_open()
        return await self._answer_in_slices(self._explain(id_, filter_, language, mode, event))

    def _explain(
        self,
        id_: str | None,
        filter_: str | None,
        language: str,
        mode: str | None,
        event: bytes | msgspec.Raw,
    ) -> Slices[ExplanationView]:
        is_late = self._lateness()
        subscription_manager = self._services.subscription_manager
        if id_ is not None:
            stored = self._find(id_).stored
            parsed, chosen = subscription_manager.parse_stored(
                id_, stored.filter, stored.language, stored.mode, self.rights
            )
        else:
            parsed, chosen = subscription_manager.parse_allowed(
                filter_ or "", language, mode, self.rights
            )
        own, schema = self.rights.check_filter(parsed), self.rights.schema
        is_total = self._services.engine.mode == "total"
        try:
            yield
            sample = self._sample(event)
            if isinstance(own, QueryTest) or not isinstance(sample, Event):
                found = explain_document(id_ or "", own, chosen, sample)
            else:
                found = yield from explain_in_pieces(
                    id_ or "", own, chosen, sample, schema, total=is_total, is_late=is_late
                )
            yield
            return ExplanationView(found.matched, str(found))
        except EventError as error:
            raise RefusedError(Code.BAD_EVENT, str(error)) from None
        except LimitError as error:
            raise RefusedError(Code.TOO_LARGE, str(error)) from None

    def _lateness(self) -> Callable[[], bool]:
        """Return what ends a search: its time is over, or the session is."""
        clock = self._services.clock
        end = clock() + EXPLANATION_SECONDS
        return lambda: clock() > end or self.closed.done()

    def _sample(self, text: bytes | msgspec.Raw) -> Event | HoldsAttributes:
        """Parse an event of the user; errors show no more of the schema than the user may see.

        A JSON string is the text of a document.
        """
        limits = EventLimits(size=self._services.settings.largest_event)
        if bytes(text).lstrip()[:1] == b'"' and self.rights.schema is None:
            return self._services.decoder.documents.read_whole(bytes(text))
        return decode_json(bytes(text), schema=self.rights.schema, limits=limits)

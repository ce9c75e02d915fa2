"""The engine: add and remove subscriptions, and match events against all of them.

One writer, many readers: all that readers use is in one immutable tuple of segments, which the
writer replaces. A reader takes it once and does not see later changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Collection as AnyCollection
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
from numpy.typing import NDArray

from tamis.analysis.document_changes import possible_in_document
from tamis.analysis.explain import SEARCH_SECONDS, Explanation, explain, late_after
from tamis.analysis.lint import Findings, LintedFilter, LintLimits, lint
from tamis.diagrams.pictures import Picture
from tamis.errors import EventError, FilterError, SnapshotError, TamisError
from tamis.events import Event, EventLimits, Schema, decode_json
from tamis.events.batch import (
    LIMITS,
    Admission,
    EventSource,
)
from tamis.events.gathering import HoldsAttributes, is_object
from tamis.events.json_source import JsonLineEvents, JsonLinesData, reader_of
from tamis.events.json_text import require_json_text
from tamis.filters import Filter, FilterLimits, Id, Mode
from tamis.filters.element_bounds import ElementResidual
from tamis.filters.modes import UNKNOWN, View, as_mode, require_schema
from tamis.filters.translations import ReadableResidual, Translatable
from tamis.matching.batches import BatchMatcher
from tamis.matching.compile.programs import decompile
from tamis.matching.compile.texts import TextCompiler
from tamis.matching.compile.vocabulary import Vocabulary
from tamis.matching.evaluate.metering import MatchingBudget
from tamis.matching.held_attributes import ObjectsAsEvents
from tamis.matching.matches import LineMatches, Matches
from tamis.matching.projecting import ProjectionCache
from tamis.matching.residuals import (
    EventAsGiven,
    ExactCheck,
    UndecidedQueries,
    UndecidedQuery,
)
from tamis.matching.store import snapshot
from tamis.matching.store.additions import Addition
from tamis.matching.store.collection import Collection, CollectionState
from tamis.matching.store.segments import CompiledSubscription
from tamis.matching.subscriptions import (
    NEVER,
    Added,
    Rejected,
    Subscription,
    id_of,
    plain_rows,
    plain_text,
    row_batches,
    rows_given,
    seconds_of,
    subscription_of,
)
from tamis.matching.translated import SubscriptionTranslator
from tamis.units import count

if TYPE_CHECKING:
    import pyarrow as pa

    from tamis.objects.remembering import ReadOnce
    from tamis.xml import Document, XMLLimits

# Filters given as texts are compiled together if they are many: kernels take time to load.
MIN_TEXTS: Final = 1_024


class Engine:
    """Finds, for every event, all subscriptions whose filter it satisfies.

    >>> engine = Engine()
    >>> engine.add("pc-watch", 'company in ("IBM", "Dell") and price <= 1000')
    >>> engine.add("any-price", "price is present")
    >>> engine.match({"company": "IBM", "price": 900})
    ['pc-watch', 'any-price']
    """

    def __init__(
        self,
        schema: Schema | None = None,
        mode: str = Mode.SQL,
        *,
        limits: FilterLimits | None = None,
        clock: Callable[[], float] = time.time,
        threads: int = 1,
    ) -> None:
        """Create an empty engine; `clock` returns the seconds since 1970 that decide expiry."""
        self.schema: Final = schema
        self.mode: Final = as_mode(mode)
        require_schema(self.mode, schema)
        self._limits = limits or FilterLimits()
        self._clock = clock
        self._threads = threads
        self._total = self.mode is Mode.TOTAL
        self._admission = Admission(schema, total=self._total)
        self._collection = Collection(Vocabulary(schema, total=self._total))
        self._projections = ProjectionCache(schema, total=self._total)
        self._leaves_residuals = False
        """Whether something was ever left to check: set before the first such subscription comes.

        A reader takes the subscriptions first; if they leave something, this is true by then.
        """
        self._undecided = UndecidedQueries()
        self._translator = SubscriptionTranslator(schema, self.mode, self._limits)
        self._objects = ObjectsAsEvents(self._tested_attributes)

    def _tested_attributes(self) -> AnyCollection[str]:
        return self._collection.attributes()

    def __len__(self) -> int:
        return self._collection.count

    def __contains__(self, id_: object) -> bool:
        if not isinstance(id_, str | int):
            return False
        return id_ in self._collection

    def ids(self) -> list[Id]:
        """Return the ids of all subscriptions, in order of adding."""
        return self._collection.ids()

    def __repr__(self) -> str:
        segments = len(self._collection.state.segments)
        return f"<Engine: {count(len(self), 'subscription')} in {count(segments, 'segment')}>"

    # --- subscriptions -----------------------------------------------------------------------

    def add(
        self,
        id_: Id,
        filter_: Filter | str | Translatable,
        *,
        language: str = "tamis",
        mode: str | None = None,
        expires_at: float | datetime | None = None,
    ) -> None:
        """Add a subscription; it matches from the next event on."""
        given = Subscription(id_, filter_, language, mode, expires_at)
        with self._collection.changing:
            self._add_alone(given, self._collection.vocabulary_to_extend())

    def _add_alone(self, given: Subscription, vocabulary: Vocabulary) -> None:
        entry, filter_ = self._translated(given, vocabulary)
        self._collection.add(entry, filter_)

    def _translated(
        self, given: Subscription, vocabulary: Vocabulary
    ) -> tuple[CompiledSubscription, Filter]:
        entry, translation = self._translator.translated(given, vocabulary)
        if entry.residual is not None:
            self._leaves_residuals = True
        if translation.ways:
            self._objects.reader.learn(translation.ways, self._collection.attributes)
        return entry, translation.filter

    def add_many(
        self,
        subscriptions: Iterable[Subscription | Mapping[str, object]]
        | pa.RecordBatch
        | pa.Table
        | str
        | PathLike[str],
    ) -> Added:
        """Add subscriptions; report each that is invalid with its row and the reason.

        They may be the rows of an Arrow table, or of the Parquet file with this name.

        >>> engine = Engine()
        >>> engine.add_many([Subscription(1, "price < 5"), Subscription(2, "price <")]).rejected[0]
        Rejected(row=2, id=2, reason='a condition or value is missing at the end (line 1, ...
        """
        rejected: list[Rejected] = []
        row = 0
        compiler = TextCompiler(self._limits)
        with self._collection.changing:
            for batch in row_batches(rows_given(subscriptions)):
                # The programs of a batch are in terms of one vocabulary.
                vocabulary = self._collection.vocabulary_to_extend()
                plain = plain_rows(batch)
                texts = plain[1] if plain else list(map(plain_text, batch))
                programs = self._programs(texts, compiler, vocabulary)
                if plain and self._collection.add_all_unseen(plain[0], programs, self.mode):
                    row += len(batch)
                    continue
                for given, program in zip(batch, programs, strict=True):
                    row += 1
                    try:
                        self._add_row(given, program, vocabulary)
                    except TamisError as error:
                        rejected.append(Rejected(row, id_of(given), str(error)))
            if rejected:
                # Nothing needs the leaves that only they had.
                self._collection.vocabulary_to_extend()
        return Added(row - len(rejected), tuple(rejected))

    def addition(self, limits: FilterLimits | None = None) -> Addition:
        """Begin to add many subscriptions that come into force together.

        Events are matched meanwhile, and no event waits until they are compiled.
        """
        return Addition(self._collection, limits or self._limits)

    def _programs(
        self, texts: Sequence[str], compiler: TextCompiler, vocabulary: Vocabulary
    ) -> Sequence[NDArray[np.int32] | None]:
        """Return the programs of those texts that are compiled together, else None."""
        if len(texts) < MIN_TEXTS:
            return [None] * len(texts)
        self._collection.expect_unseen()
        return compiler.compile(texts, self.mode, vocabulary)

    def _add_row(
        self,
        given: Subscription | Mapping[str, object],
        program: NDArray[np.int32] | None,
        vocabulary: Vocabulary,
    ) -> None:
        if program is None or type(given) is not Subscription:
            self._add_alone(subscription_of(given), vocabulary)
            return
        id_, _, _, _, expiry = given
        expires_at = NEVER if expiry is None else seconds_of(expiry)
        self._collection.add_unseen(CompiledSubscription(id_, program, self.mode, expires_at))

    def remove(self, id_: Id) -> None:
        """Remove a subscription; events no longer match it."""
        with self._collection.changing:
            self._collection.remove(id_)
            self._undecided.forget(id_)

    def replace(
        self,
        id_: Id,
        filter_: Filter | str | Translatable,
        *,
        language: str = "tamis",
        mode: str | None = None,
        expires_at: float | datetime | None = None,
    ) -> None:
        """Replace a filter; every event sees either the old or the new one."""
        given = Subscription(id_, filter_, language, mode, expires_at)
        with self._collection.changing:
            vocabulary = self._collection.vocabulary_to_extend()
            self._collection.replace(*self._translated(given, vocabulary))
            self._undecided.forget(id_)

    @property
    def undecided(self) -> Mapping[Id, UndecidedQuery]:
        """Return the queries whose exact check was too much work on a document: how often, why.

        They do not match such a document, and all others are answered; `undecided` of `Matches`
        has them by document.
        """
        return self._undecided.known()

    def filter(self, id_: Id) -> tuple[Filter, Mode]:
        """Return a subscription's filter, bound to the schema, and its mode."""
        flat = self._flat_filter(id_)
        residual = self._collection.find(id_)[0].residual
        if isinstance(residual, ElementResidual):
            return residual.filter, residual.mode
        return flat

    def _flat_filter(self, id_: Id) -> tuple[Filter, Mode]:
        entry, vocabulary = self._collection.find(id_)
        return decompile(entry.program.tolist(), entry.mode, vocabulary), entry.mode

    def explain(self, id_: Id, event: object, *, seconds: float = SEARCH_SECONDS) -> Explanation:
        """Explain why an event satisfies a subscription or not, and what would change that.

        The search for a change ends after some seconds.

        >>> engine = Engine()
        >>> engine.add("pc-watch", 'company in ("IBM", "Dell") and price <= 1000')
        >>> print(engine.explain("pc-watch", {"company": "IBM", "price": 1200}))
        'pc-watch' does not match:
        - price is 1200, so price <= 1000 is false: it needs at most 1000
        With price = 1000 it would match.
        """
        if isinstance(id_, Event | Mapping):
            raise FilterError("explain takes the id of a subscription first, and then the event")
        entry = self._collection.find(id_)[0]
        expired, residual = entry.expires_at <= self._clock(), entry.residual
        (filter_, mode), given = self._flat_filter(id_), event
        if isinstance(residual, ReadableResidual):
            filter_ = residual.readable(filter_)
        if not isinstance(given, Mapping) and is_object(given):
            given = self._objects.event(given, {*filter_.attributes(), *(self.schema or ())})
        found = explain(
            id_,
            filter_,
            mode,
            given,  # type: ignore[arg-type]
            self.schema,
            total=self._total,
            expired=expired,
            is_late=late_after(seconds),
        )
        if hasattr(event, "text") and isinstance(event, HoldsAttributes):
            found = possible_in_document(found)
        if residual is None:
            return found
        if not found.matched:
            # After a change, what is left to check might not hold.
            return found._replace(change=None, changed=None)
        matched = residual.holds(event)
        if matched and not isinstance(residual, ElementResidual):
            return found
        return found._replace(matched=matched, change=None, changed=None, residual=str(residual))

    def lint(self, **limits: Unpack[LintLimits]) -> Findings:
        """Find filters that are never or always true, equal to another, or covered by one.

        Filters that leave something to check in Python are not examined.
        Examine at most `filters` filters, and compare at most `pairs` pairs, in at most `steps`
        steps each.

        >>> engine = Engine()
        >>> engine.add("wide", "price < 10")
        >>> engine.add("narrow", "price < 5")
        >>> print(engine.lint())
        'narrow': every event that matches it matches wide as well
        """
        now = self._clock()
        entries = (self._collection.find(id_)[0] for id_ in self.ids())
        ids = [each.id for each in entries if each.expires_at > now and each.residual is None]
        subjects = (LintedFilter(id_, *self.filter(id_)) for id_ in ids)
        return lint(subjects, self.schema, self.match_batch, count=len(ids), **limits)

    def draw(self, *ids: Id, breakpoints: bool = False) -> Picture:
        """Draw the diagram of some subscriptions, or of all; with `breakpoints`, node by node."""
        chosen = {str(id_): self._flat_filter(id_) for id_ in ids or self.ids()}
        modes = {mode for _, mode in chosen.values()}
        if len(modes) > 1:
            raise FilterError(
                f"filters of modes {' and '.join(sorted(modes))} cannot share a diagram; "
                "draw them separately"
            )
        mode = modes.pop() if modes else self.mode
        filters = {name: filter_ for name, (filter_, _) in chosen.items()}
        return Picture(filters, mode, self.schema, breakpoints=breakpoints)

    # --- snapshots ---------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write all subscriptions, compiled together, to one checksummed file."""
        folder = Path(path).parent
        if not folder.is_dir():
            raise SnapshotError(path, "", f"there is no folder {folder}; make it first")
        with self._collection.changing:
            segment = self._collection.compact()
            snapshot.save(Path(path), segment, self._collection.vocabulary, self.mode)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        limits: FilterLimits | None = None,
        clock: Callable[[], float] = time.time,
        threads: int = 1,
        without: NDArray[np.int64] | None = None,
    ) -> Engine:
        """Open a saved engine; its arrays are mapped into memory, not read.

        The subscriptions whose numbers are in `without` are left out, and the others keep theirs.

        >>> import tempfile
        >>> engine = Engine()
        >>> engine.add("cheap", "price < 10")
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     engine.save(file.name)
        ...     Engine.load(file.name).match({"price": 5})
        ['cheap']
        """
        found = snapshot.load(Path(path))
        engine = cls(found.schema, found.mode, limits=limits, clock=clock, threads=threads)
        segment = found.segment if without is None else found.segment.without_all(without)
        engine._collection = Collection(found.vocabulary, segment)
        engine._leaves_residuals = segment.columns.left is not None
        return engine

    # --- matching ----------------------------------------------------------------------------

    def match(self, event: object, *, budget: MatchingBudget | None = None) -> list[Id]:
        """Return the ids of the subscriptions that one event satisfies, in order of adding.

        An event is an `Event`, a mapping, or any object with public attributes.
        Without a budget the answer is complete; with one, except for its `undecided`.
        """
        now, state = self._clock(), self._collection.state
        if not state.is_whole:
            state = self._collection.whole()
        if budget is not None and state.is_metered:
            # What is not compiled cannot be measured test by test.
            state = CollectionState(state.vocabulary, self._collection.compiled())
        leaves_residuals = self._leaves_residuals
        if (
            type(event) is dict
            and budget is None
            and not leaves_residuals
            and self._is_all_compiled(state)
        ):
            plain = _joined(segment.match_plain(event, now) for segment in state.segments)
            if plain is not None:
                return plain
        given = event
        once = self._objects.once() if leaves_residuals else None
        # Most events come from a decoder that has checked them.
        if type(event) is not Event or event.conforms_to is not self.schema or self._total:
            event = self._admitted(event, state, once)
        check = None
        if leaves_residuals:
            exact = ExactCheck(self._undecided, budget, once)
            place = 0 if budget is None else budget.event
            check = EventAsGiven(given, event, exact, place).satisfies
        segments, tried = state.segments, state.open
        if state.few:
            segments, tried = (), state.few + tried
        found = [id_ for each in segments for id_ in each.match_one(event, now, budget, check)]
        view = View(event, UNKNOWN[Mode.SQL], self.schema)
        for entry, filter_ in tried:
            if entry.mode is Mode.SQL:
                is_satisfied = filter_.truth_in(view) is True
            else:
                is_satisfied = self._satisfies(event, filter_, entry.mode)
            if not is_satisfied or entry.expires_at <= now:
                continue
            if check is None or entry.residual is None or check(entry.id, entry.residual):
                found.append(entry.id)
        return found

    def _admitted(self, given: Any, state: CollectionState, once: ReadOnce | None = None) -> Event:
        """Return an event that is checked; of an object, with the attributes that filters want."""
        if not isinstance(given, Mapping) and is_object(given):
            given = self._objects.event(given, self._projections.wanted(state), once)
        return self._admission.admit(given)

    def _is_all_compiled(self, state: CollectionState) -> bool:
        """Return whether segments find all there is to find, and check the event on the way."""
        return bool(state.segments) and not state.open and not self._total

    def _satisfies(self, event: Event, filter_: Filter, mode: Mode) -> bool:
        """Return what `Filter.matches` says, without its checks: all of it is checked already."""
        if mode is Mode.DEFAULT and self.schema is not None:
            event = self.schema.with_defaults(event)
        view = View(event, UNKNOWN[mode], self.schema)
        if mode is Mode.STRICT and not filter_.is_adequate(view):
            return False
        return filter_.truth_in(view) is True

    def match_json(self, text: str | bytes, *, limits: EventLimits | None = None) -> list[Id]:
        """Return the ids of the subscriptions that an event in JSON satisfies, in order of adding.

        >>> engine = Engine()
        >>> engine.add("cheap", "order.price < 10")
        >>> engine.match_json('{"order": {"price": 5, "tags": ["new"]}}')
        ['cheap']
        """
        require_json_text(text)
        state = self._collection.state
        if state.open or not state.is_whole or self._leaves_residuals:
            # Uncompiled filters, and what is left to check, want to see the whole event.
            return self.match(decode_json(text, schema=self.schema, limits=limits))
        now = self._clock()
        data = _encoded(text) if limits is None and self._is_all_compiled(state) else None
        if data is not None:
            found = _joined(segment.match_json(data, now) for segment in state.segments)
            if found is not None:
                return found
        projection = self._projections.of(state.segments)
        event = reader_of(projection, limits or LIMITS).read_event(text)
        return [id_ for segment in state.segments for id_ in segment.match_one(event, now)]

    def match_json_lines(
        self,
        data: JsonLinesData,
        *,
        limits: EventLimits | None = None,
        first_line: int = 1,
        now: float | None = None,
    ) -> LineMatches:
        r"""Return for each line that holds an event the subscriptions it satisfies.

        The data is one text with an event per line, or the lines one by one, such as a file. Blank
        lines are no events. `errors` has the events that were refused, with the number of the line
        in each sentence, and `lines` has the number of every event's line; `first_line` is that of
        the first, if the data is part of something larger.

        >>> engine = Engine()
        >>> engine.add("cheap", "price < 10")
        >>> matches = engine.match_json_lines('{"price": 5}\n\n{"price": }\n')
        >>> matches[0], matches.lines.tolist()
        (['cheap'], [1, 3])
        >>> print(matches.errors[1])
        line 3, column 11: this is not JSON: expecting value
        """
        source = JsonLineEvents(data, limits=limits, first_line=first_line)
        matches = self.match_batch(source, now=now)
        return matches.with_lines(source.numbers())

    def match_xml(
        self, text: str | bytes | Document, *, limits: XMLLimits | None = None
    ) -> list[Id]:
        """Return the ids of the subscriptions that an XML document satisfies, in order of adding.

        >>> engine = Engine()
        >>> engine.add("dear", "//book[price > 30]", language="xql")
        >>> engine.match_xml("<shop><book><price>35</price></book></shop>")
        ['dear']
        """
        from tamis.xml import Document  # noqa: PLC0415 - needs the extra `xml`

        return self.match(
            text if isinstance(text, Document) else Document.parse(text, limits=limits)
        )

    def match_xml_batch(
        self,
        texts: Iterable[str | bytes | Document | None],
        *,
        limits: XMLLimits | None = None,
        now: float | None = None,
    ) -> Matches:
        """Return for each XML document the subscriptions it satisfies.

        They may be the texts of an Arrow column. `errors` has those that were refused.
        """
        from tamis.xml.document_events import DocumentEvents  # noqa: PLC0415 - needs the extra

        if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
            raise EventError(
                f"documents are an iterable of texts or an Arrow column, not {texts!r:.60}; "
                "for one document, call match_xml"
            )
        return self.match_batch(DocumentEvents(texts, limits), now=now)

    def match_batch(
        self,
        events: EventSource | Iterable[object] | pa.RecordBatch | pa.Table,
        *,
        now: float | None = None,
        budget: MatchingBudget | None = None,
    ) -> Matches:
        """Return for each event, or each row of an Arrow table, the subscriptions it satisfies.

        Expiry is judged at `now`, in seconds since 1970; without it, by the engine's clock. Without
        a budget the answer is complete; with one, except for its `undecided`.
        """
        # Take the segments first: a source omits attributes that they do not test.
        state = self._collection.state
        is_compiled = state.is_whole and not state.open
        segments = state.segments if is_compiled else self._collection.compiled()
        known, projection = self._projections.known
        if known is not segments:
            projection = self._projections.of(segments)
        moment = self._clock() if now is None else now
        leaves_residuals = self._leaves_residuals
        once = self._objects.once() if leaves_residuals else None
        if hasattr(events, "__arrow_c_stream__") or hasattr(events, "__arrow_c_array__"):
            from tamis.events.arrow import ArrowEvents  # noqa: PLC0415 - a costly import

            source: EventSource = ArrowEvents(events)
        elif isinstance(events, EventSource):
            source = events
        else:
            source = self._objects.source(events, once)
        check = ExactCheck(self._undecided, budget, once) if leaves_residuals else None
        matcher = BatchMatcher(segments, moment, self._threads, check, budget)
        return matcher.matches(source, projection)

    def compact(self) -> None:
        """Compile all subscriptions together; matching is fastest after that."""
        self._collection.compact()


def _encoded(text: object) -> bytes | None:
    """Return a text as UTF-8; None if it is none."""
    if type(text) is bytes:
        return text
    try:
        return text.encode() if type(text) is str else None
    except UnicodeEncodeError:
        return None


def _joined(parts: Iterable[list[Id] | None]) -> list[Id] | None:
    """Return some lists as one; None if any of them is."""
    found: list[Id] = []
    for part in parts:
        if part is None:
            return None
        # Mostly there is one, which may be long.
        found = found + part if found else part
    return found

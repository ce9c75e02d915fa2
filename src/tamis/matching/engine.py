"""The engine: add and remove subscriptions, and match events against all of them.

One writer, many readers: all that readers use is in one immutable tuple of segments, which the
writer replaces. A reader takes it once and does not see later changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as AnyCollection
from datetime import datetime
from functools import cached_property
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from tamis.analysis.explain import Explanation, explain
from tamis.analysis.lint import Findings, LintedFilter, LintLimits, lint
from tamis.diagrams.pictures import Picture
from tamis.errors import EventError, FilterError, TamisError
from tamis.events import Event, EventLimits, Schema, decode_json
from tamis.events.batch import (
    EVENTS_PER_BATCH,
    LIMITS,
    Admission,
    Column,
    EventObjects,
    EventSource,
    Projection,
    is_arrow,
)
from tamis.events.columns import joined
from tamis.events.gathering import HoldsAttributes, gather_checked, is_object
from tamis.events.json_source import JsonLineEvents, JsonLinesData, reader_of
from tamis.events.json_text import require_json_text
from tamis.events.kinds import Value
from tamis.filters import Filter, FilterLimits, Id, Mode
from tamis.filters.any_text import text_attributes
from tamis.filters.element_bounds import ElementResidual, bound_mode, element_translation
from tamis.filters.element_test import has_element_tests
from tamis.filters.modes import UNKNOWN, View, as_mode, require_schema
from tamis.filters.printing import ANY
from tamis.filters.translations import ReadableResidual, Residual, Translatable, Translation
from tamis.languages import QUERY_LANGUAGES, translate
from tamis.matching.compile.programs import compile_filter, decompile
from tamis.matching.compile.texts import TextCompiler
from tamis.matching.compile.vocabulary import Vocabulary
from tamis.matching.evaluate.metering import MatchingBudget
from tamis.matching.matches import LineMatches, MatchedBatch, Matches
from tamis.matching.residuals import EventsAsGiven, ResidualIndex
from tamis.matching.store import snapshot
from tamis.matching.store.additions import Addition
from tamis.matching.store.collection import Collection, CollectionState
from tamis.matching.store.segments import CompiledSubscription, Segment
from tamis.matching.subscriptions import (
    NEVER,
    Added,
    Rejected,
    Subscription,
    id_of,
    plain_rows,
    plain_text,
    seconds_of,
    subscription_of,
)
from tamis.units import count

if TYPE_CHECKING:
    import pyarrow as pa

    from tamis.objects.source import ObjectReader
    from tamis.xml import Document, XMLLimits

# Filters given as texts are compiled together if they are many: kernels take time to load.
MIN_TEXTS: Final = 1_024
# Together they take some megabytes.
ROWS_PER_BATCH: Final = 8_192

GivenRow = TypeVar("GivenRow")


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
        nothing = Projection(frozenset(), schema, total=self._total)
        self._projected: tuple[tuple[Segment, ...], Projection] = (), nothing
        """Segments, and what they want of events."""
        self._residuals: Mapping[Id, Residual] = {}
        """What is left to check, by subscription; replaced as a whole, never changed.

        Whoever adds a residual does so before its subscription, and whoever removes one, after. A
        reader takes the residuals first, and again if they have changed until it has the
        subscriptions; then it decides as before or as after the change.
        """
        self._residual_index = ResidualIndex()
        self._objects = _Objects(self._tested_attributes)

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
        entry, translation = self._compiled_alone(given, vocabulary)
        if translation.residual is None or entry.id in self._collection:
            self._collection.add(entry, translation.filter)
            return
        self._residuals = {**self._residuals, entry.id: translation.residual}
        self._collection.add(entry, translation.filter)

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
            for batch in _batches(_rows(subscriptions)):
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
            self._forget_residual(id_)

    def _forget_residual(self, id_: Id) -> None:
        if id_ in self._residuals:
            self._residuals = {known: one for known, one in self._residuals.items() if known != id_}

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
            entry, translation = self._compiled_alone(given, vocabulary)
            if translation.residual is not None and id_ in self._collection:
                self._residuals = {**self._residuals, id_: translation.residual}
            self._collection.replace(entry, translation.filter)
            if translation.residual is None:
                self._forget_residual(id_)

    def _compiled_alone(
        self, given: Subscription, vocabulary: Vocabulary
    ) -> tuple[CompiledSubscription, Translation]:
        if not isinstance(given.id, str | int) or isinstance(given.id, bool):
            raise FilterError(f"an id is a text or an integer, not {given.id!r:.60}")
        mode = self.mode if given.mode is None else as_mode(given.mode)
        if mode is Mode.TOTAL and self.mode is not Mode.TOTAL:
            raise FilterError(
                "mode 'total' is a promise about all events: give it to the engine, not to one "
                "subscription"
            )
        translation = self._translation(given, mode)
        is_query = isinstance(given.filter, str) and given.language in QUERY_LANGUAGES
        if isinstance(translation.residual, ElementResidual):
            mode = bound_mode(mode)
        elif is_query or not isinstance(given.filter, Filter | str):
            # What is translated says itself what absence means, and is translated to this mode.
            if given.mode is not None and mode is not Mode.SQL:
                raise FilterError(
                    f"mode {given.mode!r} is for filters over attributes: leave it out"
                )
            mode = Mode.SQL
        expires_at = seconds_of(given.expires_at)
        if is_query and self.schema is not None:
            raise FilterError(
                "a query over documents asks for places in them, which no schema declares; add it "
                "to an engine without a schema"
            )
        if translation.ways and self.schema is not None:
            raise FilterError(
                "a filter over objects is checked against their classes, and asks for more than a "
                "schema declares; add it to an engine without a schema"
            )
        codes = compile_filter(translation.filter, mode, vocabulary)
        entry = CompiledSubscription(given.id, np.array(codes, np.int32), mode, expires_at)
        if translation.ways:
            self._objects.reader.learn(translation.ways, self._collection.attributes)
        return entry, translation

    def _translation(self, given: Subscription, mode: Mode) -> Translation:
        if isinstance(given.filter, str):
            translation = translate(given.filter, given.language, limits=self._limits)
            return self._over_flat_events(translation, mode)
        if isinstance(given.filter, Filter):
            translation = Translation(given.filter)
        elif hasattr(type(given.filter), "__translation__"):
            translation = given.filter.__translation__()
        else:
            raise FilterError(f"a filter is a text or a Filter, not {given.filter!r:.60}")
        self._limits.check(translation.filter)
        return self._over_flat_events(translation, mode)

    def _over_flat_events(self, translation: Translation, mode: Mode) -> Translation:
        """Return a filter without tests of elements, which are left to check."""
        if translation.residual is not None or not has_element_tests(translation.filter):
            return translation
        return element_translation(translation.filter, mode, self.schema)

    def filter(self, id_: Id) -> tuple[Filter, Mode]:
        """Return a subscription's filter, bound to the schema, and its mode."""
        flat = self._flat_filter(id_)
        residual = self._residuals.get(id_)
        if isinstance(residual, ElementResidual):
            return residual.filter, residual.mode
        return flat

    def _flat_filter(self, id_: Id) -> tuple[Filter, Mode]:
        entry, vocabulary = self._collection.find(id_)
        return decompile(entry.program.tolist(), entry.mode, vocabulary), entry.mode

    def explain(self, id_: Id, event: object) -> Explanation:
        """Explain why an event satisfies a subscription or not, and what would change that.

        >>> engine = Engine()
        >>> engine.add("pc-watch", 'company in ("IBM", "Dell") and price <= 1000')
        >>> print(engine.explain("pc-watch", {"company": "IBM", "price": 1200}))
        'pc-watch' does not match:
        - price is 1200, so price <= 1000 is false: it needs at most 1000
        With price = 1000 it would match.
        """
        if isinstance(id_, Event | Mapping):
            raise FilterError("explain takes the id of a subscription first, and then the event")
        expired = self._collection.find(id_)[0].expires_at <= self._clock()
        (filter_, mode), given = self._flat_filter(id_), event
        residual = self._residuals.get(id_)
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
        )
        if residual is None:
            return found
        if not found.matched:
            # After a change, what is left to check might not hold.
            return found._replace(change=None, changed=None)
        matched = _holds(residual, event, event)
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
        ids = [id_ for id_ in self.ids() if self._collection.find(id_)[0].expires_at > now]
        ids = [id_ for id_ in ids if id_ not in self._residuals]
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
        with self._collection.changing:
            if self._residuals:
                raise FilterError(
                    f"the filter of {next(iter(self._residuals))!r} leaves something to check in "
                    "Python, which no snapshot can hold; remove it first, and add it after loading"
                )
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
        return engine

    # --- matching ----------------------------------------------------------------------------

    def match(self, event: object, *, budget: MatchingBudget | None = None) -> list[Id]:
        """Return the ids of the subscriptions that one event satisfies, in order of adding.

        An event is an `Event`, a mapping, or any object with public attributes.
        Without a budget the answer is complete; with one, except for its `undecided`.
        """
        while True:
            residuals = self._residuals
            now, state = self._clock(), self._collection.state
            if not state.is_whole:
                state = self._collection.whole()
            if budget is not None and state.is_metered:
                # What is not compiled cannot be measured test by test.
                state = CollectionState(state.vocabulary, self._collection.compiled())
            if residuals is self._residuals:
                break
        if (
            type(event) is dict
            and budget is None
            and not residuals
            and self._is_all_compiled(state)
        ):
            plain = _joined(segment.match_plain(event, now) for segment in state.segments)
            if plain is not None:
                return plain
        given = event
        # Most events come from a decoder that has checked them.
        if type(event) is not Event or event.conforms_to is not self.schema or self._total:
            event = self._admitted(event, state)
        found = [id_ for segment in state.segments for id_ in segment.match_one(event, now, budget)]
        view = View(event, UNKNOWN[Mode.SQL], self.schema)
        for entry, filter_ in state.open:
            if entry.mode is Mode.SQL:
                is_satisfied = filter_.truth_in(view) is True
            else:
                is_satisfied = self._satisfies(event, filter_, entry.mode)
            if is_satisfied and entry.expires_at > now:
                found.append(entry.id)
        if residuals:
            found = [
                id_ for id_ in found if id_ not in residuals or _holds(residuals[id_], given, event)
            ]
        return found

    def _admitted(self, given: Any, state: CollectionState) -> Event:
        """Return an event that is checked; of an object, with the attributes that filters want."""
        if not isinstance(given, Mapping) and is_object(given):
            known, projection = self._projected
            if known is not state.segments:
                projection = self._project(state.segments)
            wanted = projection.wanted
            if wanted is not None and (state.open or self.schema):
                tested = (one.filter.attributes() for one in state.open)
                wanted = wanted.union(*tested, self.schema or ())
                wanted = None if ANY in wanted else wanted
            given = self._objects.event(given, wanted)
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
        residuals, state = self._residuals, self._collection.state
        is_checked = residuals or residuals is not self._residuals
        if state.open or not state.is_whole or is_checked:
            # Uncompiled filters, and what is left to check, want to see the whole event.
            return self.match(decode_json(text, schema=self.schema, limits=limits))
        now = self._clock()
        data = _encoded(text) if limits is None and self._is_all_compiled(state) else None
        if data is not None:
            found = _joined(segment.match_json(data, now) for segment in state.segments)
            if found is not None:
                return found
        known, projection = self._projected
        if known is not state.segments:
            projection = self._project(state.segments)
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
        residuals, segments = self._residuals, self._collection.compiled()
        while residuals is not self._residuals:
            residuals, segments = self._residuals, self._collection.compiled()
        checks = self._residual_index.of(segments, residuals) if residuals else ()
        known, projection = self._projected
        if known is not segments:
            projection = self._project(segments)
        moment = self._clock() if now is None else now
        if hasattr(events, "__arrow_c_stream__") or hasattr(events, "__arrow_c_array__"):
            from tamis.events.arrow import ArrowEvents  # noqa: PLC0415 - a costly import

            source: EventSource = ArrowEvents(events)
        else:
            source = events if isinstance(events, EventSource) else self._objects.source(events)
        most = min((segment.evaluator.max_events for segment in segments), default=EVENTS_PER_BATCH)
        found: list[MatchedBatch] = []
        errors: dict[int, TamisError] = {}
        count = 0
        for batch in source.event_batches(projection):
            for first in range(0, batch.length, most):
                part = batch
                if batch.length > most:
                    part = batch.part(first, min(first + most, batch.length))
                # The bits of one batch are bounded; of many, they would not be.
                if len(found) == 1:
                    found[0] = found[0].condensed()
                matches = []
                for number, segment in enumerate(segments):
                    meter = None
                    if budget is not None and segment.evaluator.is_metered:
                        meter = segment.meter(budget, count)
                    matched_rows = segment.evaluator.evaluate(part, self._threads, meter)
                    if checks:
                        events_at = EventsAsGiven(part)
                        matched_rows = checks[number].checked(matched_rows, events_at)
                    matches.append(matched_rows)
                matched = MatchedBatch(part.length, matches)
                found.append(matched.condensed() if found else matched)
                errors.update((count + number, error) for number, error in part.errors.items())
                count += part.length
        return Matches(count, [segment.matched(moment) for segment in segments], found, errors)

    def _project(self, segments: tuple[Segment, ...]) -> Projection:
        """Return what other segments want of events; the same object unless that differs."""
        _, projection = self._projected
        asked = (segment.evaluator.compiled.variables.attributes for segment in segments)
        left = [one for one in self._residuals.values() if isinstance(one, ElementResidual)]
        mentioned = frozenset[str]().union(*asked, *(one.filter.attributes() for one in left))
        wanted: frozenset[str] | None = mentioned
        named = None
        tests_any = any(s.evaluator.compiled.variables.tests_any for s in segments)
        if tests_any or ANY in mentioned:
            mentioned -= {ANY}
            if self.schema is None:
                wanted, named = None, mentioned
            else:
                wanted = mentioned.union(text_attributes(self.schema))
        if (wanted, named) != (projection.wanted, projection.named):
            projection = Projection(wanted, self.schema, total=self._total, named=named)
        self._projected = segments, projection
        return projection

    def compact(self) -> None:
        """Compile all subscriptions together; matching is fastest after that."""
        self._collection.compact()


class _Objects:
    """What an engine needs once it meets an object that is no mapping; most never do."""

    def __init__(self, names: Callable[[], AnyCollection[str]]) -> None:
        self._names = names
        """Returns the attributes that filters ask for."""

    @cached_property
    def reader(self) -> ObjectReader:
        """Return what finds attributes in objects."""
        from tamis.objects.source import ObjectReader  # noqa: PLC0415 - only for objects

        return ObjectReader()

    def event(self, given: object, wanted: AnyCollection[str] | None) -> Event:
        """Return an object as an event that has the wanted attributes."""
        if isinstance(given, HoldsAttributes):
            return Event.of_checked(self._held(given, wanted))
        return self.reader.event(given, wanted)

    def _held(
        self, given: HoldsAttributes, wanted: AnyCollection[str] | None
    ) -> dict[str, tuple[Value, ...]]:
        found = given.__attributes__(wanted)
        # All attributes are those under plain names; filters may ask for others.
        return found if wanted is not None else {**found, **given.__attributes__(self._names())}

    def columns(
        self,
        objects: Sequence[object],
        numbers: NDArray[np.int32],
        wanted: AnyCollection[str] | None,
    ) -> dict[str, Column]:
        """Return the wanted attributes of objects, given the number of each."""
        own = [place for place, each in enumerate(objects) if isinstance(each, HoldsAttributes)]
        if not own:
            return self.reader.columns(objects, numbers, wanted)
        events = [self.event(objects[place], wanted) for place in own]
        found = gather_checked(events, numbers[own].tolist(), wanted)
        if len(own) == len(objects):
            return found
        is_own = set(own)
        others = [place for place in range(len(objects)) if place not in is_own]
        left = self.reader.columns([objects[place] for place in others], numbers[others], wanted)
        names = dict.fromkeys((*found, *left))
        return {name: joined(found.get(name), left.get(name)) for name in names}

    def source(self, events: Any) -> EventObjects:
        """Return events and objects one by one as a source."""
        return EventObjects(_events(events), self)


def _holds(residual: Residual, given: object, event: object) -> bool:
    """Return whether what is left to check holds: elements are found once in the event."""
    return residual.holds(event if isinstance(residual, ElementResidual) else given)


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


def _rows(subscriptions: Any) -> Iterable[Subscription | Mapping[str, object]]:
    if isinstance(subscriptions, str | PathLike) or is_arrow(subscriptions):
        from tamis.matching.store.tables import rows_of  # noqa: PLC0415 - a costly import

        return rows_of(subscriptions)
    if not isinstance(subscriptions, Iterable):
        raise FilterError(
            "subscriptions are an iterable, an Arrow table or the name of a Parquet file, "
            f"not {subscriptions!r:.60}"
        )
    return cast("Iterable[Subscription | Mapping[str, object]]", subscriptions)


def _batches(rows: Iterable[GivenRow]) -> Iterator[list[GivenRow]]:
    """Yield some rows at a time; if there is an error on the way, those before it first."""
    left, failure = iter(rows), None
    batch: list[GivenRow] = []
    while failure is None:
        batch = []
        try:
            batch.extend(islice(left, ROWS_PER_BATCH))
        except BaseException as error:
            failure = error
        yield batch
        if failure is None and len(batch) < ROWS_PER_BATCH:
            return
    raise failure


def _events(given: Any) -> Iterable[Event | Mapping[str, object]]:
    if isinstance(given, Mapping):
        raise EventError("this is one event: call match, or put it in a list")
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise EventError(f"events are an iterable of events or an Arrow table, not {given!r:.60}")
    return given

"""Relations between filters: covering, intersection, equivalence, tautology, contradiction.

Each question becomes the search for an event: `wide` covers `narrow` unless an event matches
`narrow` and not `wide`. The diagram either proves that there is none, or leads to an event, which
the oracle confirms. Where it does neither (with text predicates that overlap in ways the diagram
does not see, with arithmetic, or when the budget is spent), the answer is the safe one, and is
marked as not exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import combinations
from typing import Any, Final, NamedTuple, TypedDict, Unpack

from tamis.diagrams.diagram import BudgetExceededError
from tamis.diagrams.encoding import Encoding
from tamis.diagrams.kernels import FALSE
from tamis.diagrams.witness import find_witness
from tamis.events import Event, Schema
from tamis.filters import Filter, Mode
from tamis.filters.boolean import require_filter
from tamis.filters.element_bounds import upper_bound
from tamis.filters.element_test import has_element_tests
from tamis.filters.modes import as_mode, require_schema
from tamis.filters.translations import Relatable, translation_of
from tamis.html_text import html_escaped, html_table

# Steps for one question, about a second at most. Ordinary filters take a few hundred.
BUDGET_STEPS: Final = 200_000


class Answer(NamedTuple):
    """Yes or no (also as its truth value), whether that is exact, and an event as evidence."""

    yes: bool
    exact: bool = True
    event: Event | None = None
    reason: str = ""

    def __bool__(self) -> bool:
        return self.yes

    def witness(self) -> Event | None:
        """Return an event that shows the difference or the intersection, if there is one."""
        return self.event

    def __repr__(self) -> str:
        word = "yes" if self.yes else "no"
        if not self.exact:
            return f"<{word}, to be safe: {self.reason}>"
        return f"<{word}: {self.event!r}>" if self.event is not None else f"<{word}>"


class RelationOptions(TypedDict, total=False):
    """The keyword arguments of the relations; see `Space`."""

    mode: str
    schema: Schema | None
    many: bool
    budget: int


class Space:
    """The events that a question is about: those of a mode and schema.

    Without a schema, attributes hold one value each, or several with `many=True`. A schema declares
    it for each attribute.
    """

    def __init__(
        self,
        mode: str = Mode.SQL,
        schema: Schema | None = None,
        *,
        many: bool = False,
        budget: int = BUDGET_STEPS,
    ) -> None:
        self._mode = as_mode(mode)
        require_schema(self._mode, schema)
        self._schema = schema
        self._many = many
        self._budget = budget

    def covers(self, wide: Relatable, narrow: Relatable) -> Answer:
        """Return whether every event that matches `narrow` matches `wide`; unsure is no."""
        return self._none((narrow, True), (wide, False))

    def surely_covers(self, wide: Relatable, narrow: Relatable) -> bool:
        """Return what `covers` answers, without the search for a witness."""
        return self._impossible((narrow, True), (wide, False))

    def surely_disjoint(self, one: Relatable, other: Relatable) -> bool:
        """Return the opposite of what `intersects` answers, without the search for a witness."""
        return self._impossible((one, True), (other, True))

    def intersects(self, one: Relatable, other: Relatable) -> Answer:
        """Return whether some event matches both; unsure is yes."""
        none = self._none((one, True), (other, True))
        return none._replace(yes=not none.yes)

    def equivalent(self, one: Relatable, other: Relatable) -> Answer:
        """Return whether the same events match both; unsure is no."""
        first = self.covers(one, other)
        if not first.exact or first.yes:
            second = self.covers(other, one)
            return second if first.yes or second.event is not None else first
        return first

    def is_always(self, filter_: Relatable) -> Answer:
        """Return whether every event matches; unsure is no."""
        return self._none((filter_, False))

    def is_never(self, filter_: Relatable) -> Answer:
        """Return whether no event matches; unsure is no."""
        return self._none((filter_, True))

    def _none(self, *wanted: tuple[Relatable, bool]) -> Answer:
        """Return whether no event matches exactly the wanted filters; unsure is no."""
        if not _are_filters(wanted):
            return self._none_translated(wanted)
        if any(has_element_tests(require_filter(filter_)) for filter_, _ in wanted):
            return self._none_of_elements(wanted)
        bound, encoding = self._encoded(*wanted)
        try:
            root = encoding.matching_just(bound)
        except BudgetExceededError:
            return Answer(False, False, reason=f"the work exceeded its budget of {self._budget:,}")
        if root == FALSE:
            return Answer(True)

        def is_witness(event: Event) -> bool:
            return all(
                filter_.matches(event, self._mode, self._schema) is matching
                for filter_, matching in bound
            )

        event = find_witness(encoding, root, is_witness)
        if event is not None:
            return Answer(False, event=event)
        return Answer(False, False, reason="no witness was found, but none is ruled out")

    def _none_translated(self, wanted: Sequence[tuple[Relatable, bool]]) -> Answer:
        """Answer for filters that are translated: from above, where something is left to check."""
        translated = [(translation_of(given), truth) for given, truth in wanted]
        if any(one == other and a is not b for (one, a), (other, b) in combinations(translated, 2)):
            return Answer(True)
        # Without what is left to check, more may match, and nothing is known to match less.
        bounds = [(t.filter, truth) for t, truth in translated if truth or t.residual is None]
        unsure = Answer(False, False, reason="what a filter leaves to check is not compared")
        if not bounds:
            return unsure
        # Objects have collections, and their filters say themselves what absence means.
        answer = Space(Mode.SQL, many=True, budget=self._budget)._none(*bounds)  # noqa: SLF001
        return unsure if not answer.yes and any(t.residual for t, _ in translated) else answer

    def _none_of_elements(self, wanted: Sequence[tuple[Any, bool]]) -> Answer:
        """Answer for filters that test elements: from above, by what they say of flat events."""
        for filter_, _ in wanted:
            self._bind(filter_)
        if any(one == other and a is not b for (one, a), (other, b) in combinations(wanted, 2)):
            return Answer(True)
        bounds = [
            (upper_bound(filter_, self._mode) if truth else filter_, truth)
            for filter_, truth in wanted
            if truth or not has_element_tests(filter_)
        ]
        unsure = Answer(False, False, reason="tests of elements are not compared")
        # What `strict` asks of elements is not what it asks of a flat event.
        if not bounds or self._mode is Mode.STRICT:
            return unsure
        # A list of elements holds several values of each attribute.
        space = Space(self._mode, self._schema, many=True, budget=self._budget)
        return Answer(True) if space._impossible(*bounds) else unsure

    def _impossible(self, *wanted: tuple[Relatable, bool]) -> bool:
        """Return whether it is proved that no event matches exactly the wanted filters."""
        if not _are_filters(wanted):
            return self._none_translated(wanted).yes
        if any(has_element_tests(require_filter(filter_)) for filter_, _ in wanted):
            return self._none_of_elements(wanted).yes
        bound, encoding = self._encoded(*wanted)
        try:
            return encoding.matching_just(bound) == FALSE
        except BudgetExceededError:
            return False

    def _encoded(self, *wanted: tuple[Any, bool]) -> tuple[list[tuple[Filter, bool]], Encoding]:
        bound = [(self._bind(filter_), matching) for filter_, matching in wanted]
        filters = [filter_ for filter_, _ in bound]
        encoding = Encoding(filters, self._mode, self._schema, many=self._many, budget=self._budget)
        return bound, encoding

    def _bind(self, filter_: object) -> Filter:
        checked = require_filter(filter_)
        return checked if self._schema is None else checked.bind(self._schema)


def _are_filters(wanted: Sequence[tuple[Relatable, bool]]) -> bool:
    return not any(hasattr(type(given), "__translation__") for given, _ in wanted)


def covers(wide: Relatable, narrow: Relatable, **options: Unpack[RelationOptions]) -> Answer:
    """Return whether every event that matches `narrow` matches `wide`; unsure is no.

    >>> from tamis.filters import attr
    >>> covers(attr("price") < 10, attr("price") < 5)
    <yes>
    >>> covers(attr("price") < 5, attr("price") < 10)
    <no: Event({'price': 5})>
    """
    return Space(**options).covers(wide, narrow)


def intersects(one: Relatable, other: Relatable, **options: Unpack[RelationOptions]) -> Answer:
    """Return whether some event matches both filters; unsure is yes.

    >>> from tamis.filters import attr
    >>> intersects(attr("price") < 10, attr("name").starts_with("I"))
    <yes: Event({'price': 0, 'name': 'I'})>
    """
    return Space(**options).intersects(one, other)


def equivalent(one: Relatable, other: Relatable, **options: Unpack[RelationOptions]) -> Answer:
    """Return whether the same events match both filters; unsure is no."""
    return Space(**options).equivalent(one, other)


def is_always(filter_: Relatable, **options: Unpack[RelationOptions]) -> Answer:
    """Return whether every event matches; unsure is no."""
    return Space(**options).is_always(filter_)


def is_never(filter_: Relatable, **options: Unpack[RelationOptions]) -> Answer:
    """Return whether no event matches; unsure is no."""
    return Space(**options).is_never(filter_)


class Relationship(Enum):
    """How the events of one filter relate to those of another, in words."""

    EQUAL = "matches the same events as"
    COVERS = "covers"
    COVERED = "is covered by"
    OVERLAPS = "overlaps with"
    DISJOINT = "is disjoint from"


class Comparison(NamedTuple):
    """The relationship of two filters, with the answers it follows from."""

    relationship: Relationship
    covers: Answer
    covered: Answer
    meets: Answer

    @property
    def exact(self) -> bool:
        """Return whether all three answers are exact."""
        return self.covers.exact and self.covered.exact and self.meets.exact

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        questions = ("the first covers the second", "the second covers the first", "they intersect")
        answers = (self.covers, self.covered, self.meets)
        rows = (
            (html_escaped(question), "yes" if answer else "no", "yes" if answer.exact else "no")
            for question, answer in zip(questions, answers, strict=True)
        )
        head = f"<p>The first filter <b>{html_escaped(self.relationship.value)}</b> the second.</p>"
        return head + html_table(("question", "answer", "exact"), rows, 3, "questions")


def compare(one: Relatable, other: Relatable, **options: Unpack[RelationOptions]) -> Comparison:
    """Return how two filters relate, with events that match only one of them, and both.

    >>> from tamis.filters import attr
    >>> found = compare(attr("price") < 10, attr("price").between(5, 20))
    >>> found.relationship.value
    'overlaps with'
    >>> found.covers.witness(), found.covered.witness(), found.meets.witness()
    (Event({'price': 10}), Event({'price': 0}), Event({'price': 5}))
    """
    space = Space(**options)
    covering, covered = space.covers(one, other), space.covers(other, one)
    meets = space.intersects(one, other)
    if covering and covered:
        relationship = Relationship.EQUAL
    elif covering or covered:
        relationship = Relationship.COVERS if covering else Relationship.COVERED
    else:
        relationship = Relationship.OVERLAPS if meets else Relationship.DISJOINT
    return Comparison(relationship, covering, covered, meets)

"""Lint: valid filters that look like mistakes.

The diagram of each filter shows whether it can be true and can be false, with an event for each.
Filters with equal diagrams match the same events, so hashing finds these. Only covering needs
pairs; required values and the events refute most of them, and the rest is decided within a limit.
Filters for which no event was found come last, so that they use up nobody else's share. Among many
filters, a covering index knows the answers about all pairs that have exact ones.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import chain, islice
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypedDict

from tamis.analysis.counterfactuals import near_misses, satisfies
from tamis.analysis.pinned_values import PinIndex, Requirements
from tamis.analysis.redundancy import RedundantPart, brief_filter, redundant_parts
from tamis.analysis.rules import LintRule
from tamis.covering import CoveringIndex
from tamis.diagrams import Answer, Space
from tamis.diagrams.atom_intervals import TextPredicate
from tamis.diagrams.diagram import BudgetExceededError, Node
from tamis.diagrams.encoding import Encoding
from tamis.diagrams.kernels import FALSE, TRUE
from tamis.diagrams.variable_order import Variable
from tamis.diagrams.witness import Values, find_witness
from tamis.events import Event, Schema
from tamis.events.event import NOTHING_NESTED
from tamis.filters import Filter, Id, Mode
from tamis.filters.atoms import Between, Compare, HasKind, In, Present
from tamis.filters.element_test import has_element_tests
from tamis.filters.printing import ANY
from tamis.filters.simplify import simplify
from tamis.html_text import html_code, html_escaped, html_table

# Steps for one question, some milliseconds. Ordinary filters take a few hundred.
BUDGET_STEPS: Final = 20_000
# Limits on filters, on pairs to decide, and on pairs to refute by events.
MAX_FILTERS: Final = 10_000
MAX_PAIRS: Final = 5_000
MAX_REFUTATIONS: Final = 500_000
# Larger diagrams are not hashed.
MAX_HASHED_NODES: Final = 2_000
EXAMPLES_PER_MATCH: Final = 256
# Fewer filters are compared sooner than they are put into an index.
INDEXED_FROM: Final = 100
# Ids that a sentence lists.
MAX_IDS_SHOWN: Final = 3

_ADDED: Final = (Present, HasKind)
_INDEXED: Final = (Compare, Between, In, Present, HasKind)

UNLESS_SEVERAL: Final = ", unless an attribute holds several values"


class MatchedIds(Protocol):
    """For each event of a batch, the ids of the filters that it satisfies."""

    @property
    def errors(self) -> Mapping[int, Exception]:
        """Return the errors of refused events."""

    def __getitem__(self, number: int, /) -> list[Id]: ...


MatchBatch = Callable[[Sequence[Event]], MatchedIds]
"""The engine's `match_batch`, which this room may not import."""


class Finding(NamedTuple):
    """A remark about one filter, possibly in relation to another."""

    id: Id
    rule: LintRule
    message: str
    other: Id | None = None

    def __str__(self) -> str:
        return f"{self.id!r}: {self.message}"


class Findings(Sequence[Finding]):
    """All findings, and the counts of what was skipped."""

    def __init__(
        self,
        found: Iterable[Finding],
        *,
        unseen: int = 0,
        unasked: Mapping[Id, int] = MappingProxyType({}),
        open_: int = 0,
    ) -> None:
        self._found = tuple(found)
        self.unseen: Final = unseen
        """Filters that were not checked."""
        self.unasked_of: Final = unasked
        """For some filters, with how many others they were not compared."""
        self.unasked: Final = sum(unasked.values())
        """Pairs that were not compared."""
        self.open: Final = open_
        """Questions without an exact answer."""

    def __len__(self) -> int:
        return len(self._found)

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        rows = (
            (html_code(repr(one.id)), html_escaped(one.rule), html_escaped(one.message))
            for one in self._found
        )
        counts = f"{self.unseen:,} filters not checked, {self.unasked:,} pairs not compared"
        left = f"<p>{counts}, {self.open:,} questions open</p>"
        is_all = not (self.unseen or self.unasked or self.open)
        found = html_table(("filter", "rule", "finding"), rows, len(self), "findings")
        return (found if self._found else "<p>no findings</p>") + ("" if is_all else left)

    def __getitem__(self, number: int) -> Finding:  # type: ignore[override]
        return self._found[number]

    def __repr__(self) -> str:
        return f"<Findings: {'; '.join(str(self).splitlines())}>"

    def __str__(self) -> str:
        return "\n".join([*map(str, self._found), *self._left_out()] or ["no problems found"])

    def _left_out(self) -> Iterator[str]:
        if self.unseen:
            yield f"{_count(self.unseen, 'filter was', 'filters were')} not looked at"
        if self.unasked:
            yield (
                f"{_count(self.unasked, 'pair was', 'pairs were')} skipped for the budget, so "
                f"{brief_ids(self.unasked_of)} may be covered by others"
            )
        if self.open:
            yield (
                f"{_count(self.open, 'question', 'questions')} stayed open, so there may be more "
                "to find"
            )


def brief_ids(ids: Collection[Id]) -> str:
    """Return some ids in words.

    >>> brief_ids(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more filters'
    """
    shown = [str(id_) for id_ in islice(ids, MAX_IDS_SHOWN)]
    more = len(ids) - len(shown)
    rest = f" and {_count(more, 'more filter', 'more filters')}" if more else ""
    return ", ".join(shown) + rest


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


class LintedFilter(NamedTuple):
    """A filter to check, bound to the schema if there is one."""

    id: Id
    filter: Filter
    mode: Mode


class FilterProfile(NamedTuple):
    """What the diagram of a filter shows."""

    verdict: LintRule | None = None
    """Never or always true."""
    key: Hashable = None
    """Filters of one mode with equal keys match the same events; None is no key."""
    example: Event | None = None


class LintLimits(TypedDict, total=False):
    """The keyword arguments that bound the work of `lint`."""

    filters: int
    """Filters to examine."""
    pairs: int
    """Pairs to compare that no required value and no event rules out."""
    steps: int
    """Steps for one question."""


def lint(
    subjects: Iterable[LintedFilter],
    schema: Schema | None,
    match: MatchBatch,
    *,
    count: int,
    filters: int = MAX_FILTERS,
    pairs: int = MAX_PAIRS,
    steps: int = BUDGET_STEPS,
) -> Findings:
    """Check some of `count` filters, with at most this many steps for each question."""
    linter = Linter(schema, match=match, steps=steps)
    seen = list(islice(subjects, filters))
    findings, distinct = linter.look_at_each(seen)
    findings += linter.look_at_pairs(distinct, pairs)
    order = {subject.id: number for number, subject in enumerate(seen)}
    findings.sort(key=lambda finding: order[finding.id])
    return Findings(
        findings, unseen=count - len(seen), unasked=linter.unasked, open_=linter.undecided
    )


class Linter:
    """A linter of filters, one by one and in pairs, over the events of a schema."""

    def __init__(
        self,
        schema: Schema | None,
        *,
        many: bool = False,
        match: MatchBatch | None = None,
        steps: int = BUDGET_STEPS,
    ) -> None:
        self._schema = schema
        self._many = many
        self._match = match
        self._steps = steps
        self._profiles: dict[Id, FilterProfile] = {}
        self._misses: dict[Id, list[tuple[str, Values]]] = {}
        self.undecided = 0
        self.unasked: dict[Id, int] = {}
        """For filters, with how many others they were not compared."""

    # --- one by one --------------------------------------------------------------------------

    def look_at_each(
        self, subjects: Iterable[LintedFilter]
    ) -> tuple[list[Finding], list[LintedFilter]]:
        """Return findings about single filters, and the filters worth comparing.

        A filter that equals another once simplified is not. Filters with tests of elements are not
        examined.
        """
        findings: list[Finding] = []
        distinct: dict[tuple[Mode, Filter], LintedFilter] = {}
        for one in subjects:
            if has_element_tests(one.filter):
                continue
            first = distinct.setdefault((one.mode, simplify(one.filter, one.mode)), one)
            repeats = first is not one
            profile = self._profiles[one.id] = (
                self._profiles[first.id] if repeats else self._profile(one)
            )
            if profile.verdict is not None:
                findings.append(self._alone(one, profile.verdict))
            elif repeats:
                findings.append(_same(first, one, ""))
        return findings, [s for s in distinct.values() if self._profiles[s.id].verdict is None]

    def _alone(self, one: LintedFilter, rule: LintRule) -> Finding:
        def question(space: Space) -> Answer:
            never = rule is LintRule.NEVER
            return space.is_never(one.filter) if never else space.is_always(one.filter)

        what = "no event can match it" if rule is LintRule.NEVER else "every event matches it"
        return Finding(one.id, rule, f"{what}{self._proviso(one.mode, question)}")

    def _profile(self, one: LintedFilter) -> FilterProfile:
        """Return the profile of a filter from its diagram."""
        encoding = _encoding(one, self._schema, many=self._many, steps=self._steps)
        diagram = encoding.diagram
        try:
            node = encoding.matches(one.filter)
            possible = encoding.possible()
            matching = diagram.both(possible, node)
            other = diagram.both(possible, diagram.negate(node))
        except BudgetExceededError:
            self.undecided += 1
            return FilterProfile()
        if FALSE in (matching, other):
            return FilterProfile(LintRule.NEVER if matching == FALSE else LintRule.ALWAYS)
        example = find_witness(encoding, matching, lambda event: self._matches(one, event))
        counterexample = find_witness(encoding, other, lambda event: not self._matches(one, event))
        self.undecided += (example is None) + (counterexample is None)
        # What is tested of any other attribute depends on those that the filter mentions.
        key = None if ANY in one.filter.attributes() else _key(encoding, node)
        return FilterProfile(None, key, example)

    def look_at_parts(self, one: LintedFilter, *, translated: bool = False) -> Iterator[Finding]:
        """Yield findings about parts of a filter that never decide.

        A filter that is `translated`, from JMS, has tests of kinds and presence that nobody wrote.
        """
        if self._profiles[one.id].verdict is not None:
            return
        parts = self._redundant(one, many=self._many)
        unless = "" if self._many or self._schema is not None else UNLESS_SEVERAL
        always = self._redundant(one, many=True) if parts and unless else parts
        for found in parts:
            if translated and all(isinstance(atom, _ADDED) for atom in found.part.atoms()):
                continue
            proviso = "" if found.part in (other.part for other in always) else unless
            shown = brief_filter(found.part)
            message = f"{shown} adds nothing: {found.reason}{proviso}"
            yield Finding(one.id, LintRule.REDUNDANT, message)

    def _redundant(self, one: LintedFilter, *, many: bool) -> list[RedundantPart]:
        encoding = _encoding(one, self._schema, many=many, steps=self._steps)
        report = redundant_parts(one.filter, encoding)
        self.undecided += not report.complete
        return report.parts

    # --- pairs -------------------------------------------------------------------------------

    def look_at_pairs(
        self, subjects: Sequence[LintedFilter], limit: int, *, every: bool = False
    ) -> Iterator[Finding]:
        """Yield findings about filters that are equivalent to another, or covered by one.

        A filter is reported with one that covers it or, with `every`, with all of them.
        """
        first_of: dict[Hashable, LintedFilter] = {}
        compared: list[LintedFilter] = []
        for one in subjects:
            key = self._profiles[one.id].key
            first = one if key is None else first_of.setdefault((one.mode, key), one)
            if first is not one:
                yield _same(first, one, self._proviso_of_same(first, one))
            if first is one or every:
                compared.append(one)
        yield from self._compare(compared, limit, every=every)

    def _compare(
        self, subjects: Sequence[LintedFilter], limit: int, *, every: bool
    ) -> Iterator[Finding]:
        order = {one.id: number for number, one in enumerate(subjects)}
        known_same: set[tuple[Id, Id]] = set()
        glances = MAX_REFUTATIONS
        for narrow, candidates in self._candidates(subjects):
            for wide, is_known in candidates:
                if (narrow.id, wide.id) in known_same or self._are_same(wide, narrow):
                    continue
                if not is_known:
                    glances -= 1
                    if glances >= 0 and self._is_refuted(wide, narrow):
                        continue
                if (not is_known or every) and (limit <= 0 or glances < 0):
                    self.unasked[narrow.id] = self.unasked.get(narrow.id, 0) + 1
                    continue
                limit -= not is_known or every
                finding = self._ask(wide, narrow, swapped=order[wide.id] > order[narrow.id])
                if finding is None:
                    continue
                yield finding
                if finding.rule is LintRule.SAME:
                    known_same.add((wide.id, narrow.id))
                elif not every:
                    break

    def _ask(self, wide: LintedFilter, narrow: LintedFilter, *, swapped: bool) -> Finding | None:
        """Return the finding if a filter covers another; `swapped` if the wide one comes later."""
        answer = self._covers(wide, narrow)
        if not answer:
            return None
        if not self._is_refuted(narrow, wide):
            back = self._covers(narrow, wide)
            if back:
                first, second = (narrow, wide) if swapped else (wide, narrow)
                return _same(first, second, answer.reason or back.reason)
        return _covered(wide, narrow, answer.reason)

    def _proviso_of_same(self, first: LintedFilter, second: LintedFilter) -> str:
        return self._proviso(
            first.mode, lambda space: space.equivalent(first.filter, second.filter)
        )

    def _covers(self, wide: LintedFilter, narrow: LintedFilter) -> Answer:
        """Return whether a filter covers another; the reason of a yes is its proviso.

        Unsure is no.
        """

        def question(space: Space) -> Answer:
            return space.covers(wide.filter, narrow.filter)

        answer = question(Space(wide.mode, self._schema, many=self._many, budget=self._steps))
        self.undecided += not answer.exact
        return answer._replace(reason=self._proviso(wide.mode, question)) if answer else answer

    def _are_same(self, one: LintedFilter, other: LintedFilter) -> bool:
        """Return whether two filters have the same key: they are equivalent, which was reported."""
        key = self._profiles[one.id].key
        return key is not None and key == self._profiles[other.id].key

    def _is_refuted(self, wide: LintedFilter, narrow: LintedFilter) -> bool:
        """Return whether an event refutes that a filter covers another."""
        if self._are_same(wide, narrow):
            return True
        example = self._profiles[narrow.id].example
        if example is None:
            return False
        return not self._matches(wide, example) or any(
            self._matches(narrow, event) and not self._matches(wide, event)
            for event in self._variations(example, wide)
        )

    def _variations(self, example: Event, wide: LintedFilter) -> Iterator[Event]:
        """Yield an example with one attribute changed so that a wide filter just fails to match."""
        if wide.id not in self._misses:
            own = self._profiles[wide.id].example
            self._misses[wide.id] = (
                [] if own is None else near_misses(wide.filter, wide.mode, own, self._schema)
            )
        for name, values in self._misses[wide.id]:
            held = {**example, name: values}
            yield Event.of_checked({n: v for n, v in held.items() if v}, nested=NOTHING_NESTED)

    def _matches(self, one: LintedFilter, event: Event) -> bool:
        return satisfies(one.filter, one.mode, event, self._schema)

    def _proviso(self, mode: Mode, question: Callable[[Space], Answer]) -> str:
        """Return the proviso of a yes where no schema says how many values attributes hold."""
        if self._schema is not None or self._many:
            return ""
        return "" if question(Space(mode, many=True, budget=self._steps)) else UNLESS_SEVERAL

    def _candidates(
        self, subjects: Sequence[LintedFilter]
    ) -> Iterator[tuple[LintedFilter, Iterable[tuple[LintedFilter, bool]]]]:
        """Yield each filter with those that may cover it, and whether they are known to.

        Those without an example come last.
        """
        by_id = {one.id: one for one in subjects}
        requirements = {one.id: Requirements.of(one.filter) for one in subjects}
        pins = PinIndex(requirements, self._schema, many=self._many)
        easy = [one for one in subjects if self._profiles[one.id].example is not None]
        hard = [one for one in subjects if self._profiles[one.id].example is None]
        coverings = self._coverings(subjects)
        for narrow, ids in chain(
            self._matched(easy, pins), ((one, pins.may_cover(one.id, one.mode)) for one in hard)
        ):
            wide = (by_id[id_] for id_ in ids if id_ in by_id)
            others = (one for one in wide if one.mode is narrow.mode and one is not narrow)
            known = coverings.get(narrow.mode)
            yield narrow, known.among(narrow, others) if known else ((one, False) for one in others)

    def _coverings(self, subjects: Sequence[LintedFilter]) -> Mapping[Mode, KnownCoverings]:
        """Return what is known of the filters of each mode that has many."""
        by_mode: dict[Mode, list[LintedFilter]] = {}
        for one in subjects:
            # Others seldom have exact answers, and take the index long.
            if all(isinstance(atom, _INDEXED) for atom in one.filter.atoms()):
                by_mode.setdefault(one.mode, []).append(one)
        return {
            mode: KnownCoverings(
                own,
                CoveringIndex(mode=mode, schema=self._schema, many=self._many, budget=self._steps),
            )
            for mode, own in by_mode.items()
            if len(own) >= INDEXED_FROM
        }

    def _matched(
        self, subjects: Sequence[LintedFilter], pins: PinIndex
    ) -> Iterator[tuple[LintedFilter, Iterable[Id]]]:
        """Yield each filter with those that match its example, and so may cover it."""
        if self._match is None:
            yield from ((one, pins.may_cover(one.id, one.mode)) for one in subjects)
            return
        for first in range(0, len(subjects), EXAMPLES_PER_MATCH):
            some = subjects[first : first + EXAMPLES_PER_MATCH]
            matches = self._match([self._profiles[one.id].example or Event({}) for one in some])
            for number, one in enumerate(some):
                # An engine may refuse an example that its own schema does not admit.
                refused = number in matches.errors
                yield one, pins.may_cover(one.id, one.mode, None if refused else matches[number])


class KnownCoverings:
    """Which of many filters cover which, as far as a covering index has exact answers."""

    def __init__(self, subjects: Iterable[LintedFilter], index: CoveringIndex) -> None:
        self._index: Final = index
        self._is_exact: Final[dict[Id, bool]] = {}
        for one in subjects:
            index.add(one.id, one.filter)
            number = index.number_of(one.id)
            self._is_exact[one.id] = number is not None and index.is_regular(number)

    def among(
        self, narrow: LintedFilter, candidates: Iterable[LintedFilter]
    ) -> Iterator[tuple[LintedFilter, bool]]:
        """Yield those that may cover a filter, and whether they are known to."""
        if not self._is_exact.get(narrow.id):
            yield from ((one, False) for one in candidates)
            return
        covering = {*self._index.covering(narrow.filter)}
        for one in candidates:
            if not self._is_exact.get(one.id):
                yield one, False
            elif one.id in covering:
                yield one, True


def _same(first: LintedFilter, second: LintedFilter, proviso: str) -> Finding:
    message = f"it matches the same events as {first.id}{proviso}"
    return Finding(second.id, LintRule.SAME, message, first.id)


def _covered(wide: LintedFilter, narrow: LintedFilter, proviso: str) -> Finding:
    message = f"every event that matches it matches {wide.id} as well{proviso}"
    return Finding(narrow.id, LintRule.COVERED, message, wide.id)


# --- hashing ---------------------------------------------------------------------------------


def _encoding(one: LintedFilter, schema: Schema | None, *, many: bool, steps: int) -> Encoding:
    """Return the encoding of one filter, with an order of variables that is the same for all."""
    names = sorted(one.filter.attributes() - {ANY})
    atoms = sorted(set(one.filter.atoms()), key=str)
    return Encoding([*map(Present, names), *atoms], one.mode, schema, many=many, budget=steps)


def _key(encoding: Encoding, root: Node) -> Hashable:
    """Return a key that is equal for equal functions of the same variables.

    A variable has the same meaning in every filter, so filters with equal keys are equivalent. The
    converse holds where diagrams are exact and attributes hold one value; pairs find the rest.
    """
    diagram = encoding.diagram
    nodes = diagram.reachable(root)
    if len(nodes) > MAX_HASHED_NODES:
        return None
    variables, lows, highs = diagram.nodes()
    numbers: dict[Node, int] = {FALSE: FALSE, TRUE: TRUE}
    parts: list[Hashable] = []
    for node in _children_first(root, lows, highs):
        variable = encoding.variable_order.variables[variables[node]]
        parts.append((_subject(variable), numbers[lows[node]], numbers[highs[node]]))
        numbers[node] = len(numbers)
    return tuple(parts)


def _children_first(root: Node, lows: Sequence[Node], highs: Sequence[Node]) -> list[Node]:
    """Return the nodes under a root, children first, in a deterministic order."""
    found: dict[Node, None] = {}
    waiting = [(root, False)]
    while waiting:
        node, is_left = waiting.pop()
        if node in found or node <= TRUE:
            continue
        if is_left:
            found[node] = None
        else:
            waiting += ((node, True), (highs[node], False), (lows[node], False))
    return list(found)


def _subject(variable: Variable) -> Hashable:
    subject = variable.subject
    said = subject.key if isinstance(subject, TextPredicate) else subject
    return variable.attribute, variable.role, said

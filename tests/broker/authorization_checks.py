"""Compare what participants observed at a broker with what the oracle allows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from access.oracle import Case, Document
from access.test_access_leaks import goes_with_no_mode
from access.test_access_leaks import refusal as expected_refusal
from broker.authorization_clients import Refusal
from broker.authorization_run import ATTEMPTS, EXPLAINED_EVENTS, Observations
from broker.authorization_scenario import Participant, RequestedFilter, Scenario, visible
from tamis.analysis.explain import explain
from tamis.errors import EventError
from tamis.events import decode_json
from tamis.filters import Mode


class Checker:
    """Compares the observations of one participant with what the oracle allows."""

    def __init__(
        self,
        scenario: Scenario,
        participant: Participant,
        observed: Observations,
        counts: Counter[str],
    ) -> None:
        self.scenario = scenario
        self.participant = participant
        self.observed = observed
        self.counts = counts
        self.places = self._places()

    def _places(self) -> list[list[tuple[int, Document]]]:
        """Return the events of each phase with their sequence numbers."""
        places, sequence = [], 1
        for phase in self.scenario.phases:
            places.append(list(enumerate(phase, start=sequence)))
            sequence += len(phase)
        return places

    def check(self) -> None:
        for n, asked in enumerate(self.participant.asked):
            case = self.scenario.case(self.participant, asked, {})
            made = self.observed["subscribe"][n]
            if isinstance(made, Refusal):
                check_refusal(case, made)
                self._check_nothing_there(n)
            else:
                assert case.is_allowed()
                self._check_first(n, asked)
                self._check_letters(n, asked)
                self._check_restart(n, asked)
                self._check_change(n, asked)
            self._check_history(n, asked)
            self._check_trial(n, asked, isinstance(made, Refusal))

    def _check_nothing_there(self, n: int) -> None:
        """Check that a refused subscription looks like one that never existed."""
        missing = f"not_found: there is no subscription 's{n}'"
        for step in ("fetch", "letters", "fetch after restart", "fetch after change"):
            assert self.observed[step][n] == missing
            self.counts["tuples"] += len(self.places[0])

    # --- deliveries ------------------------------------------------------------------------------

    def _due(
        self, asked: RequestedFilter, phase: int, *, later: bool = False
    ) -> list[tuple[int, Document]]:
        """Return the events of a phase that are due to a subscription."""
        return [
            (sequence, document)
            for sequence, document in self.places[phase]
            if is_due(self.scenario.case(self.participant, asked, document, later=later))
        ]

    def _check_got(
        self,
        got: Any,
        due: Sequence[tuple[int, Document]],
        seen_of: int,
        *,
        attempt: int = 1,
        later: bool = False,
    ) -> None:
        assert not isinstance(got, Refusal), got
        assert [one["sequence"] for one in got] == [sequence for sequence, _ in due]
        for one, (_, document) in zip(got, due, strict=True):
            assert one["data"] == self._seen(document, later=later)
            assert one["publisher"] == "feed"
            assert one.get("attempt", 1) == attempt
        self.counts["tuples"] += seen_of
        self.counts["deliveries"] += len(due)

    def _seen(self, document: Document, *, later: bool) -> Document:
        case = self.scenario.case(
            self.participant, self.participant.asked[0], document, later=later
        )
        return visible(document, case.admitting(case.event()))

    def _check_first(self, n: int, asked: RequestedFilter) -> None:
        observed, size, due = self.observed, len(self.places[0]), self._due(asked, 0)
        if n in observed["live"]:
            got, end, lost = observed["live"][n]
            assert not end
            assert not lost
            self._check_got(got, due, size)
        self._check_got(observed["fetch"][n], due, size)
        self._check_got(observed["again"][n], due, size, attempt=2)
        self._check_got(observed["replayed"][n], due, size)
        assert view_of(observed["views when replayed"], n, "r")["pending"] == len(due)
        assert view_of(observed["views after subscribe"], n)["pending"] == 0
        view = view_of(observed["views after fetch"], n)
        assert (view["pending"], view["in_flight"], view["dropped"], view["dead"]) == (
            len(due),
            len(due),
            0,
            0,
        )

    # --- dead letters ----------------------------------------------------------------------------

    def _check_letters(self, n: int, asked: RequestedFilter) -> None:
        observed, size, due = self.observed, len(self.places[0]), self._due(asked, 0)
        letters = observed["letters"][n]
        self._check_dead(letters, due)
        assert view_of(observed["views after letters"], n)["dead"] == len(due)
        requeued, left = due[::2], due[3::2]
        if len(due) < 2:
            requeued, left = [], due
        else:
            assert observed["requeue"][n] == [len(requeued), 1]
        self._check_got(observed["requeued"][n], requeued, size)
        self._check_dead(observed["letters left"][n], left)
        view = view_of(observed["views after letters left"], n)
        assert (view["pending"], view["in_flight"], view["dead"]) == (0, 0, len(left))

    def _check_dead(
        self, letters: Any, due: Sequence[tuple[int, Document]], *, later: bool = False
    ) -> None:
        assert not isinstance(letters, Refusal), letters
        assert [one["sequence"] for one in letters] == [sequence for sequence, _ in due]
        for one, (_, document) in zip(letters, due, strict=True):
            assert one["data"] == self._seen(document, later=later)
            assert (one["attempts"], one["reason"]) == (ATTEMPTS, "no 2")
        self.counts["tuples"] += len(self.places[0])
        self.counts["deliveries"] += len(due)

    # --- after a restart and a policy change -----------------------------------------------------

    def _check_restart(self, n: int, asked: RequestedFilter) -> None:
        observed, size, due = self.observed, len(self.places[1]), self._due(asked, 1)
        assert observed["taken up"][n] == view_of(observed["views after taken up"], n)
        if n in observed["live after restart"]:
            self._check_got(observed["live after restart"][n][0], due, size)
        self._check_got(observed["fetch after restart"][n], due, size)

    def _check_change(self, n: int, asked: RequestedFilter) -> None:
        observed, size = self.observed, len(self.places[2])
        case = self.scenario.case(self.participant, asked, {}, later=True)
        waited, waiting_letters = self._due(asked, 2), self._letters_left(asked)
        again = observed["taken up after change"][n]
        self._check_live(n, asked, is_over=isinstance(again, Refusal))
        if isinstance(again, Refusal):
            check_refusal(case, again)
            for step in ("fetch after change", "letters after change", "fetch of new"):
                assert observed[step][n] == again
                self.counts["tuples"] += size
            return
        assert case.is_allowed()
        still = [(s, d) for s, d in waited if self._is_read_later(asked, d)]
        self._check_got(observed["fetch after change"][n], still, size, later=True)
        letters = [(s, d) for s, d in waiting_letters if self._is_read_later(asked, d)]
        self._check_dead(observed["letters after change"][n], letters, later=True)
        new = self._due(asked, 3, later=True)
        self._check_got(observed["fetch of new"][n], new, len(self.places[3]), later=True)

    def _check_live(self, n: int, asked: RequestedFilter, *, is_over: bool) -> None:
        if n not in self.observed["live after change"]:
            return
        got, end, _ = self.observed["live after change"][n]
        before = [*self._due(asked, 1), *self._due(asked, 2)]
        self._check_got(got[: len(before)], before, len(self.places[2]))
        new = [] if is_over else self._due(asked, 3, later=True)
        assert bool(end) is is_over
        self._check_got(got[len(before) :], new, len(self.places[3]), later=True)

    def _letters_left(self, asked: RequestedFilter) -> list[tuple[int, Document]]:
        due = self._due(asked, 0)
        return due[3::2] if len(due) >= 2 else due

    def _is_read_later(self, asked: RequestedFilter, document: Document) -> bool:
        case = self.scenario.case(self.participant, asked, document, later=True)
        return case.is_read_on(case.event())

    # --- history ---------------------------------------------------------------------------------

    def _check_history(self, n: int, asked: RequestedFilter) -> None:
        for step, phases, later in (("history", 1, False), ("history after change", 4, True)):
            said = self.observed[step][n]
            if isinstance(said, Refusal):
                check_refusal(self.scenario.case(self.participant, asked, {}, later=later), said)
                self.counts["tuples"] += sum(map(len, self.places[:phases]))
                continue
            due = [one for phase in range(phases) for one in self._due(asked, phase, later=later)]
            seen_of = sum(map(len, self.places[:phases]))
            self._check_got(said["events"], due, seen_of, later=later)

    # --- trying filters --------------------------------------------------------------------------

    def _check_trial(self, n: int, asked: RequestedFilter, is_refused: bool) -> None:
        trials, explained, explained_by_id = self.observed["trial"][n]
        case = self.scenario.case(self.participant, asked, {})
        samples = self.scenario.phases[0]
        self.counts["tuples"] += len(samples) + 2 * EXPLAINED_EVENTS
        if isinstance(trials, Refusal):
            check_refusal(case, trials)
            assert {*explained} == {trials}
            assert {*explained_by_id} == {f"not_found: there is no subscription 's{n}'"}
            return
        assert not is_refused
        said = [*said_by_own_filter(case, samples)]
        assert [trial["matches"] for trial in trials] == [matches for matches, _ in said]
        assert explained == [
            text.replace("'{}'", "The filter", 1) for _, text in said[:EXPLAINED_EVENTS]
        ]
        assert explained_by_id == [
            text.replace("{}", f"s{n}", 1) for _, text in said[:EXPLAINED_EVENTS]
        ]


def is_due(case: Case) -> bool:
    return case.matches(case.event())


def said_by_own_filter(
    case: Case, samples: Sequence[Document]
) -> Iterator[tuple[bool | None, str]]:
    """Yield the verdict of the user's own filter on events that the user sends."""
    schema, total, text = case.ever_seen(), case.mode is Mode.TOTAL, ""
    own = case.filter if schema is None else case.filter.bind(schema)
    for n, sample in enumerate(samples):
        try:
            event = decode_json(json.dumps(sample), schema=schema)
        except EventError as error:
            # A hidden attribute has no known type.
            yield None, f"bad_event: {error}"
            continue
        if n < EXPLAINED_EVENTS:
            text = str(explain("{}", own, case.mode, event, schema, total=total))
        yield own.matches(event, case.mode, schema), text


def check_refusal(case: Case, said: Refusal) -> None:
    """Check that a filter is refused only for what it mentions, always in the same words."""
    code, _, message = said.partition(": ")
    assert code in ("forbidden", "bad_filter")
    if not goes_with_no_mode(case):
        assert not case.is_allowed()
        assert message == expected_refusal(case)


def view_of(views: Any, n: int, kind: str = "s") -> dict[str, Any]:
    return next(view for view in views if view["id"] == f"{kind}{n}")

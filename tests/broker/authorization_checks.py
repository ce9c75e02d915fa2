"""What people learned from a broker, compared with what the oracle says they may."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from access.oracle import Case, Document
from access.test_access_leaks import goes_with_no_mode
from access.test_access_leaks import refusal as expected_refusal
from broker.authorization_actors import Refused
from broker.authorization_play import ATTEMPTS, EXPLAINED, Story
from broker.authorization_scene import Asked, Person, Scene, visible
from tamis.analysis.explain import explain
from tamis.errors import EventError
from tamis.events import decode_json
from tamis.filters import Mode


class Checker:
    """Compares what one person learned with what the oracle says."""

    def __init__(self, scene: Scene, person: Person, story: Story, counts: Counter[str]) -> None:
        self.scene = scene
        self.person = person
        self.story = story
        self.counts = counts
        self.places = self._places()

    def _places(self) -> list[list[tuple[int, Document]]]:
        """Return the events of each act with their sequences."""
        places, sequence = [], 1
        for act in self.scene.acts:
            places.append(list(enumerate(act, start=sequence)))
            sequence += len(act)
        return places

    def check(self) -> None:
        for n, asked in enumerate(self.person.asked):
            case = self.scene.case(self.person, asked, {})
            made = self.story["subscribe"][n]
            if isinstance(made, Refused):
                check_refusal(case, made)
                self._check_nothing_there(n)
            else:
                assert case.is_allowed()
                self._check_first(n, asked)
                self._check_letters(n, asked)
                self._check_restart(n, asked)
                self._check_change(n, asked)
            self._check_history(n, asked)
            self._check_trial(n, asked, isinstance(made, Refused))

    def _check_nothing_there(self, n: int) -> None:
        """What was refused is answered like what never was."""
        missing = f"not_found: there is no subscription 's{n}'"
        for step in ("fetch", "letters", "fetch after restart", "fetch after change"):
            assert self.story[step][n] == missing
            self.counts["tuples"] += len(self.places[0])

    # --- what comes ------------------------------------------------------------------------------

    def _due(self, asked: Asked, act: int, *, later: bool = False) -> list[tuple[int, Document]]:
        """Return the events of an act that are for a subscription."""
        return [
            (sequence, document)
            for sequence, document in self.places[act]
            if is_due(self.scene.case(self.person, asked, document, later=later))
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
        assert not isinstance(got, Refused), got
        assert [one["sequence"] for one in got] == [sequence for sequence, _ in due]
        for one, (_, document) in zip(got, due, strict=True):
            assert one["data"] == self._seen(document, later=later)
            assert one["publisher"] == "feed"
            assert one.get("attempt", 1) == attempt
        self.counts["tuples"] += seen_of
        self.counts["deliveries"] += len(due)

    def _seen(self, document: Document, *, later: bool) -> Document:
        case = self.scene.case(self.person, self.person.asked[0], document, later=later)
        return visible(document, case.admitting(case.event()))

    def _check_first(self, n: int, asked: Asked) -> None:
        story, size, due = self.story, len(self.places[0]), self._due(asked, 0)
        if n in story["live"]:
            got, end, lost = story["live"][n]
            assert not end
            assert not lost
            self._check_got(got, due, size)
        self._check_got(story["fetch"][n], due, size)
        self._check_got(story["again"][n], due, size, attempt=2)
        self._check_got(story["replayed"][n], due, size)
        assert view_of(story["views when replayed"], n, "r")["pending"] == len(due)
        assert view_of(story["views after subscribe"], n)["pending"] == 0
        view = view_of(story["views after fetch"], n)
        assert (view["pending"], view["in_flight"], view["dropped"], view["dead"]) == (
            len(due),
            len(due),
            0,
            0,
        )

    # --- dead letters ----------------------------------------------------------------------------

    def _check_letters(self, n: int, asked: Asked) -> None:
        story, size, due = self.story, len(self.places[0]), self._due(asked, 0)
        letters = story["letters"][n]
        self._check_dead(letters, due)
        assert view_of(story["views after letters"], n)["dead"] == len(due)
        requeued, left = due[::2], due[3::2]
        if len(due) < 2:
            requeued, left = [], due
        else:
            assert story["requeue"][n] == [len(requeued), 1]
        self._check_got(story["requeued"][n], requeued, size)
        self._check_dead(story["letters left"][n], left)
        view = view_of(story["views after letters left"], n)
        assert (view["pending"], view["in_flight"], view["dead"]) == (0, 0, len(left))

    def _check_dead(
        self, letters: Any, due: Sequence[tuple[int, Document]], *, later: bool = False
    ) -> None:
        assert not isinstance(letters, Refused), letters
        assert [one["sequence"] for one in letters] == [sequence for sequence, _ in due]
        for one, (_, document) in zip(letters, due, strict=True):
            assert one["data"] == self._seen(document, later=later)
            assert (one["attempts"], one["reason"]) == (ATTEMPTS, "no 2")
        self.counts["tuples"] += len(self.places[0])
        self.counts["deliveries"] += len(due)

    # --- after a restart, after the policy has changed -------------------------------------------

    def _check_restart(self, n: int, asked: Asked) -> None:
        story, size, due = self.story, len(self.places[1]), self._due(asked, 1)
        assert story["taken up"][n] == view_of(story["views after taken up"], n)
        if n in story["live after restart"]:
            self._check_got(story["live after restart"][n][0], due, size)
        self._check_got(story["fetch after restart"][n], due, size)

    def _check_change(self, n: int, asked: Asked) -> None:
        story, size = self.story, len(self.places[2])
        case = self.scene.case(self.person, asked, {}, later=True)
        waited, waiting_letters = self._due(asked, 2), self._letters_left(asked)
        again = story["taken up after change"][n]
        self._check_live(n, asked, is_over=isinstance(again, Refused))
        if isinstance(again, Refused):
            check_refusal(case, again)
            for step in ("fetch after change", "letters after change", "fetch of new"):
                assert story[step][n] == again
                self.counts["tuples"] += size
            return
        assert case.is_allowed()
        still = [(s, d) for s, d in waited if self._is_read_later(asked, d)]
        self._check_got(story["fetch after change"][n], still, size, later=True)
        letters = [(s, d) for s, d in waiting_letters if self._is_read_later(asked, d)]
        self._check_dead(story["letters after change"][n], letters, later=True)
        new = self._due(asked, 3, later=True)
        self._check_got(story["fetch of new"][n], new, len(self.places[3]), later=True)

    def _check_live(self, n: int, asked: Asked, *, is_over: bool) -> None:
        if n not in self.story["live after change"]:
            return
        got, end, _ = self.story["live after change"][n]
        before = [*self._due(asked, 1), *self._due(asked, 2)]
        self._check_got(got[: len(before)], before, len(self.places[2]))
        new = [] if is_over else self._due(asked, 3, later=True)
        assert bool(end) is is_over
        self._check_got(got[len(before) :], new, len(self.places[3]), later=True)

    def _letters_left(self, asked: Asked) -> list[tuple[int, Document]]:
        due = self._due(asked, 0)
        return due[3::2] if len(due) >= 2 else due

    def _is_read_later(self, asked: Asked, document: Document) -> bool:
        case = self.scene.case(self.person, asked, document, later=True)
        return case.is_read_on(case.event())

    # --- the past ---------------------------------------------------------------------------------

    def _check_history(self, n: int, asked: Asked) -> None:
        for step, acts, later in (("history", 1, False), ("history after change", 4, True)):
            said = self.story[step][n]
            if isinstance(said, Refused):
                check_refusal(self.scene.case(self.person, asked, {}, later=later), said)
                self.counts["tuples"] += sum(map(len, self.places[:acts]))
                continue
            due = [one for act in range(acts) for one in self._due(asked, act, later=later)]
            seen_of = sum(map(len, self.places[:acts]))
            self._check_got(said["events"], due, seen_of, later=later)

    # --- trying ----------------------------------------------------------------------------------

    def _check_trial(self, n: int, asked: Asked, is_refused: bool) -> None:
        trials, explained, explained_by_id = self.story["trial"][n]
        case = self.scene.case(self.person, asked, {})
        samples = self.scene.acts[0]
        self.counts["tuples"] += len(samples) + 2 * EXPLAINED
        if isinstance(trials, Refused):
            check_refusal(case, trials)
            assert {*explained} == {trials}
            assert {*explained_by_id} == {f"not_found: there is no subscription 's{n}'"}
            return
        assert not is_refused
        said = [*said_by_own_filter(case, samples)]
        assert [trial["matches"] for trial in trials] == [matches for matches, _ in said]
        assert explained == [text.replace("{}", "filter", 1) for _, text in said[:EXPLAINED]]
        assert explained_by_id == [text.replace("{}", f"s{n}", 1) for _, text in said[:EXPLAINED]]


def is_due(case: Case) -> bool:
    return case.matches(case.event())


def said_by_own_filter(
    case: Case, samples: Sequence[Document]
) -> Iterator[tuple[bool | None, str]]:
    """Yield what the user's filter alone says of events that the user sends."""
    schema, total, text = case.ever_seen(), case.mode is Mode.TOTAL, ""
    own = case.filter if schema is None else case.filter.bind(schema)
    for n, sample in enumerate(samples):
        try:
            event = decode_json(json.dumps(sample), schema=schema)
        except EventError as error:
            # What is hidden has no type that could be known.
            yield None, f"bad_event: {error}"
            continue
        if n < EXPLAINED:
            text = str(explain("{}", own, case.mode, event, schema, total=total))
        yield own.matches(event, case.mode, schema), text


def check_refusal(case: Case, said: Refused) -> None:
    """See that a filter is refused only for what it mentions, and in the same words always."""
    code, _, message = said.partition(": ")
    assert code in ("forbidden", "bad_filter")
    if not goes_with_no_mode(case):
        assert not case.is_allowed()
        assert message == expected_refusal(case)


def view_of(views: Any, n: int, kind: str = "s") -> dict[str, Any]:
    return next(view for view in views if view["id"] == f"{kind}{n}")

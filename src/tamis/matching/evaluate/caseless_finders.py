"""Sets of text predicates that ignore case: a text is folded once for all of them.

Substrings are found in the folded text by the automaton that finds the exact ones, too: those are
looked for folded, and confirmed in the text itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tamis.diagrams.atom_intervals import folded_test
from tamis.events import Kind
from tamis.filters.atoms import Caseless, Like, Regex, TextTest
from tamis.filters.folding import fold
from tamis.matching.evaluate.metering import Meter
from tamis.matching.evaluate.text_finders import (
    Finder,
    Placed,
    asked_by,
    finders_by_op,
    finders_of,
    part_finders,
)


def placed_folded(place: int, atom: Caseless) -> Placed:
    """Return the test of the folded text that an atom makes."""
    test = folded_test(atom)
    text = asked_by(test)[1] if isinstance(test, TextTest | Like | Regex) else ""
    return Placed(place, test, text)


def caseless_finders(folded: Sequence[Placed], exact: Sequence[Placed]) -> Iterable[Finder]:
    """Yield finders for tests of folded texts, and of texts as they are."""
    parts = [test for test in exact if asked_by(test.atom)[0] == "contains"]
    groups: dict[str, list[Placed]] = {}
    for test in folded:
        groups.setdefault(asked_by(test.atom)[0], []).append(test)
    own_parts = groups.pop("contains", [])
    finders = [finder for op, own in groups.items() for finder in finders_of(op, own)]
    yield FoldedFinder(finders, PartsInAnyCase(own_parts, parts) if own_parts else None)
    yield from finders_by_op([test for test in exact if not own_parts or test not in parts])


class FoldedFinder(Finder):
    """Folds a text, and asks other finders about it."""

    def __init__(self, finders: Sequence[Finder], parts: PartsInAnyCase | None) -> None:
        self._finders: Final = finders
        self._parts: Final = parts

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the predicates that a text passes in any case."""
        folded = fold(text)
        found = [] if self._parts is None else self._parts.find_both(text, folded)
        for finder in self._finders:
            found += finder.find(folded)
        return found

    def find_within(self, text: str, meter: Meter) -> Iterable[int]:
        """Do the same within a budget."""
        folded = fold(text)
        if self._parts is not None:
            yield from self._parts.find_both(text, folded)
        for finder in self._finders:
            yield from finder.find_within(folded, meter)


class PartsInAnyCase:
    """Finds which substrings a text contains, some exactly and some in any case."""

    def __init__(self, folded: Sequence[Placed], exact: Sequence[Placed]) -> None:
        in_any_case: dict[str, list[int]] = {test.text: [] for test in folded}
        for test in folded:
            in_any_case[test.text].append(test.place)
        exactly: dict[str, list[tuple[int, str]]] = {}
        for test in exact:
            part = fold(test.text)
            exactly.setdefault(part, []).append((test.place, test.text))
            in_any_case.setdefault(part, [])
        self._answers: Final = list(in_any_case.values())
        """For each folded substring, the predicates that it answers."""
        self._exactly: Final = {
            number: exactly[part] for number, part in enumerate(in_any_case) if part in exactly
        }
        """And what the text itself has to contain for others."""
        attribute = folded[0].atom.attribute
        self._finders: Final = part_finders(
            [
                Placed(number, TextTest(attribute, Kind.TEXT, "contains", part), part)
                for number, part in enumerate(in_any_case)
            ]
        )

    def find_both(self, text: str, folded: str) -> list[int]:
        """Return the indexes of the substrings that a text contains, exactly or folded."""
        found, answers, exactly = list[int](), self._answers, self._exactly
        for finder in self._finders:
            for number in finder.find(folded):
                found += answers[number]
                if number in exactly:
                    found += [place for place, part in exactly[number] if part in text]
        return found

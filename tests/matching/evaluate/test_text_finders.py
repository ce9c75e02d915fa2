"""Substrings that are frequent leave the automaton, and no reader misses one meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tamis.events import Kind
from tamis.filters.atoms import TextTest
from tamis.matching.evaluate.text_finders import PartFinder, Placed


class InterruptedText(bytes):
    """A text that is interrupted before its third piece."""

    interrupt: Callable[[], None]
    pieces = 0

    def __getitem__(self, place: Any) -> Any:
        self.pieces += 1
        if self.pieces == 3:
            self.interrupt()
        return super().__getitem__(place)


def test_a_thread_does_not_undo_what_another_has_noted() -> None:
    substrings = ["xx", "yy", *(f"w{n}" for n in range(10))]
    finder = PartFinder(
        [
            Placed(place, TextTest("", Kind.TEXT, "contains", text), text)
            for place, text in enumerate(substrings)
        ]
    )
    before = finder._parts
    listed = before.automaton.find_matches_as_indexes(b"y" * 4_096, overlapping=True)

    def finish() -> None:
        """Do what another thread began before the first note."""
        finder._listed = 1_000
        finder._note(before, listed)

    finder.find("x" * 5_000)
    assert [part for _, part in finder._parts.frequent] == [b"xx"]
    text = InterruptedText(b"xx" + b"." * 20_000)
    text.interrupt = finish
    assert finder._find_in_pieces(text) == {0}

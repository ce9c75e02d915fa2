"""Texts that may pass some tests and fail others: guesses, the likeliest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from tamis.diagrams.atom_intervals import TextPredicate
from tamis.diagrams.value_order import common_prefix
from tamis.filters.folding import fold
from tamis.filters.like import like_parts
from tamis.filters.networks import position_of, text_at
from tamis.filters.pattern_examples import pattern_examples

# One that no test mentions separates parts without making others by accident.
_SEPARATORS: Final = "x-_zq~jZQ|\u00b7\u00a4\u2026"

# Candidates for one set of tests.
MAX_CANDIDATES: Final = 512


class Demands(NamedTuple):
    """What is asked of one text."""

    cell: tuple[str, str | None]
    """It lies from the first to below the second."""
    backward: tuple[str, str | None]
    """Reversed, it lies in this range."""
    passing: Sequence[TextPredicate]
    failing: Sequence[TextPredicate] = ()
    folded: Demands | None = None
    """What is asked of the folded text."""
    addresses: tuple[int, int] | None = None
    """The positions, from the first to before the second, that its address lies at."""

    def are_met_by(self, text: str) -> bool:
        """Return whether a text meets all of them."""
        return (
            _lies_in(text, self.cell)
            and _lies_in(text[::-1], self.backward)
            and all(predicate.accepts(text) for predicate in self.passing)
            and not any(predicate.accepts(text) for predicate in self.failing)
            and (self.folded is None or self.folded.are_met_by(fold(text)))
            and (
                self.addresses is None or self.addresses[0] <= position_of(text) < self.addresses[1]
            )
        )


def _lies_in(text: str, range_: tuple[str, str | None]) -> bool:
    low, high = range_
    return low <= text and (high is None or text < high)


def text_candidates(demands: Demands) -> Iterator[str]:
    """Yield texts that may meet demands, each once."""
    guesses = list(dict.fromkeys(chain(_addresses(demands.addresses), _guesses(demands))))
    if demands.folded is not None:
        # In another case, too, since exact tests may refuse the usual one.
        guesses = list(dict.fromkeys(chain(guesses, map(str.upper, guesses))))
    return islice(guesses, MAX_CANDIDATES)


def texts_for(
    cell: tuple[str, str | None],
    backward: tuple[str, str | None],
    asked: Iterable[tuple[TextPredicate, bool]],
) -> list[str]:
    """Return texts that may lie in a cell and in a cell of reversed texts, and pass the tests."""
    passing = [predicate for predicate, answer in asked if answer]
    return list(text_candidates(Demands(cell, backward, passing)))


def _addresses(positions: tuple[int, int] | None) -> Iterator[str]:
    """Yield some addresses of a range, unless it has texts that are none."""
    if positions is not None and positions[0] > 0:
        first, end = positions
        middle = (first + end) // 2
        yield from map(text_at, (first, min(first + 1, end - 1), middle, end - 1))


def _guesses(demands: Demands) -> Iterator[str]:
    fresh = _separator(demands)
    starts, suffixes = _starts(demands.cell, fresh), _suffixes(demands.backward)
    passing = [*demands.passing]
    if demands.folded is not None:
        passing += demands.folded.passing
        own, folded = common_prefix(*demands.cell), demands.folded.cell[0]
        if folded.startswith(fold(own)):
            starts = {own + folded[len(fold(own)) :]: None, **starts}
        starts = {**starts, **_starts(demands.folded.cell, fresh)}
        suffixes = {**suffixes, **_suffixes(demands.folded.backward)}
    gaps = dict.fromkeys(("", fresh, " "))
    middles = list(dict.fromkeys(_middles(passing, fresh)))
    for start in starts:
        for middle in middles:
            for gap in gaps:
                for suffix in suffixes:
                    yield f"{start}{gap}{middle}{gap}{suffix}"


def _starts(cell: tuple[str, str | None], fresh: str) -> dict[str, None]:
    low = cell[0]
    return dict.fromkeys((common_prefix(*cell), low, low.rstrip("\0") + fresh, ""))


def _suffixes(backward: tuple[str, str | None]) -> dict[str, None]:
    return dict.fromkeys((common_prefix(*backward)[::-1], backward[0][::-1]))


def _separator(demands: Demands) -> str:
    predicates = (*demands.passing, *demands.failing)
    if demands.folded is not None:
        predicates += (*demands.folded.passing, *demands.folded.failing)
    used = "".join(predicate.key[1] for predicate in predicates)
    used += demands.cell[0] + demands.backward[0]
    return next((one for one in _SEPARATORS if one not in used), _SEPARATORS[0])


def _middles(passing: Sequence[TextPredicate], fresh: str) -> Iterator[str]:
    pieces = [_piece(predicate, fresh, 0) for predicate in passing]
    apart = fresh.join(filter(None, pieces))
    yield from ("", "".join(pieces), apart, fresh.join(filter(None, reversed(pieces))))
    parts = "".join(part for predicate in passing for part in predicate.parts)
    for predicate in passing:
        op, text = predicate.key
        if op == "like":
            for run in ("", fresh, parts, f"{fresh}{apart}{fresh}"):
                yield _filled(text, run, fresh)
        elif op == "within":
            yield from (text, text[:1], text[1:])
        elif op == "matches":
            others = [_piece(other, fresh, 0) for other in passing if other is not predicate]
            for example in pattern_examples(text):
                yield example.text
                # What stands beside it, where nothing has to be there.
                beside = fresh.join(filter(None, others))
                if beside and not example.at_end:
                    yield f"{example.text}{fresh}{beside}"
                if beside and not example.at_start:
                    yield f"{beside}{fresh}{example.text}"
    if len(passing) > 1:
        for variant in (1, 2):
            yield fresh.join(filter(None, (_piece(one, fresh, variant) for one in passing)))


def _piece(predicate: TextPredicate, fresh: str, variant: int) -> str:
    """Return what a text has to have for a test, at the least."""
    op, text = predicate.key
    if op == "like":
        return _filled(text, "", fresh)
    if op == "matches":
        examples = pattern_examples(text)
        return examples[variant % len(examples)].text if examples else ""
    return "" if op == "within" else "".join(predicate.parts)


def _filled(pattern: str, run: str, one: str) -> str:
    """Return a text that fits a LIKE pattern."""
    stands_for = {"%": run, "_": one}
    return "".join(stands_for[card] if card else part for part, card in like_parts(pattern))

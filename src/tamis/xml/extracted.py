"""What is found in documents for one attribute: texts and whose they are, then values in columns.

Texts come again and again, in one document and in the next. Each is normalised, and read as a
number or a date, once for a batch of documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.events.columns import Column, Entries, entries_of
from tamis.events.kinds import Kind, Value, kind_of
from tamis.events.values import INT64_MAX, INT64_MIN
from tamis.xml.values import date_in, number_in, without_extra_space

MAX_CHARACTERS: Final = 1_024
"""Of longer texts only the beginning is an event's; the texts that queries compare are shorter."""
MAX_CACHED: Final = 32
"""Characters of texts whose values are kept from document to document."""

# A text that was cut off may have had more digits.
_DIGITS: Final = re.compile(r"-?[0-9]*+\.?[0-9]*+")


def normalised(text: str | None) -> str:
    """Return a text as events have it."""
    if not text:
        return ""
    if len(text) <= MAX_CHARACTERS:
        return without_extra_space(text)
    return without_extra_space(text)[:MAX_CHARACTERS]


def values_of(text: str) -> list[Value]:
    """Return the values of a node, given its normalised text: that, and what else it stands for.

    >>> values_of("007"), values_of("Wien")
    (['007', 7], ['Wien'])
    """
    # The same short texts come again and again.
    return [*_short_values(text)] if len(text) <= MAX_CACHED else _values(text)


def one_for_each_node(values: Iterable[Value]) -> list[Value]:
    """Return what nodes hold, each once: a value where its text is how one writes it, or the text.

    >>> one_for_each_node(["5", 5, "007", 7, "Wien"])
    [5, '007', 'Wien']
    """
    found: list[Value] = []
    for value in values:
        if value is True:
            found.append(value)
        elif isinstance(value, str):
            stands_for = [one for one in values_of(value)[1:] if str(one) == value]
            found.append(stands_for[0] if stands_for else value)
    return found


def _values(text: str) -> list[Value]:
    number = number_in(text)
    if number is not None:
        # Numbers of queries are small, or compared less sharply: the nearest float will do.
        is_small = type(number) is not int or INT64_MIN <= number <= INT64_MAX
        return [text, number if is_small else float(number)]
    if is_huge(text):
        return [text, b""]
    found = date_in(text)
    return [text] if found is None else [text, found]


_short_values = lru_cache(maxsize=65_536)(_values)


def is_huge(text: str) -> bool:
    """Return whether only XPath takes a text for a number: it is infinite, or has many digits."""
    return len(text) > 300 and _DIGITS.fullmatch(text) is not None and number_in(text) is None


class ExtractedTexts:
    """The texts of one attribute in some documents, and the number of each text's document."""

    __slots__ = ("crowded", "events", "is_key", "texts")

    def __init__(self, *, is_key: bool) -> None:
        self.is_key = is_key
        self.events: list[int] = []
        self.texts: list[str | None] = []
        """As they stand in documents; None is an empty one."""
        self.crowded: set[int] = set()
        """The documents in which some element has too many keys."""

    @classmethod
    def joined(cls, parts: Sequence[ExtractedTexts]) -> ExtractedTexts:
        """Return the texts of several, which are no keys."""
        if len(parts) == 1:
            return parts[0]
        found = cls(is_key=False)
        for part in parts:
            found.events += part.events
            found.texts += part.texts
        return found

    def note(self, event: int, text: str | None) -> None:
        """Add a text of a document, as it stands there."""
        self.events.append(event)
        self.texts.append(text)

    def values(self) -> list[Value]:
        """Return all values, of one document."""
        texts = dict.fromkeys(map(self._plain, dict.fromkeys(self.texts)))
        if self.is_key:
            return [*texts]
        return [value for text in texts for value in values_of(text)]

    def _plain(self, text: str | None) -> str:
        # A key is made of texts that are normalised, and of characters that are no white space.
        return text or "" if self.is_key else normalised(text)

    def column(self) -> Column:
        """Return the values of all documents."""
        plain = {text: self._plain(text) for text in dict.fromkeys(self.texts)}
        texts = list(dict.fromkeys(plain.values()))
        code_of = dict(zip(texts, range(len(texts)), strict=True))
        numbers = {text: code_of[each] for text, each in plain.items()}
        codes = np.fromiter(map(numbers.__getitem__, self.texts), np.int64, len(self.texts))
        # Each text once for a document, and documents ascending.
        pairs = np.unique(np.array(self.events, np.int64) * len(texts) + codes)
        events, kept = np.divmod(pairs, len(texts))
        holders, held = events.astype(np.int32), kept.astype(np.int32)
        entries: dict[Kind | None, Entries] = {Kind.TEXT: Entries(holders, held, texts=texts)}
        if not self.is_key:
            entries.update(_other_entries(texts, holders, held))
        return Column(entries)


def _other_entries(
    texts: list[str], events: NDArray[np.int32], codes: NDArray[np.int32]
) -> dict[Kind | None, Entries]:
    """Return what texts stand for, by kind."""
    found: dict[Kind | None, tuple[list[int], list[Value]]] = {}
    for code, text in enumerate(texts):
        for value in values_of(text)[1:]:
            numbers, values = found.setdefault(kind_of(value), ([], []))
            numbers.append(code)
            values.append(value)
    return {kind: _spread(kind, *one, events, codes) for kind, one in found.items()}


def _spread(
    kind: Kind | None,
    numbers: list[int],
    values: list[Any],
    events: NDArray[np.int32],
    codes: NDArray[np.int32],
) -> Entries:
    """Return the values that some texts stand for, for all documents that have these texts."""
    own = entries_of(kind, np.arange(len(values), dtype=np.int32), values)
    place_of = np.full(max(int(codes.max(initial=0)), numbers[-1]) + 1, -1, np.int64)
    place_of[numbers] = np.arange(len(numbers))
    places = place_of[codes]
    held = places >= 0
    kept = places[held]
    return Entries(
        events[held],
        own.values[kept],
        None if own.residues is None else own.residues[kept],
        None if own.whole is None else own.whole[kept],
        own.texts,
    )

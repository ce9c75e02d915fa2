"""Additions: subscriptions that are compiled beside all readers, and come into force together.

A subscription that is added alone is compiled later, by whoever matches the next event. For very
many that would be long, and somebody's event would wait for it. Here, whoever adds them waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress

import numpy as np

from tamis.errors import FilterError
from tamis.filters import Filter, FilterLimits, Id, Mode
from tamis.matching.compile.programs import compile_filter, decompile
from tamis.matching.compile.texts import MAX_TEXT_CHARACTERS, TextCompiler
from tamis.matching.store.collection import Collection
from tamis.matching.store.segments import CompiledSubscription, Segment, UncompiledColumns


class Addition:
    """Subscriptions to add; only one thread uses it, but others may change the collection."""

    def __init__(self, collection: Collection, limits: FilterLimits) -> None:
        """Begin; texts beyond the limits are left to the parser, which refuses them."""
        self._collection = collection
        self._texts = TextCompiler(limits)
        self._entries: dict[Id, CompiledSubscription] = {}
        with collection.changing:
            self._vocabulary = collection.vocabulary_to_extend()

    def add_texts(
        self, ids: Sequence[Id], texts: Sequence[str], mode: Mode, expiries: Sequence[float]
    ) -> list[bool]:
        """Add filters in the language Tamis; return False for each that the parser has to read."""
        plain = [text if len(text) <= MAX_TEXT_CHARACTERS else "" for text in texts]
        with self._collection.changing:
            self._follow()
            programs = self._texts.compile(plain, mode, self._vocabulary)
        are_added = [program is not None for program in programs]
        for id_, program, expires_at in compress(
            zip(ids, programs, expiries, strict=True), are_added
        ):
            assert program is not None  # noqa: S101
            self._put(CompiledSubscription(id_, program, mode, expires_at))
        return are_added

    def add(self, id_: Id, filter_: Filter, mode: Mode, expires_at: float = math.inf) -> None:
        """Add a filter that is parsed and checked."""
        with self._collection.changing:
            self._follow()
            codes = compile_filter(filter_, mode, self._vocabulary)
        self._put(CompiledSubscription(id_, np.array(codes, np.int32), mode, expires_at))

    def commit(self) -> None:
        """Compile all of them, then put them in force; no reader waits for that."""
        while self._entries:
            columns = UncompiledColumns.of([*self._entries.values()])
            segment, vocabulary = Segment.of(columns, self._vocabulary), self._vocabulary
            with self._collection.changing:
                self._follow()
                if self._vocabulary is vocabulary:
                    self._collection.append(segment, [*self._entries])
                    self._entries = {}
        self._collection.join_if_worthwhile()

    def _put(self, entry: CompiledSubscription) -> None:
        if entry.id in self._entries:
            raise FilterError(f"there are two subscriptions {entry.id!r}")
        self._entries[entry.id] = entry

    def _follow(self) -> None:
        """Express the programs in the present vocabulary, if the collection has a new one."""
        before, now = self._vocabulary, self._collection.vocabulary
        if before is now:
            return
        for id_, entry in self._entries.items():
            filter_ = decompile(entry.program.tolist(), entry.mode, before)
            codes = compile_filter(filter_, entry.mode, now)
            self._entries[id_] = entry._replace(program=np.array(codes, np.int32))
        self._vocabulary = now

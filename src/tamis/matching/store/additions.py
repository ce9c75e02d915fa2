"""Additions: subscriptions that are compiled beside all readers, and come into force together.

A subscription that is added alone is compiled later, by whoever matches the next event. For very
many that would be long, and somebody's event would wait for it. Here, whoever adds them waits.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from itertools import compress

import numpy as np

from tamis.errors import FilterError
from tamis.filters import Filter, FilterLimits, Id, Mode
from tamis.matching.compile.programs import compile_filter, decompile
from tamis.matching.compile.texts import MAX_TEXT_CHARACTERS, TextCompiler
from tamis.matching.compile.vocabulary import Vocabulary
from tamis.matching.store.collection import MAX_RECOMPILED_SUBSCRIPTIONS, Collection
from tamis.matching.store.segments import CompiledSubscription, Segment, UncompiledColumns


class Addition:
    """Subscriptions to add; one thread at a time uses it, and others may change the collection."""

    def __init__(self, collection: Collection, limits: FilterLimits) -> None:
        """Begin; texts beyond the limits are left to the parser, which refuses them."""
        self._collection = collection
        self._texts = TextCompiler(limits)
        self._entries: dict[Id, CompiledSubscription] = {}
        self._compiled: tuple[Segment, Vocabulary] | None = None
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
        for id_, program, expires_at in zip(ids, programs, expiries, strict=True):
            if program is not None:
                self._put(CompiledSubscription(id_, program, mode, expires_at))
        return [program is not None for program in programs]

    def add(self, id_: Id, filter_: Filter, mode: Mode, expires_at: float = math.inf) -> None:
        """Add a filter that is parsed and checked."""
        with self._collection.changing:
            self._follow()
            codes = compile_filter(filter_, mode, self._vocabulary)
        self._put(CompiledSubscription(id_, np.array(codes, np.int32), mode, expires_at))

    def compile(self) -> None:
        """Compile all of them; nobody who reads or changes the collection waits for that.

        A few are compiled later, together with other new ones: segments should not be too many.
        """
        if len(self._entries) < MAX_RECOMPILED_SUBSCRIPTIONS:
            return
        with self._collection.changing:
            self._follow()
            vocabulary = self._vocabulary
        columns = UncompiledColumns.of([*self._entries.values()])
        self._compiled = Segment.of(columns, vocabulary), vocabulary

    def commit(self, only: Container[Id] | None = None) -> None:
        """Put all in force, or only some of them; at once if they are compiled."""
        while not self._publish(self._entries if only is None else only):
            # Leaves were renumbered since.
            self.compile()
        self._entries, self._compiled = {}, None
        self._collection.tidy_if_worthwhile()

    def _publish(self, only: Container[Id]) -> bool:
        """Add what is compiled, or too little for that; return whether it was."""
        ids = [*self._entries]
        with self._collection.changing:
            self._follow()
            if len(ids) < MAX_RECOMPILED_SUBSCRIPTIONS:
                few = {id_: one for id_, one in self._entries.items() if id_ in only}
                self._collection.extend(few)
                return True
            segment, vocabulary = self._compiled or (None, None)
            if segment is None or vocabulary is not self._vocabulary:
                return False
            alive = np.array([id_ in only for id_ in ids])
            removed = len(ids) - int(np.count_nonzero(alive))
            segment = segment._replace(alive=alive, removed=removed)
            self._collection.append(segment, [*compress(ids, alive)])
        return True

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

"""The filters of an index, and how two of them relate: by programs, or else by their profiles."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Unpack

from tamis.covering.compiled import NEVER, Candidate, ComparedProgram, CompiledFilters
from tamis.covering.cubes import Outer
from tamis.covering.filter_sets import FilterNumber, FilterSet
from tamis.covering.probes import Probe
from tamis.covering.profiles import ComparedFilter, FilterRelations
from tamis.diagrams.relations import RelationOptions
from tamis.filters import Filter, Id, Mode
from tamis.filters.boolean import require_filter
from tamis.filters.modes import as_mode


class IndexedFilter:
    """A filter of an index, or one that it is asked about."""

    __slots__ = (
        "_profile",
        "_relations",
        "filter",
        "ids",
        "is_compiled",
        "is_never",
        "key",
        "number",
        "probe",
        "program",
    )

    def __init__(
        self, filter_: Filter, program: ComparedProgram | None, relations: FilterRelations
    ) -> None:
        self.filter: Final = filter_
        """Bound to the schema."""
        self._relations: Final = relations
        self._profile: ComparedFilter | None = None
        self.number: FilterNumber | None = None
        """Its number in the index, once it is stored."""
        self.probe: Probe | None = None
        """An event that matches, if one was asked for."""
        self.ids: Final[dict[Id, int]] = {}
        """The ids of the filter, each with its place in the order of adding."""
        self.compile(program)

    def compile(self, program: ComparedProgram | None) -> None:
        """Take a program, if there is one."""
        self.is_compiled = program is not None
        """Whether it has a program."""
        self.program = program
        """Its program, until that is stored."""
        self.is_never = self.profile.is_never if program is None else program.is_never
        """Whether it is known that no event matches."""
        self.key: Hashable = self.profile.key if program is None else self.filter
        """A key that only equal filters share."""

    @property
    def profile(self) -> ComparedFilter:
        """Return what there is to know about it without a program."""
        if self._profile is None:
            self._profile = self._relations.profile(self.filter)
        return self._profile

    @property
    def is_regular(self) -> bool:
        """Return whether it has only atoms that are intervals, of which all answers are exact."""
        return self.is_compiled or self.profile.is_regular


class IndexedRelations:
    """How filters relate, for the events of a mode and schema."""

    def __init__(self, **options: Unpack[RelationOptions]) -> None:
        self._relations: Final = FilterRelations(**options)
        self._schema: Final = options.get("schema")
        self._is_strict: Final = as_mode(options.get("mode", Mode.SQL)) is Mode.STRICT
        self.geometry: Final = self._relations.geometry
        self.compiled: Final = CompiledFilters(self.geometry)
        self._compiles = False

    # --- one filter --------------------------------------------------------------------------

    def indexed(self, filter_: Filter) -> IndexedFilter:
        """Return a filter as the index sees it."""
        checked = require_filter(filter_)
        bound = checked if self._schema is None else checked.bind(self._schema)
        program = self.compiled.program(bound) if self._compiles else None
        return IndexedFilter(bound, program, self._relations)

    def begin_to_compile(self) -> None:
        """Give programs to the filters from now on."""
        # In mode `strict`, a filter matches only where all of its atoms are known.
        self._compiles = not self._is_strict

    def _program(self, one: IndexedFilter) -> ComparedProgram:
        if one.number is not None:
            return ComparedProgram(self.compiled.words_of(one.number))
        return NEVER if one.program is None else one.program

    def wider(self, narrow: IndexedFilter, among: FilterSet) -> Iterator[Candidate]:
        """Yield filters with programs that cover one, or may."""
        if not self._compiles:
            return iter(())
        if narrow.is_compiled:
            return self.compiled.wider(self._program(narrow), among, narrow.number)
        probing = self.compiled.probing_program(narrow.profile.probes)
        return self.compiled.wider(probing, among, None)

    def narrower(self, wide: IndexedFilter, among: FilterSet) -> list[Candidate]:
        """Return filters with programs that one covers, or may cover."""
        if not self._compiles:
            return []
        return self.compiled.narrower(self._outer(wide), among, wide.number)

    def meeting(self, one: IndexedFilter, among: FilterSet) -> list[Candidate]:
        """Return filters with programs that intersect one, or may."""
        return self.compiled.meeting(self._outer(one), among) if self._compiles else []

    def _outer(self, wide: IndexedFilter) -> ComparedProgram:
        """Return the program of a filter, or one of cubes that contain it."""
        if wide.is_compiled:
            return self._program(wide)
        return self.compiled.outer_program(wide.profile.outer)

    def outer_cubes(self, wide: IndexedFilter) -> Outer:
        """Return cubes that contain a filter."""
        return self.compiled.outer(self._program(wide)) if wide.is_compiled else wide.profile.outer

    def first_probe(self, one: IndexedFilter) -> Probe:
        """Return an event that matches a filter, or what is known of such events."""
        if not one.is_compiled:
            return one.profile.probes[0]
        if one.probe is None:
            corner = self._relations.corner(self.compiled.corner(self._program(one)))
            is_match = self._relations.matches(one.filter, corner)
            one.probe = corner if is_match else one.profile.probes[0]
        return one.probe

    # --- two filters -------------------------------------------------------------------------

    def covers(self, wide: IndexedFilter, narrow: IndexedFilter) -> bool:
        """Return whether a filter covers another, as `Space` would answer."""
        if narrow.is_never or wide is narrow:
            return True
        if wide.is_never:
            return False
        if wide.is_compiled and narrow.is_compiled:
            found = self.compiled.covers(self._program(wide).words, self._program(narrow).words)
            if found is not None:
                return found
        probe = self.first_probe(narrow)
        if probe.is_event and not self._relations.matches(wide.filter, probe):
            return False
        return self._relations.covers(wide.profile, narrow.profile)

    def intersects(self, one: IndexedFilter, other: IndexedFilter) -> bool:
        """Return whether some event may match both, as `Space` would answer."""
        if one.is_never or other.is_never:
            return False
        if one.is_compiled and other.is_compiled:
            words = self._program(one).words, self._program(other).words
            found = self.compiled.intersects(*words)
            if found is not None:
                return found
        return self._relations.intersects(one.profile, other.profile)

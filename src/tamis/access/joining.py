"""A user's filter joined with those of the user's roles, as one filter in one mode.

The engine evaluates a filter in one mode. Filters of different modes can be joined if one of the
modes can express the other. Two truth values can express three, because "the atom is known" is a
condition too; but not in mode `default` for attributes with a default, whose absence it does not
see. Three can express two, except for comparisons between attributes and tests of any of them,
because no condition says that these are unknown, or only by a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from tamis.errors import AccessError, LimitError
from tamis.events import Schema
from tamis.filters import FALSE, TRUE, Filter, FilterLimits, Mode, all_of, any_of
from tamis.filters.any_text import AnyText, text_attributes
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import COMPLEMENTS, Atom, Present
from tamis.filters.boolean import MAX_DEPTH, And, Connective, Constant, Not, Or, TruthSets, Xor
from tamis.filters.limits import atom_cost
from tamis.filters.printing import ANY

# A joined filter may be larger than a user's own, within limits.
JOINED_LIMITS: Final = FilterLimits(atoms=32 * 1024, depth=MAX_DEPTH, steps=32 * 1024)


class FilterInMode(NamedTuple):
    """A filter with its mode."""

    filter: Filter
    mode: Mode


def join(
    asked: FilterInMode, allowed: Sequence[Sequence[FilterInMode]], schema: Schema | None
) -> FilterInMode:
    """Return the filter that holds where `asked` and one filter of each group of `allowed` do.

    >>> from tamis.filters import attr
    >>> asked = FilterInMode(~(attr("a") == 1), Mode.DEFAULT)
    >>> join(asked, [[FilterInMode(~(attr("b") == 2), Mode.SQL)]], schema=None).filter
    <Filter not (a = 1) and b is a number and not (b = 2)>
    """
    if not allowed:
        return asked
    mode = _common_mode([asked, *chain.from_iterable(allowed)], schema)
    groups = (any_of(*(_read_as(one, mode, schema) for one in group)) for group in allowed)
    terms = (_read_as(asked, mode, schema), *groups)
    joined = all_of(*(term for term in terms if term != TRUE))
    _check_size(joined)
    return FilterInMode(joined, mode)


def in_sql_mode(one: FilterInMode, schema: Schema | None) -> Filter:
    """Return a filter of mode `sql` for the same events, or for more where that is impossible.

    It is impossible for comparisons of attributes and tests of any of them in mode `default`.

    >>> from tamis.filters import attr
    >>> in_sql_mode(FilterInMode(~(attr("a") == 1), Mode.DEFAULT), schema=None)
    <Filter not (a is a number and a = 1)>
    >>> in_sql_mode(FilterInMode((attr("a") < attr("b")) & (attr("c") == 1), Mode.DEFAULT), None)
    <Filter c is a number and c = 1>
    """
    if one.mode.is_three_valued or not _mentions_several(one.filter):
        return _read_as(one, Mode.SQL, schema)
    return _FromAboveInSql(schema).where(one.filter, truth=True)


def _mentions_several(filter_: Filter) -> bool:
    return any(isinstance(atom, Relation | AnyText) for atom in filter_.atoms())


def _check_size(joined: Filter) -> None:
    # Shared parts may occur many times, so counting stops at the limit.
    most = JOINED_LIMITS.atoms
    if sum(map(atom_cost, islice(joined.atoms(), most + 1))) > most:
        raise LimitError("atoms in the filter and what it is joined with", actual=None, limit=most)


def _common_mode(filters: Sequence[FilterInMode], schema: Schema | None) -> Mode:
    """Return a mode in which all the filters can be expressed."""
    two_valued = [one for one in filters if not one.mode.is_three_valued]
    three_valued = [one for one in filters if one.mode.is_three_valued]
    if any(one.mode is Mode.TOTAL for one in filters):
        return Mode.TOTAL
    if not two_valued:
        return Mode.SQL
    if not any(_has_default(name, schema) for name in _attributes(three_valued)):
        return Mode.DEFAULT
    if not any(_mentions_several(one.filter) for one in two_valued):
        return Mode.SQL
    raise AccessError(
        "bad_filter",
        "this filter compares attributes, or tests any of them, in mode 'default', which cannot be "
        "combined with what you may see; use mode 'sql'",
        reason="a role's filter mentions an attribute with a default, which mode 'default' fills",
    )


def _read_as(one: FilterInMode, mode: Mode, schema: Schema | None) -> Filter:
    """Return the filter that means in `mode` what `one` means in its own mode."""
    if one.mode.is_three_valued:
        filter_ = one.filter if mode is Mode.SQL else _TwoValued().where(one.filter, truth=True)
        if one.mode is Mode.STRICT:
            return all_of(filter_, *(_known(atom) for atom in dict.fromkeys(one.filter.atoms())))
        return filter_
    # Without absent attributes, `total` and `default` are the same.
    return _with_defaults(one.filter, schema) if mode is Mode.SQL else one.filter


def _attributes(filters: Iterable[FilterInMode]) -> frozenset[str]:
    return frozenset[str]().union(*(one.filter.attributes() for one in filters))


def _has_default(name: str, schema: Schema | None) -> bool:
    if schema is None:
        return False
    names = text_attributes(schema) if name == ANY else [name]
    return any(one in schema and schema[one].default is not None for one in names)


def _known(atom: Filter) -> Filter:
    """Return where an atom is true or false, in every mode."""
    if isinstance(atom, Relation):
        # With several values both may hold; without a value, neither does.
        return any_of(atom, opposite(atom))
    known = atom.known() if isinstance(atom, Atom | AnyText) else None
    return TRUE if known is None else known


def opposite(relation: Relation) -> Relation:
    """Return the comparison that holds for the choices of values for which this one is false."""
    return Relation.of(COMPLEMENTS[relation.op], relation.left, relation.right)


class _TwoValued(TruthSets[Filter]):
    """Filters of three truth values, expressed with two.

    Every node is translated once for each truth: `xor` needs both of its terms, and without this
    every level of it would double the work.
    """

    def __init__(self) -> None:
        self._done: dict[tuple[int, bool], Filter] = {}

    def where(self, filter_: Filter, *, truth: bool) -> Filter:
        key = id(filter_), truth
        if key not in self._done:
            self._done[key] = super().where(filter_, truth=truth)
        return self._done[key]

    def _constant(self, value: bool) -> Filter:
        return TRUE if value else FALSE

    def _all(self, parts: Sequence[Filter]) -> Filter:
        return And.of(parts)

    def _any(self, parts: Sequence[Filter]) -> Filter:
        return Or.of(parts)

    def _parity(self, terms: Sequence[Filter], *, odd: bool) -> Filter:
        parity = Xor.of(self.where(term, truth=True) for term in terms)
        known = (
            any_of(self.where(term, truth=True), self.where(term, truth=False)) for term in terms
        )
        return all_of(parity if odd else Not.of(parity), *known)

    def _atom(self, atom: Filter, *, truth: bool) -> Filter:
        return atom if truth else all_of(_known(atom), Not.of(atom))


def _with_defaults(filter_: Filter, schema: Schema | None) -> Filter:
    """Return the filter of mode `default` in mode `sql`; it has no comparison of attributes."""
    match filter_:
        case Constant():
            return filter_
        case Not(term=term):
            return Not.of(_with_defaults(term, schema))
        case Connective(terms=terms):
            return type(filter_).of(_with_defaults(term, schema) for term in terms)
        case _:
            assert isinstance(filter_, Atom)  # noqa: S101 - `_common_mode` lets nothing else through
            return _atom_with_default(filter_, schema)


def _atom_with_default(atom: Atom, schema: Schema | None) -> Filter:
    # Joined with the kind, an atom without a value is false, not unknown.
    known = all_of(_known(atom), atom)
    if not _has_default(atom.attribute, schema):
        return known
    assert schema is not None  # noqa: S101 - it has a default
    if isinstance(atom, Present):
        return TRUE
    passes = atom.passes(schema[atom.attribute].default)
    return any_of(known, Not.of(Present(atom.attribute))) if passes else known


def without_attributes(filter_: Filter, is_named: Callable[[str], bool]) -> Filter:
    """Return a filter of mode `sql` for the same events and more, which names only some attributes.

    >>> from tamis.filters import attr
    >>> filter_ = (attr("city") == "Bern") & ~(attr("salary") < 5)
    >>> without_attributes(filter_, lambda name: name != "salary")
    <Filter city = "Bern">
    """
    return _WithoutAttributes(is_named).where(filter_, truth=True)


class _WithoutAttributes(TruthSets[Filter]):
    """A filter of mode `sql` in which atoms of attributes that it may not name always hold."""

    def __init__(self, is_named: Callable[[str], bool]) -> None:
        self._is_named = is_named

    def _constant(self, value: bool) -> Filter:
        return TRUE if value else FALSE

    def _all(self, parts: Sequence[Filter]) -> Filter:
        return all_of(*(part for part in parts if part != TRUE))

    def _any(self, parts: Sequence[Filter]) -> Filter:
        return TRUE if TRUE in parts else any_of(*parts)

    def _parity(self, terms: Sequence[Filter], *, odd: bool) -> Filter:
        if not all(self._names_all_of(term) for term in terms):
            return TRUE
        parity = Xor.of(terms)
        return parity if odd else Not.of(parity)

    def _atom(self, atom: Filter, *, truth: bool) -> Filter:
        if not self._names_all_of(atom):
            return TRUE
        return atom if truth else Not.of(atom)

    def _names_all_of(self, filter_: Filter) -> bool:
        return all(map(self._is_named, filter_.attributes()))


class _FromAboveInSql(TruthSets[Filter]):
    """A filter of mode `default` in mode `sql`; atoms that it cannot express always hold."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema

    def _constant(self, value: bool) -> Filter:
        return TRUE if value else FALSE

    def _all(self, parts: Sequence[Filter]) -> Filter:
        return all_of(*(part for part in parts if part != TRUE))

    def _any(self, parts: Sequence[Filter]) -> Filter:
        return TRUE if TRUE in parts else any_of(*parts)

    def _parity(self, terms: Sequence[Filter], *, odd: bool) -> Filter:
        if any(map(_mentions_several, terms)):
            return TRUE
        parity = Xor.of(_with_defaults(term, self._schema) for term in terms)
        return parity if odd else Not.of(parity)

    def _atom(self, atom: Filter, *, truth: bool) -> Filter:
        if not isinstance(atom, Atom):
            return TRUE
        known = _atom_with_default(atom, self._schema)
        return known if truth else Not.of(known)

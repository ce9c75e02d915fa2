"""The rights of a principal: the union of what its roles allow.

No answer may reveal a hidden attribute. So a user's filter is evaluated only on events of which the
user may see every attribute that it mentions; then its answer reveals no more than the event. If
several roles show an event, the user sees the attributes that any of them shows.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tamis.access.attributes import DATA_AS_BYTES, AttributeSet, project
from tamis.access.every_value import from_above, has_single_values
from tamis.access.joining import FilterInMode, in_sql_mode, join, without_attributes
from tamis.access.quotas import Quotas
from tamis.access.roles import Role, Scope
from tamis.errors import AccessError
from tamis.events import CloudEvent, Event, Schema
from tamis.events.gathering import HoldsAttributes
from tamis.filters import Filter, all_of, any_of
from tamis.filters.element_test import ElementTest
from tamis.filters.modes import as_mode
from tamis.filters.printing import ANY, show_name
from tamis.languages.exactness import QueryTest, over_attributes

PublishedEvent = Event | CloudEvent | HoldsAttributes
"""An event as it was published; what is neither of the first two is a document."""


class Sight:
    """The part of an event that a principal may see."""

    __slots__ = ("_schema", "_sets")

    def __init__(self, sets: Sequence[AttributeSet], schema: Schema | None = None) -> None:
        self._sets = sets
        self._schema = schema

    @property
    def is_whole(self) -> bool:
        """Return whether nothing is hidden, so that the event may be sent as published."""
        return any(attributes.are_all for attributes in self._sets)

    def covers(self, names: Iterable[str]) -> bool:
        """Return whether all these attributes, such as those of a filter, are visible."""
        return all(_include(self._sets, name) for name in names)

    def document(self, document: Mapping[str, object]) -> dict[str, object]:
        """Return the visible part of the event as decoded JSON."""
        return project(document, self._sets)

    def event(self, event: Event) -> Event:
        """Return the event with its visible attributes."""
        return Event.of_checked(
            {name: values for name, values in event.items() if _include(self._sets, name)}
        )

    @property
    def schema(self) -> Schema | None:
        """Return the schema without hidden attributes, for explanations."""
        return _visible(self._schema, self._sets)


class Rights:
    """The rights of the holders of some roles.

    >>> from tamis.access import Policy, Principal
    >>> from tamis.languages import parse
    >>> policy = Policy.parse('''
    ... [roles.trader]
    ... see = { filter = "level < 3", hide = ["level"] }
    ... ''')
    >>> rights = policy.rights(Principal("ann", ("trader",)))
    >>> rights.effective(parse("price > 5"), "sql")
    FilterInMode(filter=<Filter price > 5 and level < 3>, mode=<Mode.SQL: 'sql'>)
    >>> rights.effective(parse("price > 5 or level = 2"), "sql")
    Traceback (most recent call last):
    tamis.errors.AccessError: the filter mentions level, which is not an attribute that you may see
    """

    def __init__(
        self,
        roles: Iterable[Role],
        schema: Schema | None = None,
        quotas: Mapping[str, float] | None = None,
        *,
        digest: str = "",
    ) -> None:
        given = sorted({role.name: role for role in roles}.values())
        self.roles: Final = tuple(role.name for role in given)
        """Identifies what the roles show: results for one holder are valid for another."""
        self.digest: Final = digest or secrets.token_hex(16)
        """Rights with equal digests are equal, even in another process."""
        self.limits: Final = Quotas.united((role.quotas for role in given), quotas)
        self.is_admin: Final = any(role.admin for role in given)
        self.is_peer: Final = any(role.peer for role in given)
        """Whether a broker with these rights may link to this one."""
        self.may_quench: Final = any(role.quench for role in given)
        """Whether the principal may know if anybody asks for what it publishes."""
        self._publishing: Final = [role.publish for role in given if role.publish is not None]
        self._serving: Final = [role.serve for role in given if role.serve is not None]
        self._seeing: Final = [role.see for role in given if role.see is not None]
        self.publishes_everything: Final = any(map(_is_unlimited, self._publishing))
        """Whether every event may be published."""
        self.serves_everything: Final = any(map(_is_unlimited, self._serving))
        """Whether queries may be answered with every row."""
        self.hides_anything: Final = not any(map(_is_unlimited, self._seeing))
        """Whether there are events of which something may not be seen."""
        above = [from_above(scope.condition) for scope in self._seeing]
        self._matched: Final = [condition for condition, _ in above]
        """The conditions of the scopes, for the engine."""
        self._are_exact: Final = all(is_exact for _, is_exact in above)
        self._tested: Final = frozenset[str]().union(
            *(scope.condition.filter.attributes() for scope in self._seeing)
        )
        """The attributes that decide which events may be seen."""
        self._schema: Final = schema
        self.schema: Final = _visible(schema, self._sets)
        """The schema without attributes that are hidden in every event, for a user's filters."""

    # --- publishing --------------------------------------------------------------------------

    @property
    def may_publish(self) -> bool:
        """Return whether the principal may publish any events."""
        return bool(self._publishing)

    def check_publish(self, event: PublishedEvent) -> None:
        """Refuse an event that no role allows to publish with all its attributes."""
        if not isinstance(event, Event | CloudEvent):
            if not any(scope.has_document(event) for scope in self._publishing):
                raise self.unpublishable("the document, or that they restrict attributes")
            return
        plain, names = _taken_apart(event, self._schema)
        allowed = _having_all_of(self._publishing, names)
        if not any(scope.has(plain, self._schema) for scope in allowed):
            raise self.unpublishable(
                "the event does not satisfy their filters" if allowed else "its attributes"
            )

    def unpublishable(self, reason: str) -> AccessError:
        """Return the error for all forbidden publications; only the log has the reason."""
        return AccessError(
            "forbidden",
            "this is not an event that you may publish",
            reason=f"roles {list(self.roles)}: {reason}",
        )

    def may_publish_with(self, names: Iterable[str]) -> bool:
        """Return whether some event with all these attributes may be published."""
        return bool(_having_all_of(self._publishing, [*names]))

    def publishable(self, filter_: Filter) -> Filter:
        """Return a filter for the events that match one and may be published, or for some more.

        Both are of mode `sql`.
        """
        scopes = self._publishing
        if any(scope.has_all_events for scope in scopes):
            return filter_
        conditions = (from_above(scope.condition)[0] for scope in scopes)
        return all_of(filter_, any_of(*(in_sql_mode(one, self._schema) for one in conditions)))

    # --- answering queries -------------------------------------------------------------------

    @property
    def may_serve(self) -> bool:
        """Return whether the principal may answer queries."""
        return bool(self._serving)

    def may_serve_row(self, row: Event) -> bool:
        """Return whether some role allows to answer with a row that has all its attributes."""
        allowed = _having_all_of(self._serving, [*row])
        return any(scope.has(row, self._schema) for scope in allowed)

    # --- subscribing -------------------------------------------------------------------------

    @property
    def may_subscribe(self) -> bool:
        """Return whether the principal may see any events."""
        return bool(self._seeing)

    def may_mention(self, names: Iterable[str]) -> bool:
        """Return whether filters may mention these attributes: some role shows each of them."""
        return self.may_subscribe and all(_include(self._sets, name) for name in names)

    def without_hidden(self, filter_: Filter) -> Filter:
        """Return a filter for the same events and more, without attributes that are hidden."""
        return without_attributes(filter_, lambda name: self.may_mention([name]))

    def check_filter(self, filter_: Filter) -> Filter:
        """Return a user's own filter, bound to the schema, or refuse it.

        It contains nothing of the roles' filters, so it may be explained to the user.
        """
        if not self._seeing:
            raise AccessError("forbidden", "your roles allow you to see no events")
        if self.schema is not None:
            # Hidden attributes are not in this schema, so they are refused like unknown ones.
            filter_ = filter_.bind(self.schema)
        for name in sorted(filter_.attributes()):
            if not _include(self._sets, name):
                if isinstance(filter_, QueryTest):
                    raise AccessError(
                        "forbidden",
                        "a query can ask for anything in a document, and there are attributes that "
                        "you may not see",
                    )
                if name == ANY:
                    raise AccessError(
                        "forbidden",
                        "the filter tests any attribute, and there are some that you may not see: "
                        "name those that it is about",
                    )
                raise AccessError(
                    "forbidden",
                    f"the filter mentions {show_name(name)}, which is not an attribute that you "
                    "may see",
                )
        self._check_elements(filter_)
        return filter_

    def _check_elements(self, filter_: Filter) -> None:
        """Refuse tests of elements that may have hidden attributes.

        An element of which nothing is visible would be tested, too, and is not there for the user.
        """
        for atom in filter_.atoms():
            if isinstance(atom, ElementTest) and not all(
                one.include_all_in(atom.attribute) for one in self._sets
            ):
                raise AccessError(
                    "forbidden",
                    f"the filter tests elements of {show_name(atom.attribute)}, of which you may "
                    "not see everything: test attributes alone, as in "
                    f"'{show_name(atom.attribute)}.x = 1'",
                )

    def effective(self, filter_: Filter, mode: str) -> FilterInMode:
        """Return a user's filter joined with those of the roles, for matching.

        It holds wherever the user may see that the user's filter does. If some attribute has
        several values, it may hold elsewhere too: `admits` tells. So it may if the filter is a
        query, or tests elements: `satisfies` tells.
        """
        own = FilterInMode(*over_attributes(self.check_filter(filter_), as_mode(mode)))
        return join(own, self._conditions(filter_.attributes()), self._schema)

    def _conditions(self, names: frozenset[str]) -> list[list[FilterInMode]]:
        """Return groups of filters; all of `names` are visible if one filter of each holds."""
        groups = {
            frozenset(n for n, scope in enumerate(self._seeing) if scope.attributes.include(name))
            for name in names
        } or {frozenset(range(len(self._seeing)))}
        # A superset of another group adds no condition.
        needed = [group for group in groups if not any(other < group for other in groups)]
        return [
            [self._matched[n] for n in sorted(group)]
            for group in sorted(needed, key=sorted)
            if not any(self._seeing[n].has_all_events for n in group)
        ]

    def admits(
        self, event: PublishedEvent, plain: Event | HoldsAttributes, filter_: Filter
    ) -> bool:
        """Return whether an event that the effective filter matched may be seen.

        `plain` are the attributes of the event.
        """
        if isinstance(plain, Event) and self._are_exact and has_single_values(plain, self._tested):
            return True
        sight = self.sight(event)
        return sight is not None and sight.covers(filter_.attributes())

    # --- seeing ------------------------------------------------------------------------------

    def sight(self, event: PublishedEvent) -> Sight | None:
        """Return the visible part of an event, None if the event is invisible."""
        if not isinstance(event, Event | CloudEvent):
            whole = [s.attributes for s in self._seeing if s.has_document(event)]
            return Sight(whole, self._schema) if whole else None
        plain, _ = _taken_apart(event, self._schema)
        seeing = [s.attributes for s in self._seeing if s.has(plain, self._schema)]
        return Sight(seeing, self._schema) if seeing else None

    @property
    def _sets(self) -> list[AttributeSet]:
        return [scope.attributes for scope in self._seeing]


def _having_all_of(scopes: Iterable[Scope], names: Sequence[str]) -> list[Scope]:
    """Return the scopes that have all these attributes."""
    return [s for s in scopes if s.attributes.are_all or all(map(s.attributes.include, names))]


def _is_unlimited(scope: Scope) -> bool:
    return scope.has_all_events and scope.attributes.are_all


def _include(sets: Iterable[AttributeSet], name: str) -> bool:
    return any(attributes.include(name) for attributes in sets)


def _visible(schema: Schema | None, sets: Iterable[AttributeSet]) -> Schema | None:
    if schema is None:
        return None
    return Schema({name: declared for name, declared in schema.items() if _include(sets, name)})


def _taken_apart(event: Event | CloudEvent, schema: Schema | None) -> tuple[Event, list[str]]:
    """Return an event, and the names of its contents, including bytes, which are no attribute."""
    if isinstance(event, Event):
        return event, [*event]
    # The filters of roles need values of the declared types.
    plain = event.event() if schema is None else schema.ensure_conforming(event.event())
    return plain, [*plain, DATA_AS_BYTES] if isinstance(event.data, bytes) else [*plain]

"""Who may see what, said a second time and plainly; nothing here comes from `tamis.access`.

Of the rest of Tamis it takes events and what filters mean, which have tests of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, NamedTuple

from strategies import INSTANTS, VALUES, World, fits, random_filter
from tamis.errors import TamisError
from tamis.events import Attribute, Event, Schema, Type, decode_json
from tamis.events.json_text import json_form
from tamis.events.kinds import KIND_OF_TYPE
from tamis.events.values import format_timestamp
from tamis.filters import TRUE, Filter, Mode
from tamis.filters.printing import ANY

NAMES = ("a", "b", "b.c", "b.d", "e.f.g", "e.f", "level", "levels", "h i")
KEYS = {
    "": ("a", "b", "e", "level", "levels", "h i", "b.c", "e.f"),
    "b": ("c", "d"),
    "e": ("f",),
    "e.f": ("g",),
}
MODES = (Mode.SQL, Mode.SQL, Mode.STRICT, Mode.DEFAULT)

Document = dict[str, Any]


class Sees(NamedTuple):
    """What the holders of one role see."""

    name: str
    filter: Filter
    mode: Mode
    shown: tuple[str, ...] | None
    hidden: tuple[str, ...]

    def has(self, event: Event, schema: Schema | None) -> bool:
        """Return whether the filter holds, whichever value of each attribute one takes."""
        return all(self.filter.matches(one, self.mode, schema) for one in choices(event))

    def shows(self, name: str) -> bool:
        if name == ANY:
            return self.shown is None and not self.hidden
        outer = [name[:at] for at in range(len(name)) if name[at] == "."] + [name]
        shown = self.shown is None or any(one in self.shown for one in outer)
        return shown and not any(one in self.hidden for one in outer)

    def toml(self) -> str:
        parts = [f"filter = {json.dumps(str(self.filter))}", f'mode = "{self.mode.value}"']
        if self.shown is not None:
            parts.append(f"show = {json.dumps(self.shown)}")
        if self.hidden:
            parts.append(f"hide = {json.dumps(self.hidden)}")
        return f"[roles.{self.name}]\nsee = {{ {', '.join(parts)} }}\n"


class Case(NamedTuple):
    """Someone with roles, a filter of theirs, and an event that was published."""

    schema: Schema | None
    roles: tuple[Sees, ...]
    filter: Filter
    mode: Mode
    document: Document

    def event(self, document: Document | None = None) -> Event:
        text = json.dumps(self.document if document is None else document)
        event = decode_json(text, schema=self.schema)
        if self.mode is Mode.TOTAL:
            assert self.schema is not None
            self.schema.require_all(event)
        return event

    def admitting(self, event: Event) -> tuple[Sees, ...]:
        """Return the roles by which an event is seen."""
        return tuple(role for role in self.roles if role.has(event, self.schema))

    def is_allowed(self) -> bool:
        """Return whether the filter mentions only what is ever seen."""
        return bool(self.roles) and all(
            any(role.shows(name) for role in self.roles) for name in self.filter.attributes()
        )

    def ever_seen(self) -> Schema | None:
        """Return the schema of the attributes that are ever seen."""
        if self.schema is None:
            return None
        return Schema({n: a for n, a in self.schema.items() if shown_by(self.roles, n)})

    def is_read_on(self, event: Event) -> bool:
        """Return whether the filter is read on an event: all it mentions is seen of this one."""
        by = self.admitting(event)
        return bool(by) and all(shown_by(by, name) for name in self.filter.attributes())

    def matches(self, event: Event) -> bool:
        """Return whether the user gets the event."""
        return (
            self.is_allowed()
            and self.is_read_on(event)
            and self.filter.matches(event, self.mode, self.schema)
        )

    def seen(self, event: Event) -> dict[str, Any]:
        """Return the attributes that are seen of an event."""
        by = self.admitting(event)
        return {name: values for name, values in event.items() if shown_by(by, name)}


def choices(event: Event) -> Iterator[Event]:
    """Yield the events with one value of each attribute of an event."""
    for chosen in product(*event.values()):
        yield Event(dict(zip(event, chosen, strict=True)))


def shown_by(roles: Sequence[Sees], name: str) -> bool:
    return any(role.shows(name) for role in roles)


def leaves(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a document holds, empty things included, each with the attribute's name."""
    if isinstance(data, dict) and data:
        for key, item in data.items():
            yield from leaves(item, f"{prefix}.{key}" if prefix else key)
    elif isinstance(data, list) and data:
        for item in data:
            yield from leaves(item, prefix)
    else:
        yield prefix, data


# --- chance -----------------------------------------------------------------------------------


def random_case(rng: Random) -> Case:
    """Return a case in which the event can be published."""
    while True:
        schema = random_schema(rng) if rng.random() < 0.4 else None
        total = schema is not None and rng.random() < 0.25
        roles = random_roles(rng, schema)
        mode = Mode.TOTAL if total else rng.choice(MODES)
        filter_ = random_own_filter(rng, world_of(schema), roles)
        case = Case(schema, roles, filter_, mode, {})
        found = [case._replace(document=random_document(rng, case)) for _ in range(5)]
        possible = [one for one in found if can_be_published(one, one.document)]
        # Chance alone would seldom make an event that someone gets.
        wanted = [one for one in possible if one.matches(one.event())]
        if possible:
            return (wanted or possible)[0] if rng.random() < 0.7 else possible[0]


def random_roles(rng: Random, schema: Schema | None) -> tuple[Sees, ...]:
    world = world_of(schema)
    return tuple(random_role(rng, n, world) for n in range(rng.choice((1, 1, 1, 2, 2, 3))))


def world_of(schema: Schema | None) -> World:
    return World([*schema] if schema else NAMES, schema, exact=False)


def random_schema(rng: Random) -> Schema:
    names = rng.sample(("a", "b.c", "b.d", "e.f.g", "level", "levels"), rng.randint(2, 5))
    return Schema({name: random_attribute(rng) for name in names})


def random_attribute(rng: Random) -> Attribute:
    type_ = rng.choice(list(Type))
    pool = [v for v in VALUES[KIND_OF_TYPE[type_]] if fits(v, type_)]
    return Attribute(type_, rng.choice((None, rng.choice(pool))), rng.random() < 0.4)


def random_role(rng: Random, number: int, world: World) -> Sees:
    names = (*world.names, "b", "e", "e.f", "nobody")
    filter_ = TRUE if rng.random() < 0.2 else random_filter(rng, world, rng.choice((0, 1, 2)))
    if world.schema is not None:
        filter_ = filter_.bind(world.schema)
    return Sees(
        f"r{number}",
        filter_,
        rng.choice(MODES),
        tuple(rng.sample(names, rng.randint(1, 4))) if rng.random() < 0.3 else None,
        tuple(rng.sample(names, rng.choice((0, 1, 1, 2, 3)))),
    )


def random_own_filter(rng: Random, world: World, roles: Sequence[Sees]) -> Filter:
    """Return a user's filter; most often one that mentions nothing hidden."""
    seen = [name for name in world.names if shown_by(roles, name)]
    if rng.random() < 0.1:
        return TRUE
    if seen and rng.random() < 0.85:
        world = World(seen, world.schema, exact=False)
    return random_filter(rng, world, rng.choice((0, 1, 1, 2, 3)))


def random_document(rng: Random, case: Case) -> Document:
    if case.mode is Mode.TOTAL:
        assert case.schema is not None
        return {name: random_value(rng, case.schema, name) for name in case.schema}
    return random_object(rng, case.schema, "")


def random_object(rng: Random, schema: Schema | None, prefix: str) -> Document:
    keys = [key for key in KEYS[prefix] if rng.random() < 0.55]
    rng.shuffle(keys)
    return {key: random_member(rng, schema, f"{prefix}.{key}" if prefix else key) for key in keys}


def random_member(rng: Random, schema: Schema | None, name: str) -> Any:
    if name in KEYS and rng.random() < 0.8:
        several = range(rng.choice((1, 2, 3))) if rng.random() < 0.3 else None
        if several is None:
            return random_object(rng, schema, name)
        return [
            random_object(rng, schema, name)
            if rng.random() < 0.7
            else random_value(rng, schema, name)
            for _ in several
        ]
    return random_value(rng, schema, name)


def random_value(rng: Random, schema: Schema | None, name: str) -> Any:
    """Return a value as JSON has it, of the declared type if there is one."""
    if schema is None or name not in schema:
        one: Any = rng.choice((0, 1, 2, 1.5, -1, True, False, "", "a", "b", "ab", None))
        return [one, rng.choice((0, 1, "a", True, [], {}))] if rng.random() < 0.2 else one
    declared = schema[name]
    count = rng.choice((1, 2, 3)) if declared.many else 1
    values = [as_json(rng, declared.type) for _ in range(count)]
    return values if declared.many and rng.random() < 0.7 else values[0]


def as_json(rng: Random, type_: Type) -> Any:
    if type_ is Type.TIMESTAMP:
        return format_timestamp(rng.choice(INSTANTS))
    kind = KIND_OF_TYPE[type_]
    value = rng.choice([v for v in VALUES[kind] if fits(v, type_) and v not in _INFINITE])
    return json_form(value)


_INFINITE = (float("inf"), float("-inf"))


def can_be_published(case: Case, document: Document) -> bool:
    try:
        case.event(document)
    except TamisError:
        return False
    return True


def random_twin(rng: Random, case: Case) -> Document | None:
    """Return another document that differs only in what the case's user does not see, or None.

    The roles let both through or neither: that they do is what their filters tell.
    """
    by = case.admitting(case.event())
    for _ in range(6):
        # Of an event that is not seen at all, any other is a twin.
        twin = random_document(rng, case) if not by else hidden_changed(rng, case, by)
        if can_be_published(case, twin) and case.admitting(case.event(twin)) == by:
            return twin
    return None


def hidden_changed(rng: Random, case: Case, by: Sequence[Sees]) -> Document:
    document = scrambled(rng, case.schema, case.document, "", by)
    return with_more_hidden(rng, case.schema, document, by)


def scrambled(
    rng: Random, schema: Schema | None, data: Any, prefix: str, by: Sequence[Sees]
) -> Any:
    """Return the data with hidden values changed, gone or doubled."""
    if isinstance(data, dict):
        members = {}
        for key, item in data.items():
            name = f"{prefix}.{key}" if prefix else key
            if is_hidden_throughout(item, name, by) and rng.random() < 0.5:
                if rng.random() < 0.5 and not shown_by(by, name):
                    members[key] = random_value(rng, schema, name)
                continue
            members[key] = scrambled(rng, schema, item, name, by)
        return members
    if isinstance(data, list):
        return [
            scrambled(rng, schema, item, prefix, by)
            for item in data
            if not (is_hidden_throughout(item, prefix, by) and rng.random() < 0.5)
        ]
    if not shown_by(by, prefix):
        return random_value(rng, schema, prefix)
    return data


def is_hidden_throughout(item: Any, name: str, by: Sequence[Sees]) -> bool:
    """Return whether a member, or an element of a list, holds nothing that is seen."""
    held = [leaf for leaf, value in leaves(item, name) if value not in (None, [], {})]
    return not any(shown_by(by, leaf) for leaf in held or [name])


def with_more_hidden(
    rng: Random, schema: Schema | None, document: Document, by: Sequence[Sees]
) -> Document:
    """Return the document with some hidden attributes more, written in one way or another."""
    more = dict(document)
    held = {name for name, _ in leaves(document)}
    for name in NAMES:
        if shown_by(by, name) or name in held or rng.random() < 0.5:
            continue
        value = random_value(rng, schema, name)
        first, _, rest = name.partition(".")
        if rest and first not in more and rng.random() < 0.6:
            more[first] = nested(rest, value)
        elif rest and isinstance(more.get(first), list) and rng.random() < 0.6:
            more[first] = [*more[first], nested(rest, value)]
        elif rest and isinstance(more.get(first), dict) and rest not in more[first]:
            more[first] = {**more[first], rest: value}
        elif name not in more:
            more[name] = value
    if any(not shown_by(by, name) for name in NAMES):
        more.setdefault("x", rng.choice(({}, [], None, [None, {}])))
    return more


def nested(path: str, value: Any) -> Document:
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}

"""People with roles, what they ask for, and what is published: drawn by chance.

What each may see is said by the oracle of `tests/access`. A *twin* of a scene differs, for one of
its people, only in what that one may not see.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from access.oracle import (
    MODES,
    Case,
    Document,
    Sees,
    can_be_published,
    random_document,
    random_own_filter,
    random_roles,
    random_schema,
    random_twin,
    shown_by,
    world_of,
)
from tamis.broker import BrokerSettings
from tamis.errors import TamisError
from tamis.events import Schema, decode_schema
from tamis.events.schema_json import schema_data
from tamis.filters import TRUE, Filter, Mode

FEED = "feed"


class Asked(NamedTuple):
    """A filter that someone subscribes with."""

    filter: Filter
    mode: Mode


class Person(NamedTuple):
    """Someone who has roles, which say other things after the policy has changed."""

    name: str
    roles: tuple[Sees, ...]
    later: tuple[Sees, ...]
    by_token: tuple[str, ...]
    """The roles that come with the token; the policy's file gives the others."""
    asked: tuple[Asked, ...]


class Scene(NamedTuple):
    """A policy with all whom it is for, and what is published, in acts."""

    schema: Schema | None
    is_total: bool
    people: tuple[Person, ...]
    acts: tuple[tuple[Document, ...], ...]

    def case(
        self, person: Person, asked: Asked, document: Document, *, later: bool = False
    ) -> Case:
        """Return what the oracle is asked about."""
        roles = person.later if later else person.roles
        return Case(self.schema, roles, asked.filter, asked.mode, document)

    def policy(self, *, later: bool = False) -> str:
        """Return the text of the policy file."""
        tables, held = [f"[roles.{FEED}]\npublish = true\n"], [f'{FEED} = ["{FEED}"]\n']
        for person in self.people:
            roles = person.later if later else person.roles
            tables += [role.toml() for role in roles]
            others = [role.name for role in roles if role.name not in person.by_token]
            held.append(f"{person.name} = {json.dumps(others)}\n")
        return "".join((*tables, "[principals]\n", *held))

    def settings(self, folder: Path, **more: Any) -> BrokerSettings:
        """Return the settings of a broker for the scene, with the policy as it is first."""
        folder.mkdir(parents=True, exist_ok=True)
        policy, schema = folder / "policy.toml", folder / "schema.json"
        policy.write_text(self.policy())
        if self.schema is not None:
            schema.write_text(json.dumps(schema_data(self.schema)))
        return BrokerSettings(
            data=folder / "data",
            policy=policy,
            schema_file=None if self.schema is None else schema,
            mode=Mode.TOTAL if self.is_total else Mode.SQL,
            **more,
        )


# --- chance --------------------------------------------------------------------------------------


def random_scene(rng: Random, *, people: int, filters: int, acts: Sequence[int]) -> Scene:
    """Return a scene with so many people, filters of each, and events in each act."""
    schema = random_written_schema(rng) if rng.random() < 0.4 else None
    is_total = schema is not None and rng.random() < 0.25
    scene = Scene(schema, is_total, (), ())
    scene = scene._replace(
        people=tuple(random_person(rng, f"p{n}", scene, filters) for n in range(people))
    )
    return scene._replace(acts=tuple(random_act(rng, scene, size) for size in acts))


def random_written_schema(rng: Random) -> Schema:
    """Return a schema that JSON can say."""
    while True:
        schema = random_schema(rng)
        try:
            if decode_schema(json.dumps(schema_data(schema), allow_nan=False)) == schema:
                return schema
        except (TamisError, ValueError):
            continue


def random_person(rng: Random, name: str, scene: Scene, filters: int) -> Person:
    roles, later = (
        tuple(role._replace(name=f"{name}-{role.name}") for role in random_roles(rng, scene.schema))
        for _ in range(2)
    )
    if rng.random() < 0.4:
        # Much as it was: what is widened and what is narrowed a little is the more telling.
        later = tuple(_altered(rng, role) for role in roles)
    by_token = tuple(role.name for role in roles if rng.random() < 0.5)
    asked = tuple(random_asked(rng, scene, roles) for _ in range(filters))
    return Person(name, roles, later, (*by_token, "unheard-of"), asked)


def _altered(rng: Random, role: Sees) -> Sees:
    match rng.randrange(4):
        case 0:
            return role._replace(hidden=role.hidden[1:])
        case 1:
            return role._replace(hidden=(*role.hidden, rng.choice(("a", "b.c", "level", "e.f"))))
        case 2:
            return role._replace(filter=TRUE)
        case _:
            return role


def random_asked(rng: Random, scene: Scene, roles: Sequence[Sees]) -> Asked:
    mode = Mode.TOTAL if scene.is_total else rng.choice(MODES)
    return Asked(random_own_filter(rng, world_of(scene.schema), roles), mode)


def random_act(rng: Random, scene: Scene, size: int) -> tuple[Document, ...]:
    return tuple(random_published(rng, scene) for _ in range(size))


def random_published(rng: Random, scene: Scene) -> Document:
    """Return an event that can be published, most often one that many get."""
    every = [scene.case(person, asked, {}) for person in scene.people for asked in person.asked]
    while True:
        case = rng.choice(every)
        drawn = (random_document(rng, case) for _ in range(6))
        possible = [one for one in drawn if can_be_published(case, one)]
        if possible and rng.random() < 0.7:
            return max(possible, key=lambda one: sum(c.matches(c.event(one)) for c in every))
        if possible:
            return possible[0]


# --- twins ---------------------------------------------------------------------------------------


def twin_of(rng: Random, scene: Scene, person: Person) -> Scene:
    """Return a scene in which this person sees the same, before and after the policy's change."""
    acts = (tuple(_twin(rng, scene, person, one) for one in act) for act in scene.acts)
    return scene._replace(people=(person,), acts=tuple(acts))


def _twin(rng: Random, scene: Scene, person: Person, document: Document) -> Document:
    before, after = (
        scene.case(person, person.asked[0], document, later=later) for later in (False, True)
    )
    for case, other in ((before, after), (after, before)):
        twin = random_twin(rng, case)
        if (
            twin is not None
            and twin != document
            and all(_seen_alike(one, twin) for one in (case, other))
        ):
            return twin
    return document


def _seen_alike(case: Case, twin: Document) -> bool:
    by = case.admitting(case.event())
    if case.admitting(case.event(twin)) != by:
        return False
    return not by or json.dumps(visible(case.document, by)) == json.dumps(visible(twin, by))


def visible(document: Document, by: Sequence[Sees]) -> Document:
    """Return what the roles by which an event is seen show of it, as it was written."""
    if any(role.shown is None and not role.hidden for role in by):
        return document
    return dict(_members(document, "", by))


def _members(document: Document, prefix: str, by: Sequence[Sees]) -> Iterator[tuple[str, Any]]:
    for key, item in document.items():
        left = _item(item, f"{prefix}{key}", by)
        if left is not None:
            yield key, left


def _item(item: Any, name: str, by: Sequence[Sees]) -> Any:
    if isinstance(item, dict):
        return dict(_members(item, f"{name}.", by)) or None
    if isinstance(item, list):
        return [one for one in (_item(one, name, by) for one in item) if one is not None] or None
    return item if shown_by(by, name) else None

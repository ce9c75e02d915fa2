"""Random scenarios: participants with roles and filters, and the events that are published.

The oracle of `tests/access` knows what each participant may see. The *twin* of a scenario differs
only in what one of its participants may not see.
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
from tamis.events.json_text import schema_data
from tamis.filters import TRUE, Filter, Mode

FEED = "feed"


class RequestedFilter(NamedTuple):
    """A filter that a participant subscribes with."""

    filter: Filter
    mode: Mode


class Participant(NamedTuple):
    """A principal whose roles mean something else after the policy changes."""

    name: str
    roles: tuple[Sees, ...]
    later: tuple[Sees, ...]
    by_token: tuple[str, ...]
    """The roles in the token; the policy file grants the others."""
    asked: tuple[RequestedFilter, ...]


class Scenario(NamedTuple):
    """A policy with its participants, and the events published in each phase."""

    schema: Schema | None
    is_total: bool
    participants: tuple[Participant, ...]
    phases: tuple[tuple[Document, ...], ...]

    def case(
        self,
        participant: Participant,
        asked: RequestedFilter,
        document: Document,
        *,
        later: bool = False,
    ) -> Case:
        """Return the case to put to the oracle."""
        roles = participant.later if later else participant.roles
        return Case(self.schema, roles, asked.filter, asked.mode, document)

    def policy(self, *, later: bool = False) -> str:
        """Return the text of the policy file."""
        tables, held = [f"[roles.{FEED}]\npublish = true\n"], [f'{FEED} = ["{FEED}"]\n']
        for participant in self.participants:
            roles = participant.later if later else participant.roles
            tables += [role.toml() for role in roles]
            others = [role.name for role in roles if role.name not in participant.by_token]
            held.append(f"{participant.name} = {json.dumps(others)}\n")
        return "".join((*tables, "[principals]\n", *held))

    def settings(self, folder: Path, **more: Any) -> BrokerSettings:
        """Return the settings of a broker for the scenario, with its first policy."""
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


# --- random scenarios ----------------------------------------------------------------------------


def random_scenario(
    rng: Random, *, participants: int, filters: int, phases: Sequence[int]
) -> Scenario:
    """Return a scenario of a given size: participants, filters of each, events per phase."""
    schema = random_written_schema(rng) if rng.random() < 0.4 else None
    is_total = schema is not None and rng.random() < 0.25
    scenario = Scenario(schema, is_total, (), ())
    scenario = scenario._replace(
        participants=tuple(
            random_participant(rng, f"p{n}", scenario, filters) for n in range(participants)
        )
    )
    return scenario._replace(phases=tuple(random_phase(rng, scenario, size) for size in phases))


def random_written_schema(rng: Random) -> Schema:
    """Return a schema that survives a round trip through JSON."""
    while True:
        schema = random_schema(rng)
        try:
            if decode_schema(json.dumps(schema_data(schema), allow_nan=False)) == schema:
                return schema
        except (TamisError, ValueError):
            continue


def random_participant(rng: Random, name: str, scenario: Scenario, filters: int) -> Participant:
    roles, later = (
        tuple(
            role._replace(name=f"{name}-{role.name}") for role in random_roles(rng, scenario.schema)
        )
        for _ in range(2)
    )
    if rng.random() < 0.4:
        # Small changes, wider or narrower, find more mistakes than unrelated roles.
        later = tuple(_altered(rng, role) for role in roles)
    by_token = tuple(role.name for role in roles if rng.random() < 0.5)
    asked = tuple(random_request(rng, scenario, roles) for _ in range(filters))
    return Participant(name, roles, later, (*by_token, "unheard-of"), asked)


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


def random_request(rng: Random, scenario: Scenario, roles: Sequence[Sees]) -> RequestedFilter:
    mode = Mode.TOTAL if scenario.is_total else rng.choice(MODES)
    return RequestedFilter(random_own_filter(rng, world_of(scenario.schema), roles), mode)


def random_phase(rng: Random, scenario: Scenario, size: int) -> tuple[Document, ...]:
    return tuple(random_published(rng, scenario) for _ in range(size))


def random_published(rng: Random, scenario: Scenario) -> Document:
    """Return an event that can be published, most often one that many filters match."""
    every = [
        scenario.case(participant, asked, {})
        for participant in scenario.participants
        for asked in participant.asked
    ]
    while True:
        case = rng.choice(every)
        drawn = (random_document(rng, case) for _ in range(6))
        possible = [one for one in drawn if can_be_published(case, one)]
        if possible and rng.random() < 0.7:
            return max(possible, key=lambda one: sum(c.matches(c.event(one)) for c in every))
        if possible:
            return possible[0]


# --- twins ---------------------------------------------------------------------------------------


def twin_of(rng: Random, scenario: Scenario, participant: Participant) -> Scenario:
    """Return a scenario that looks the same to a participant under both policies."""
    phases = (
        tuple(_twin(rng, scenario, participant, one) for one in phase) for phase in scenario.phases
    )
    return scenario._replace(participants=(participant,), phases=tuple(phases))


def _twin(
    rng: Random, scenario: Scenario, participant: Participant, document: Document
) -> Document:
    before, after = (
        scenario.case(participant, participant.asked[0], document, later=later)
        for later in (False, True)
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
    """Return the part of an event that these roles show, as it was written."""
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

"""Who may see what: policies as the simulation knows them, in plain Python, and credentials."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any, NamedTuple

from simulation.loop import Life
from tamis.events import Event
from tamis.filters import Filter
from tamis.languages import parse

Document = dict[str, Any]

APPLIED_SECONDS = 1.0
"""Changed rights hold after this time."""


class RoleModel(NamedTuple):
    """What a role shows: the events of a filter, without some attributes."""

    filter: str = ""
    hidden: frozenset[str] = frozenset()

    def toml(self) -> str:
        parts = [f"filter = {json.dumps(self.filter)}"] if self.filter else []
        parts += [f"hide = {json.dumps(sorted(self.hidden))}"] if self.hidden else []
        return f"{{ {', '.join(parts)} }}" if parts else "true"

    def shows(self, event: Event) -> bool:
        return not self.filter or parsed(self.filter).matches(event)


@cache
def parsed(text: str) -> Filter:
    return parse(text)


@cache
def attributes_of(text: str) -> frozenset[str]:
    return frozenset(parsed(text).attributes())


BROAD = RoleModel()
NARROW = RoleModel("level < 3", frozenset({"secret"}))
DESKS = (
    RoleModel(),
    RoleModel("level < 5", frozenset({"secret"})),
    RoleModel("", frozenset({"b", "secret"})),
    RoleModel("level < 2"),
    RoleModel('b = "x"', frozenset({"level"})),
)
"""What the role `desk` may show, by version of the policy."""

QUOTA_EVENTS_PER_SECOND = 12


@dataclass
class PolicyModel:
    """One version of the policy file, and when it was written."""

    desk: RoleModel
    blocked: frozenset[str] = frozenset()
    written_at: float = 0.0
    replaced_at: float = inf
    _shown: dict[tuple[int, str, tuple[str, ...]], Document | None] = field(default_factory=dict)

    def toml(self) -> str:
        return "\n".join(
            [
                f"blocked = {json.dumps(sorted(self.blocked))}",
                "[roles.feed]",
                "publish = true",
                "[roles.meter]",
                "publish = true",
                f"quotas = {{ publications = {QUOTA_EVENTS_PER_SECOND} }}",
                "[roles.operator]",
                "admin = true",
                "[roles.broad]",
                f"see = {BROAD.toml()}",
                "[roles.narrow]",
                f"see = {NARROW.toml()}",
                "[roles.desk]",
                f"see = {self.desk.toml()}",
                "",
            ]
        )

    def roles(self, names: Iterable[str]) -> list[RoleModel]:
        known = {"broad": BROAD, "narrow": NARROW, "desk": self.desk}
        return [known[name] for name in sorted(names) if name in known]

    def allows(self, filter_: str, names: Iterable[str]) -> bool:
        """Return whether a filter mentions only attributes that some role shows."""
        roles = self.roles(names)
        return bool(roles) and all(
            any(name not in role.hidden for role in roles) for name in attributes_of(filter_)
        )

    def shown(
        self, document: Document, event: Event, filter_: str, names: tuple[str, ...]
    ) -> Document | None:
        """Return what the holder of some roles sees of an event that a filter finds."""
        key = document["id"], filter_, names
        if key not in self._shown:
            self._shown[key] = self._show(document, event, filter_, names)
        return self._shown[key]

    def _show(
        self, document: Document, event: Event, filter_: str, names: tuple[str, ...]
    ) -> Document | None:
        roles = [role for role in self.roles(names) if role.shows(event)]
        if not roles:
            return None
        shown = {
            name: value
            for name, value in document.items()
            if any(name not in role.hidden for role in roles)
        }
        asked = attributes_of(filter_)
        if any(all(name in role.hidden for role in roles) for name in asked):
            return None
        return shown


@dataclass
class Policies:
    """All versions of the policy, and when each may have been in force."""

    versions: list[PolicyModel] = field(default_factory=list)
    _stalls: list[tuple[float, float]] = field(default_factory=list)
    """When the matcher was kept waiting."""

    def add(self, version: PolicyModel, now: float) -> None:
        if self.versions:
            self.versions[-1].replaced_at = now
        version.written_at = now
        self.versions.append(version)

    def between(self, start: float, end: float) -> list[PolicyModel]:
        """Return the versions that may have been in force at some moment of an interval."""
        return [
            one
            for one in self.versions
            if one.written_at <= end and start <= one.replaced_at + APPLIED_SECONDS
        ]

    def matching_between(self, start: float, end: float) -> list[PolicyModel]:
        """Return the same, and those by which an event of the start may have been matched.

        Matching follows in the matcher's turn, which it may have to wait for.
        """
        return [
            one
            for one in self.versions
            if one.written_at <= end and start <= self._matching_until(one)
        ]

    def _matching_until(self, version: PolicyModel) -> float:
        until = version.replaced_at + APPLIED_SECONDS
        for begin, end in self._stalls:
            if begin <= until:
                until = max(until, end + APPLIED_SECONDS)
        return until

    def stall_matching(self, start: float, end: float) -> None:
        """Note that the matcher is kept waiting."""
        self._stalls.append((start, end))

    def end_stalls(self, now: float) -> None:
        """Note that the broker has ended; the next one matches by the policy that it finds."""
        self._stalls = [(begin, min(end, now)) for begin, end in self._stalls]


@dataclass(eq=False)
class Credential:
    """A token, and what the simulation knows of it."""

    principal: str
    roles: tuple[str, ...]
    text: str = ""
    id: str = ""
    expires_at: float = inf
    """When it expires at the latest, by the monotonic clock."""
    expires_from: float = inf
    """When it expires at the earliest."""
    issued_in: Life | None = None
    """The life of the broker that has issued it."""
    lifetime: float = inf
    written_expiry: float = inf
    """When it expires by the wall clock, as the broker said."""
    revoking_at: float = inf
    """When somebody first tried to revoke it."""
    revoked_at: float = inf
    """When the broker said that it is revoked."""

    def __str__(self) -> str:
        return f"{self.principal}[{'+'.join(self.roles)}]"

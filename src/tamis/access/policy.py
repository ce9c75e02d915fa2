"""The policy: the roles of each principal and what they grant, read from a TOML file."""

from __future__ import annotations

import json
import math
import re
import secrets
import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tamis.access.attributes import AttributeSet
from tamis.access.joining import FilterInMode
from tamis.access.rights import Rights
from tamis.access.roles import EVERYTHING, Principal, Role, Scope, is_name, is_role
from tamis.analysis.mistakes import find_mistakes
from tamis.errors import AccessError, FilterError, LimitError, PolicyError
from tamis.events import Schema
from tamis.events.schema import did_you_mean
from tamis.filters import Mode
from tamis.filters.element_test import refuse_element_tests
from tamis.filters.modes import as_mode
from tamis.languages import parse
from tamis.mismatches import find_mismatch

UNLIMITED: Final = "unlimited"

_WORDS: Final = {"array": "a list", "object": "a table", "field": "key"}
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


class PolicyFile(NamedTuple):
    """The contents of a policy file."""

    roles: list[Role]
    principals: Mapping[str, list[str]]
    quotas: Mapping[str, float]
    blocked: list[str]
    warnings: list[str]
    """Sentences about filters that look like mistakes."""


def read_policy(text: str, source: str, schema: Schema | None) -> PolicyFile:
    """Parse the text of a policy file, or raise PolicyError with the place and reason."""
    return _PolicyReader(source, schema).read(text)


# --- tables as they are written ----------------------------------------------------------------

NonEmptyName = Annotated[str, Meta(min_length=1)]
Bound = Annotated[float, Meta(ge=0)] | str | UnsetType
ScopeDeclaration = bool | str | dict[str, Any]


class _TomlTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A table; unknown keys are errors."""


class _ScopeTable(_TomlTable):
    filter: str = "true"
    language: str = "tamis"
    mode: str = Mode.SQL.value

    def attributes(self) -> AttributeSet:
        raise NotImplementedError


class _SeeTable(_ScopeTable):
    show: list[NonEmptyName] | None = None
    hide: list[NonEmptyName] = []

    def attributes(self) -> AttributeSet:
        return AttributeSet(shown=self.show, hidden=self.hide)


class _PublishTable(_ScopeTable):
    allow: list[NonEmptyName] | None = None
    forbid: list[NonEmptyName] = []

    def attributes(self) -> AttributeSet:
        return AttributeSet(shown=self.allow, hidden=self.forbid)


class _QuotasTable(_TomlTable):
    publications: Bound = UNSET
    bytes: Bound = UNSET
    event_size: Bound = UNSET
    subscriptions: Bound = UNSET
    connections: Bound = UNSET
    queries: Bound = UNSET


class _RoleTable(_TomlTable):
    publish: ScopeDeclaration = False
    see: ScopeDeclaration = False
    serve: ScopeDeclaration = False
    admin: bool = False
    peer: bool = False
    quench: bool = False
    quotas: dict[str, Any] = {}


class _PolicyTable(_TomlTable):
    # Roles and principals are converted one by one, so that an error has a place.
    roles: dict[str, Any] = {}
    principals: dict[str, Any] = {}
    quotas: dict[str, Any] = {}
    blocked: list[str] = []


T = TypeVar("T")


class _PolicyReader:
    """A reader of the tables of one file, which knows the place of each."""

    def __init__(self, source: str, schema: Schema | None) -> None:
        self._source: Final = source
        self._schema: Final = schema
        self._warnings: Final[list[str]] = []

    def read(self, text: str) -> PolicyFile:
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise self._error(f"this is not TOML: {error}", "") from None
        except RecursionError:
            raise self._error("its lists or tables are nested too deeply", "") from None
        file = self._converted(tables, _PolicyTable, "")
        roles = [self._role(name, table) for name, table in file.roles.items()]
        principals = {
            name: self._roles_of(name, held, file.roles) for name, held in file.principals.items()
        }
        quotas = self._quotas(file.quotas, "quotas")
        return PolicyFile(roles, principals, quotas, file.blocked, self._warnings)

    def _role(self, name: str, table: object) -> Role:
        place = f"roles.{_key(name)}"
        if not is_role(name):
            raise self._error("a role's name has 1 to 100 letters, digits, or _.:/-", place)
        given = self._converted(table, _RoleTable, place)
        return Role(
            name,
            publish=self._scope(given.publish, _PublishTable, f"{place}.publish"),
            see=self._scope(given.see, _SeeTable, f"{place}.see"),
            serve=self._scope(given.serve, _PublishTable, f"{place}.serve"),
            admin=given.admin,
            peer=given.peer,
            quench=given.quench,
            quotas=self._quotas(given.quotas, f"{place}.quotas"),
        )

    def _scope(self, given: ScopeDeclaration, type_: type[_ScopeTable], place: str) -> Scope | None:
        """Return the scope that a table, `true` or a filter alone describes."""
        if given is False:
            return None
        if given is True:
            return Scope()
        table = {"filter": given} if isinstance(given, str) else given
        written = self._converted(table, type_, place)
        return Scope(self._filter_in_mode(written, place), written.attributes())

    def _filter_in_mode(self, written: _ScopeTable, place: str) -> FilterInMode:
        try:
            mode = as_mode(written.mode)
        except FilterError as error:
            raise self._error(str(error), f"{place}.mode") from None
        if mode is Mode.TOTAL:
            raise self._error(
                "mode 'total' is a promise about all events; the modes of a role are 'sql', "
                "'strict' and 'default'",
                f"{place}.mode",
            )
        try:
            filter_ = parse(written.filter, written.language)
            refuse_element_tests(filter_, "a policy")
            bound = filter_ if self._schema is None else filter_.bind(self._schema)
        except (FilterError, LimitError) as error:
            raise self._error(str(error), f"{place}.filter") from None
        found = find_mistakes(filter_, written.filter, written.language, self._schema)
        self._warnings.extend(f"{self._source}: {place}.filter: {one.message}" for one in found)
        return FilterInMode(bound, mode)

    def _quotas(self, table: Mapping[str, Any], place: str) -> dict[str, float]:
        given = msgspec.structs.asdict(self._converted(table, _QuotasTable, place))
        return {
            name: self._bound(bound, f"{place}.{name}")
            for name, bound in given.items()
            if bound is not UNSET
        }

    def _bound(self, given: float | str, place: str) -> float:
        if isinstance(given, str) and given != UNLIMITED:
            raise self._error(f'it should be a number or "{UNLIMITED}", not {given!r:.60}', place)
        return math.inf if isinstance(given, str) else given

    def _roles_of(self, name: str, given: object, roles: Collection[str]) -> list[str]:
        place = f"principals.{_key(name)}"
        if not is_name(name):
            raise self._error("this is not the name of a principal", place)
        held = self._converted(given, list[str], place)
        for role in held:
            if role not in roles:
                hint = did_you_mean(role, roles) or f"describe it under [roles.{_key(role)}]"
                raise self._error(f"there is no role {role!r:.60}; {hint}", place)
        return held

    # --- mistakes ----------------------------------------------------------------------------

    def _converted(self, given: object, type_: type[T], place: str) -> T:
        try:
            return msgspec.convert(given, type_)
        except msgspec.ValidationError as error:
            raise self._unfit(error, type_, place) from None

    def _unfit(self, error: msgspec.ValidationError, type_: type, place: str) -> PolicyError:
        """Return msgspec's error as ours: first the place, then the reason."""
        inner, reason = find_mismatch(error, type_, _WORDS)
        dot = "." if inner and not inner.startswith("[") else ""
        return self._error(f"it {reason}", f"{place}{dot}{inner}".strip("."))

    def _error(self, reason: str, place: str) -> PolicyError:
        return PolicyError(reason, source=self._source, place=place)


def _key(name: str) -> str:
    """Return a key as TOML writes it."""
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name[:60])


EVERYONE: Final = "*"
_CACHED_RIGHTS: Final = 1_024


class Policy:
    """An immutable access policy.

    >>> policy = Policy.parse('''
    ... [roles.sensor]
    ... publish = 'room = "lab"'
    ... [principals]
    ... probe-7 = ["sensor"]
    ... ''')
    >>> from tamis.events import Event
    >>> policy.rights(Principal("probe-7")).check_publish(Event({"room": "attic"}))
    Traceback (most recent call last):
    tamis.errors.AccessError: this is not an event that you may publish
    """

    def __init__(
        self,
        roles: Iterable[Role],
        principals: Mapping[str, Iterable[str]] | None = None,
        *,
        schema: Schema | None = None,
        quotas: Mapping[str, float] | None = None,
        blocked: Iterable[str] = (),
        digest: str = "",
        warnings: Iterable[str] = (),
    ) -> None:
        """Make a policy; `quotas` are the defaults where roles set none.

        Only policies with the same contents may have the same `digest`.
        """
        self._digest: Final = digest or secrets.token_hex(16)
        self.roles: Final = {role.name: role for role in roles}
        self._principals: Final = {name: tuple(has) for name, has in (principals or {}).items()}
        self._schema: Final = schema
        self._quotas: Final = dict(quotas or {})
        self._blocked: Final = frozenset(blocked)
        self.warnings: Final = tuple(warnings)
        """Sentences about filters of roles that look like mistakes."""
        # Many principals have the same roles, and so the same rights.
        self._rights_of: Final = lru_cache(_CACHED_RIGHTS)(self._united)

    @classmethod
    def parse(cls, text: str, *, source: str = "policy", schema: Schema | None = None) -> Policy:
        """Parse a policy in TOML, or raise PolicyError with the place and reason."""
        found = read_policy(text, source, schema)
        return cls(
            found.roles,
            found.principals,
            schema=schema,
            quotas=found.quotas,
            blocked=found.blocked,
            digest=blake2b(text.encode(), digest_size=16).hexdigest(),
            warnings=found.warnings,
        )

    @classmethod
    def load(cls, path: str | PathLike[str], *, schema: Schema | None = None) -> Policy:
        """Return the policy in a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise PolicyError(f"it cannot be read: {error.strerror}", source=str(path)) from None
        except UnicodeDecodeError:
            raise PolicyError("it is not UTF-8 text", source=str(path)) from None
        return cls.parse(text, source=str(path), schema=schema)

    @classmethod
    def open(cls, schema: Schema | None = None) -> Policy:
        """Return the policy that allows everyone everything."""
        return cls([EVERYTHING], {EVERYONE: [EVERYTHING.name]}, schema=schema, digest="open")

    def _united(self, roles: frozenset[str]) -> Rights:
        digest = f"{self._digest} {sorted(roles)}"
        return Rights(map(self.roles.__getitem__, roles), self._schema, self._quotas, digest=digest)

    def require_roles(self, names: Iterable[str]) -> None:
        """Refuse names that are not roles of the policy: they would grant nothing."""
        for name in names:
            if name not in self.roles:
                hint = did_you_mean(name, self.roles)
                raise AccessError(
                    "bad_request",
                    f"the policy has no role {name!r:.60}, so it would grant nothing"
                    f"{'; ' + hint if hint else ''}",
                )

    def blocks(self, principal: Principal) -> bool:
        """Return whether a principal is blocked, whatever its credential."""
        return principal.name in self._blocked

    def rights(self, principal: Principal) -> Rights:
        """Return the rights of a principal: the union of its roles in the credential and policy.

        Unknown roles grant nothing.
        """
        given = (
            *principal.roles,
            *self._principals.get(principal.name, ()),
            *self._principals.get(EVERYONE, ()),
        )
        known = () if self.blocks(principal) else filter(self.roles.__contains__, given)
        return self._rights_of(frozenset(known))

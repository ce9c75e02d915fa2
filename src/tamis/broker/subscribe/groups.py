"""Groups of consumers: what may be asked of them, and when it is refused."""

from __future__ import annotations

from tamis.access import Rights
from tamis.broker.deliver.subscriptions import ActiveSubscription, Extra
from tamis.errors import RefusedError
from tamis.events.schema import did_you_mean
from tamis.events.values import brief
from tamis.protocol import Code, Subscribe


def group_mistake(wanted: Subscribe, rights: Rights) -> RefusedError | None:
    """Return why a group, or its ordering key, is not valid."""
    if not wanted.group:
        if wanted.ordering_key:
            return _wrong("only a group has an ordering key: set group, or leave out ordering_key")
        if wanted.member:
            return _wrong("only a group has members: set group, or leave out member")
        return None
    if wanted.durable is None:
        return _wrong("a group needs the name that its members share, as a durable subscription")
    if wanted.roaming:
        return _wrong(
            f"the group {wanted.durable!r} cannot be brought from another broker: its members "
            "connect to the broker that has it"
        )
    if not wanted.member.isprintable():
        return _wrong(f"the member is called {brief(wanted.member)}; a name is printable text")
    return _key_mistake(wanted.ordering_key, rights) if wanted.ordering_key else None


def _key_mistake(key: str, rights: Rights) -> RefusedError | None:
    # What the roles hide is not in this schema.
    if rights.schema is not None and key not in rights.schema:
        hint = did_you_mean(key, rights.schema)
        hint = f"; {hint}" if hint else ""
        return _wrong(f"the ordering key {brief(key)} is no attribute of the schema{hint}")
    if not rights.may_mention([key]):
        return RefusedError(
            Code.FORBIDDEN,
            f"the ordering key {brief(key)} is an attribute that your roles do not show",
        )
    return None


def require_same_group(known: ActiveSubscription, wanted: Subscribe, rights: Rights) -> None:
    """Refuse to join what is not a group, or one with another key, and to take a group over."""
    name, extra = known.stored.name, Extra.of(known.stored)
    if extra.group and not wanted.group:
        raise RefusedError(
            Code.CONFLICT,
            f"{name!r} is a group: join it with group set, fetch its events, or use another name",
        )
    if wanted.group and not extra.group:
        raise RefusedError(
            Code.CONFLICT,
            f"the subscription {name!r} is no group; delete it first, or use another name",
        )
    if wanted.ordering_key != extra.ordering_key:
        has = "no ordering key"
        if extra.ordering_key:
            is_shown = rights.may_mention([extra.ordering_key])
            has = f"the ordering key {extra.ordering_key!r}" if is_shown else "another ordering key"
        raise RefusedError(
            Code.CONFLICT,
            f"the group {name!r} has {has}, which all its members give; delete it first, or use "
            "another name",
        )


def group_stays(name: str) -> str:
    """Return the sentence that refuses to move a group to another broker."""
    return (
        f"{name!r} is a group at its home, and groups do not move: connect to that broker, or use "
        "another name"
    )


def _wrong(sentence: str) -> RefusedError:
    return RefusedError(Code.BAD_REQUEST, sentence)

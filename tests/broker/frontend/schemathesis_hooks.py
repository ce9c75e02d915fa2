"""What schemathesis cannot know of the broker. Loaded by its command line."""

from __future__ import annotations

from typing import Any

import schemathesis

LONGEST_WAIT = 60
_REFUSED_ALONE = ("id", "start", "language")


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:  # noqa: ARG001 - names are given
    """Leave out claims that a request is to be refused.

    With an unknown header it is not, and of a batch only what has a wrong name, start or language.
    """
    if "x-schemathesis-unknown-property" in (case.headers or {}):
        return False
    is_positive = case.meta is None or case.meta.generation.mode.is_positive
    return is_positive or not any(
        isinstance(row.get(name), str) for row in _rows(case.body) for name in _REFUSED_ALONE
    )


def _rows(body: Any) -> list[dict[str, Any]]:
    rows = body.get("subscriptions") if isinstance(body, dict) else None
    return [one for one in rows if isinstance(one, dict)] if isinstance(rows, list) else []


@schemathesis.hook
def map_case(context: Any, case: Any) -> Any:  # noqa: ARG001
    """Say the same in the broker's way, where JSON Schema has no words for it."""
    if case.meta is not None and case.meta.generation.mode.is_positive:
        case.body = _plain(case.body)
        for one in (case.body, *_rows(case.body)):
            _make_printable(one)
            _leave_out_what_does_not_go_together(one)
    if isinstance(case.body, dict):
        _bring_together(case.body)
    return case


def _make_printable(body: Any) -> None:
    """Make a name printable: JSON Schema's patterns do not know which characters are."""
    if isinstance(body, dict) and isinstance(body.get("id"), str):
        body["id"] = "".join(one if one.isprintable() else "_" for one in body["id"])


def _leave_out_what_does_not_go_together(body: Any) -> None:
    """Keep an ordering key only with a group, and roaming with a name: else they are refused."""
    if isinstance(body, dict) and not body.get("group"):
        body.pop("ordering_key", None)
    if isinstance(body, dict) and (body.get("group") or not body.get("id")):
        body.pop("roaming", None)


def _bring_together(body: dict[str, Any]) -> None:
    wait = body.get("wait")
    if isinstance(wait, int | float) and not isinstance(wait, bool) and 0 < wait <= LONGEST_WAIT:
        body["wait"] = 0


def _plain(value: Any) -> Any:
    """Return a value with whole numbers as the broker takes them: 1, not 1.0."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain(one) for one in value]
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case _:
            return value

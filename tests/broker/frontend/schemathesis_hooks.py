"""What schemathesis cannot know of the broker. Loaded by its command line."""

from __future__ import annotations

from typing import Any

import schemathesis

LONGEST_WAIT = 60


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:  # noqa: ARG001 - names are given
    """Leave out the claim that a request with an unknown header is to be refused."""
    return "x-schemathesis-unknown-property" not in (case.headers or {})


@schemathesis.hook
def map_case(context: Any, case: Any) -> Any:  # noqa: ARG001
    """Say the same in the broker's way, where JSON Schema has no words for it."""
    if case.meta is not None and case.meta.generation.mode.is_positive:
        case.body = _plain(case.body)
    if isinstance(case.body, dict):
        _bring_together(case.body)
    return case


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

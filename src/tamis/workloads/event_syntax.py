"""Reading forms of events: `event = 80% symbol, price | 20% symbol, 3 of f0..f9`."""

from __future__ import annotations

from collections.abc import Mapping

from tamis.workloads.forms import AttributeSource, Form, Group
from tamis.workloads.source import Cursor, Token, evened


def read_forms(
    cursor: Cursor, attributes: Mapping[str, AttributeSource], places: Mapping[str, Cursor]
) -> tuple[Form, ...]:
    """Read the alternatives of `event`; together they must have every attribute."""
    start = cursor.current
    given: list[float | None] = []
    bodies: list[tuple[list[str], list[Group]]] = []
    while not bodies or cursor.skip("|"):
        given.append(cursor.percentage())
        bodies.append(_body(cursor, attributes))
    cursor.end()
    chances = evened(cursor, given, start)
    forms = tuple(
        Form(chance, tuple(names), tuple(groups))
        for chance, (names, groups) in zip(chances, bodies, strict=True)
    )
    _check_groups(cursor, start, forms, attributes)
    used = {name for form in forms for name in form.all_names()}
    for name in attributes:
        if name not in used:
            raise places[name].error(
                f'no event has the attribute {name}, because "event" does not list it',
                Token(name, places[name].start),
            )
    return forms


def _body(
    cursor: Cursor, attributes: Mapping[str, AttributeSource]
) -> tuple[list[str], list[Group]]:
    names: list[str] = []
    groups: list[Group] = []
    seen: set[str] = set()
    while not seen or cursor.skip(","):
        count = _group_count(cursor)
        found = cursor.names("an attribute")
        _check(cursor, found, attributes, seen)
        chosen = tuple(name for name, _ in found)
        if count is None:
            names += chosen
        elif count > len(chosen):
            raise cursor.error(f"{count} of {len(chosen)} attributes cannot be chosen", found[0][1])
        else:
            groups.append(Group(count, chosen))
    return names, groups


def _group_count(cursor: Cursor) -> int | None:
    if not cursor.current.is_number:
        return None
    count = cursor.whole("how many of the attributes an event has", 1, 1000)
    cursor.expect("of", "before the attributes to choose from")
    return count


def _check(
    cursor: Cursor,
    found: list[tuple[str, Token]],
    attributes: Mapping[str, AttributeSource],
    seen: set[str],
) -> None:
    for name, token in found:
        if name not in attributes:
            raise cursor.error(f"there is no attribute {name}", token, known=attributes)
        if name in seen:
            raise cursor.error(f"{name} stands twice in one form", token)
        seen.add(name)


def _check_groups(
    cursor: Cursor, start: Token, forms: tuple[Form, ...], attributes: Mapping[str, AttributeSource]
) -> None:
    plain = {name for form in forms for name in form.names}
    chosen: set[str] = set()
    for name in (name for form in forms for group in form.groups for name in group.names):
        if name in plain or name in chosen:
            raise cursor.error(f'{name} can stand only once, because it is chosen by "of"', start)
        chosen.add(name)
        if attributes[name].is_many or attributes[name].present < 1:
            raise cursor.error(
                f'{name} is chosen by "of", so it has neither "present" nor "many"', start
            )

"""No answer depends on what its reader may not see, and nothing else is kept back.

`observe` does on each path what a broker does there, with `tamis.access` alone. What it gives is
compared with the oracle, and with what it gives of a *twin*: an event that differs only in what the
user may not see.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from access.oracle import Case, Document, leaves, random_case, random_roles, random_twin, shown_by
from tamis.access import Policy, Principal, Rights
from tamis.analysis.explain import explain
from tamis.errors import AccessError, FilterTypeError
from tamis.events import Event, decode_json, encode_json
from tamis.filters import Filter, Mode
from tamis.filters.any_text import AnyText
from tamis.filters.arithmetic import Relation
from tamis.filters.printing import ANY, needs_no_backticks
from tamis.languages import parse

PATHS = ("match", "deliver", "replay", "dry run", "explain", "dead letters")
NOTHING = "nothing"


class Refused(str):
    """The message of a refusal."""


# --- what a broker does -----------------------------------------------------------------------


def rights_of(rng: Random, case: Case) -> Rights:
    """Return the rights of someone who has the roles, by token or by the policy's file."""
    names = [role.name for role in case.roles]
    own = [name for name in names if rng.random() < 0.5]
    listed = json.dumps([name for name in names if name not in own])
    text = "".join(role.toml() for role in case.roles) + (
        f"[roles.other]\nsee = true\n"
        f'[principals]\n"{rng.choice(("ann", "*"))}" = {listed}\nbob = ["other"]\n'
    )
    policy = Policy.parse(text, schema=case.schema)
    return policy.rights(Principal("ann", (*own, "unheard-of")))


def observe(path: str, rights: Rights, case: Case, document: Document) -> Any:
    """Return all that a user learns on one path."""
    try:
        own = rights.check_filter(case.filter)
        match path:
            case "match":
                return is_matched(rights, case, document)
            case "deliver":
                return (
                    shown(rights, case, document) if is_matched(rights, case, document) else NOTHING
                )
            case "replay" | "dead letters":
                # It was matched once, and kept; it is seen as the policy is now.
                return shown(rights, case, document)
            case "dry run":
                return own.matches(case.event(document), case.mode, rights.schema)
            case _:
                return explained(rights, case, own, document)
    except (AccessError, FilterTypeError) as error:
        return Refused(error)


def is_matched(rights: Rights, case: Case, document: Document) -> bool:
    effective, event = rights.effective(case.filter, case.mode), case.event(document)
    found = effective.filter.matches(event, effective.mode, case.schema)
    return found and rights.admits(event, event, case.filter)


def shown(rights: Rights, case: Case, document: Document) -> Any:
    sight = rights.sight(case.event(document))
    if sight is None or not sight.covers(case.filter.attributes()):
        return NOTHING
    return document if sight.is_whole else sight.document(document)


def explained(rights: Rights, case: Case, own: Filter, document: Document) -> Any:
    event = case.event(document)
    sight = rights.sight(event)
    if sight is None or not sight.covers(own.attributes()):
        return NOTHING
    total = case.mode is Mode.TOTAL
    found = explain("mine", own, case.mode, sight.event(event), sight.schema, total=total)
    return found.matched, str(found), encode_json(sight.event(event))


# --- what the oracle says ---------------------------------------------------------------------


def check(path: str, case: Case, seen: Any) -> bool:
    """Compare what was observed with what the oracle says; tell whether something was shown."""
    if isinstance(seen, Refused):
        joined = path in ("match", "deliver") and goes_with_no_mode(case)
        assert joined or not case.is_allowed()
        assert joined or seen == refusal(case)
        return False
    assert case.is_allowed()
    event = case.event()
    satisfied = case.filter.matches(event, case.mode, case.schema)
    match path:
        case "match":
            assert seen is case.matches(event)
            return bool(seen)
        case "dry run":
            assert seen is satisfied
            return bool(seen)
        case "explain":
            assert (seen != NOTHING) is case.is_read_on(event)
            if seen == NOTHING:
                return False
            assert seen[0] is satisfied
            assert decode_json(seen[2], schema=case.schema) == Event.of_checked(case.seen(event))
            return True
    wanted = case.matches(event) if path == "deliver" else case.is_read_on(event)
    assert (seen != NOTHING) is wanted
    if wanted:
        check_document(case, seen)
    return bool(wanted)


def check_document(case: Case, document: Document) -> None:
    by = case.admitting(case.event())
    if document and document is not case.document:
        for name, value in leaves(document):
            assert shown_by(by, name)
            assert value not in ([], {}, None)
    # In mode `total` what is left may lack something.
    got = case._replace(mode=Mode.SQL).event(document)
    assert dict(got) == case.seen(case.event())


def refusal(case: Case) -> str:
    """Return what is said of a filter that mentions what does not exist, as far as one can see."""
    schema = case.ever_seen()
    if schema is not None:
        try:
            case.filter.bind(schema)
        except FilterTypeError as error:
            return str(error)
    names = sorted(case.filter.attributes())
    first = next(name for name in names if not shown_by(case.roles, name))
    if first == ANY:
        return (
            "the filter tests any attribute, and there are some that you may not see: name those "
            "that it is about"
        )
    assert schema is None
    name = first if needs_no_backticks(first) else f"`{first}`"
    return f"the filter mentions {name}, which is not an attribute that you may see"


def goes_with_no_mode(case: Case) -> bool:
    """Return whether mode `default` compares attributes beside filters of other modes."""
    readings = [(case.filter, case.mode), *((role.filter, role.mode) for role in case.roles)]
    compared = {
        mode for f, mode in readings if any(isinstance(a, Relation | AnyText) for a in f.atoms())
    }
    modes = {mode for _, mode in readings}
    return case.schema is not None and Mode.DEFAULT in compared and modes != {Mode.DEFAULT}


# --- all of it --------------------------------------------------------------------------------


def run(rng: Random, *, tuples: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    while counts["tuples"] < tuples:
        run_case(rng, counts)
    assert counts["deliveries"] > 0.2 * tuples
    assert counts["twins"] > 0.3 * tuples
    return counts


def run_case(rng: Random, counts: Counter[str]) -> None:
    case = random_case(rng)
    rights = rights_of(rng, case)
    twin = random_twin(rng, case)
    for path in PATHS:
        seen = observe(path, rights, case, case.document)
        counts["tuples"] += 1
        counts["deliveries"] += check(path, case, seen)
        counts["refused"] += isinstance(seen, Refused)
        if path != "dry run" and twin is not None:
            assert json.dumps(observe(path, rights, case, twin)) == json.dumps(seen)
            counts["twins"] += twin != case.document
    run_changed(rng, case)


def run_changed(rng: Random, case: Case) -> None:
    """See the same under other policies."""
    after = case._replace(roles=random_roles(rng, case.schema))
    for path in ("replay", "dead letters"):
        check(path, after, observe(path, rights_of(rng, after), after, after.document))
    # A dry run is of the user's own events: what the roles' filters are must not show in it.
    turned = case._replace(roles=tuple(r._replace(filter=~r.filter) for r in case.roles))
    before, now = (
        observe("dry run", rights_of(rng, one), one, case.document) for one in (case, turned)
    )
    assert before == now


HIDDEN_CARD = Policy.parse(
    """
    [roles.clerk]
    see = { hide = ["card"] }
    [roles.teller]
    see = { show = ["name"] }
    [roles.auditor]
    see = { filter = "branch = 1" }
    """
)


@pytest.mark.parametrize("roles", [["clerk"], ["teller"], ["clerk", "teller"]])
@pytest.mark.parametrize(
    "text",
    [
        *('any starts with "4"', 'not any starts with "4"', 'any ~contains "4"', 'any in ("4929")'),
        *('name = "Ann" and any matches "^4"', 'name = "Ann" or any = "4929"', 'any contains ""'),
    ],
)
def test_a_test_of_any_attribute_asks_nothing_about_hidden_ones(
    roles: list[str], text: str
) -> None:
    rights = HIDDEN_CARD.rights(Principal("eve", tuple(roles)))
    with pytest.raises(AccessError, match="tests any attribute, and there are some that you may"):
        rights.effective(parse(text), "sql")
    with pytest.raises(AccessError):
        rights.check_filter(parse(text))


def test_a_test_of_any_attribute_is_read_on_events_that_are_seen_whole() -> None:
    rights = HIDDEN_CARD.rights(Principal("eve", ("clerk", "auditor")))
    filter_ = parse('any starts with "4"')
    effective = rights.effective(filter_, "sql")
    for branch in (1, 2):
        event = Event({"branch": branch, "name": "Ann", "card": "4929"})
        found = effective.filter.matches(event, effective.mode)
        assert (found and rights.admits(event, event, filter_)) is (branch == 1)
        sight = rights.sight(event)
        assert sight is not None
        assert sight.covers(filter_.attributes()) is (branch == 1)


@pytest.mark.parametrize("see", ['hide = ["items.cost"]', 'show = ["items.sku", "name"]'])
@pytest.mark.parametrize(
    "text", ["items[true]", "items[sku is absent]", 'name = "a" or not items[sku = "a"]']
)
def test_a_test_of_elements_asks_nothing_about_hidden_ones(see: str, text: str) -> None:
    """An element of which all is hidden would be tested, and the user does not see it."""
    rights = Policy.parse(f"[roles.a]\nsee = {{ {see} }}\n").rights(Principal("ann", ("a",)))
    with pytest.raises(AccessError, match=r"tests elements of items, of which you may not see"):
        rights.effective(parse(text), "sql")


@pytest.mark.parametrize("see", ['hide = ["level", "item"]', 'show = ["items"]'])
def test_elements_that_are_seen_whole_are_tested(see: str) -> None:
    rights = Policy.parse(f"[roles.a]\nsee = {{ {see} }}\n").rights(Principal("ann", ("a",)))
    filter_ = parse('items[sku = "a" and qty > 3]')
    assert rights.check_filter(filter_) == filter_


def test_nothing_leaks_and_nothing_is_kept_back() -> None:
    run(Random(1), tuples=700)


@pytest.mark.slow
def test_a_hundred_thousand_tuples() -> None:
    counts = run(Random(2026), tuples=100_000)
    print(
        f"\naccess: {counts['tuples']:,} tuples, 0 leaks, {counts['deliveries']:,} deliveries, "
        f"{counts['refused']:,} refused, {counts['twins']:,} also compared with a twin"
    )

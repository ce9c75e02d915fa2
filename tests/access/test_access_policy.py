"""Policy files: what they allow, and what is said about mistakes in them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tamis.access import ANONYMOUS, Policy, Principal, Quotas, Rights
from tamis.errors import AccessError, FilterTypeError, PolicyError
from tamis.events import CloudEvent, Event, Schema
from tamis.filters import Filter, Mode
from tamis.languages import parse

POLICY = """
blocked = ["mallory"]

[quotas]
subscriptions = 10
connections = 2

[roles.trader]
see = { filter = "level < 3", hide = ["level", "customer"] }
publish = { filter = 'desk = "7"', forbid = ["level"] }
quotas = { publications = 100, connections = 5 }

[roles.broker]
see = { filter = 'house = "ours"', hide = ["price"] }

[roles.feed]
publish = { allow = ["symbol", "price", "data"] }
quotas = { publications = "unlimited" }

[roles.analyst]
see = true

[roles.operator]
admin = true

[principals]
ann = ["trader"]
bob = ["trader", "broker"]
"*" = []
"""


def rights(*roles: str, name: str = "someone") -> Rights:
    return Policy.parse(POLICY).rights(Principal(name, roles))


def effective(filter_: str, *roles: str) -> str:
    return str(rights(*roles).effective(parse(filter_), "sql").filter)


# --- roles ------------------------------------------------------------------------------------


def test_a_principal_without_a_role_may_do_nothing() -> None:
    for nobody in (rights(), rights("unheard-of")):
        assert not nobody.may_publish
        assert not nobody.may_subscribe
        assert not nobody.is_admin
        assert nobody.sight(Event({"a": 1})) is None
        with pytest.raises(AccessError, match="your roles allow you to see no events"):
            nobody.effective(parse("true"), "sql")
        with pytest.raises(AccessError, match="not an event that you may publish"):
            nobody.check_publish(Event({"a": 1}))


def test_roles_come_from_the_credential_and_from_the_policy() -> None:
    policy = Policy.parse(POLICY)
    assert policy.rights(Principal("ann")).roles == ("trader",)
    assert policy.rights(Principal("ann", ("operator", "trader"))).roles == ("operator", "trader")
    assert policy.rights(Principal("eve", ("analyst",))).roles == ("analyst",)


def test_everyone_has_the_roles_of_the_star() -> None:
    policy = Policy.parse('[roles.public]\nsee = true\n[principals]\n"*" = ["public"]')
    assert policy.rights(ANONYMOUS).may_subscribe
    assert policy.rights(Principal("ann")).may_subscribe


def test_a_blocked_principal_may_do_nothing_with_any_credential() -> None:
    policy = Policy.parse(POLICY)
    mallory = Principal("mallory", ("analyst", "operator"))
    assert policy.blocks(mallory)
    assert policy.rights(mallory).roles == ()


def test_an_administrator_is_not_for_that_reason_a_reader() -> None:
    assert rights("operator").is_admin
    assert not rights("operator").may_subscribe


def test_under_the_open_policy_everyone_may_do_everything() -> None:
    everyone = Policy.open().rights(ANONYMOUS)
    everyone.check_publish(Event({"a": 1}))
    sight = everyone.sight(Event({"a": 1}))
    assert sight is not None
    assert sight.is_whole
    assert everyone.is_admin
    assert not everyone.hides_anything
    assert everyone.limits == Quotas()
    assert everyone.effective(parse("a = 1"), "strict") == (parse("a = 1"), Mode.STRICT)


# --- publishing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "event", "allowed"),
    [
        ("trader", {"desk": "7"}, True),
        ("trader", {"desk": "8"}, False),
        ("trader", {"price": 5}, False),
        ("trader", {"desk": "7", "level": 1}, False),
        ("trader", {"desk": "7", "level": None}, True),
        ("trader", {"desk": "7", "level": {"of": 1}}, False),
        ("feed", {"symbol": "X", "price": 5}, True),
        ("feed", {"symbol": "X", "desk": "7"}, False),
        ("feed", {"price": [{"low": 1}]}, True),
        ("analyst", {"a": 1}, False),
        # One role must allow all of it: the filter of one does not open the attributes of another.
        ("trader feed", {"desk": "7", "level": 1}, False),
        ("trader feed", {"desk": "8", "symbol": "X"}, False),
        ("trader feed", {"symbol": "X"}, True),
    ],
)
def test_an_event_is_published_if_one_role_allows_all_of_it(
    roles: str, event: dict[str, object], allowed: bool
) -> None:
    holder = rights(*roles.split())
    if allowed:
        holder.check_publish(Event(event))
    else:
        with pytest.raises(AccessError) as caught:
            holder.check_publish(Event(event))
        assert caught.value.code == "forbidden"
        assert str(caught.value) == "this is not an event that you may publish"


def test_the_bytes_of_a_cloudevent_are_published_as_its_data() -> None:
    policy = Policy.parse(
        '[roles.feed]\npublish = { forbid = ["data.level"] }\n[roles.all]\npublish = true'
    )
    event = CloudEvent(id="1", source="/s", type="t", data=b'{"level": 1}')
    policy.rights(Principal("x", ("all",))).check_publish(event)
    with pytest.raises(AccessError):
        policy.rights(Principal("x", ("feed",))).check_publish(event)


# --- seeing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filter_", "roles", "joined"),
    [
        ("symbol = 'X'", "trader", 'symbol = "X" and level < 3'),
        ("a = 1 or b = 2", "trader", "(a = 1 or b = 2) and level < 3"),
        ("true", "trader", "level < 3"),
        ("symbol = 'X'", "analyst", 'symbol = "X"'),
        ("symbol = 'X'", "trader analyst", 'symbol = "X"'),
        ("level = 5", "trader analyst", "level = 5"),
        ("a = 1", "broker trader", 'a = 1 and (house = "ours" or level < 3)'),
        # Who asks for the price sees it by the one role, who asks for the level by the other.
        ("price = 1", "broker trader", "price = 1 and level < 3"),
        ("level = 1", "broker trader", 'level = 1 and house = "ours"'),
        ("level = price", "broker trader", 'level = price and house = "ours" and level < 3'),
    ],
)
def test_a_filter_is_joined_with_those_of_the_roles_that_show_what_it_mentions(
    filter_: str, roles: str, joined: str
) -> None:
    assert effective(filter_, *roles.split()) == joined


@pytest.mark.parametrize(
    "filter_",
    [
        "level = 1",
        "level is present",
        "level is absent",
        "level is a number",
        "not (level < 2)",
        "price = 1 or level in (1, 2)",
        "true or level = 1",
        "price < level",
        "price * level > 5",
        "price - level = price - level",
        "level between 1 and 2 xor price = 1",
        "level has any bit 0b1",
        "level like '%'",
        "level.of = 1",
        "customer.name is present",
        "`customer.name` = 'Ann'",
        "customer is absent",
    ],
)
def test_a_filter_that_mentions_what_is_hidden_is_refused(filter_: str) -> None:
    with pytest.raises(AccessError, match="not an attribute that you may see") as caught:
        rights("trader").effective(parse(filter_), "sql")
    assert caught.value.code == "forbidden"
    with pytest.raises(AccessError):
        rights("trader").check_filter(parse(filter_))


def test_other_languages_hide_nothing_better() -> None:
    for filter_ in (parse("level IS NULL", "jms"), parse("level = 1", "jms")):
        with pytest.raises(AccessError):
            rights("trader").effective(filter_, "sql")


def test_what_is_hidden_is_refused_as_what_the_schema_does_not_have() -> None:
    schema = Schema({"price": "int", "level": "int", "desk": "str", "customer": "str"})
    trader = Policy.parse(
        '[roles.trader]\nsee = { filter = "level < 3", hide = ["level"] }', schema=schema
    ).rights(Principal("ann", ("trader",)))
    said = []
    for name in ("level", "lovel"):
        with pytest.raises(FilterTypeError) as caught:
            trader.effective(parse(f"{name} = 1"), "sql")
        said.append(str(caught.value).replace(name, "…"))
    assert said[0] == said[1] == "the schema has no attribute '…'"
    assert trader.schema is not None
    assert [*trader.schema] == ["price", "desk", "customer"]


def test_what_may_be_explained_has_nothing_of_the_roles_in_it() -> None:
    own: Filter = rights("trader").check_filter(parse("price > 5"))
    assert own == parse("price > 5")


def test_an_event_visible_by_two_roles_shows_the_attributes_of_both() -> None:
    both = rights("broker", "trader")
    document = {"price": 5, "level": 1, "house": "ours", "customer": {"name": "Ann"}}
    seen = both.sight(Event(document))
    assert seen is not None
    assert not seen.is_whole
    assert seen.document(document) == document
    by_trader = both.sight(Event(document | {"house": "theirs"}))
    assert by_trader is not None
    assert by_trader.document(document) == {"price": 5, "house": "ours"}
    by_broker = both.sight(Event(document | {"level": 9}))
    assert by_broker is not None
    assert by_broker.event(Event(document)) == Event(
        {"level": 1, "house": "ours", "customer": {"name": "Ann"}}
    )
    assert both.sight(Event({"level": 9, "house": "theirs"})) is None


def test_what_the_filter_mentions_must_be_seen_of_the_event_too() -> None:
    sight = rights("broker", "trader").sight(Event({"level": 1, "house": "theirs"}))
    assert sight is not None
    assert sight.covers(["price", "house"])
    assert not sight.covers(["price", "level"])


def test_a_cloudevent_is_seen_by_its_context_too() -> None:
    policy = Policy.parse(
        "[roles.shop]\nsee = { filter = \"source = '/shop'\", hide = ['subject'] }"
    )
    event = CloudEvent(id="1", source="/shop", type="sold", subject="x", data=b"zip")
    sight = policy.rights(Principal("ann", ("shop",))).sight(event)
    assert sight is not None
    assert "subject" not in sight.event(event.event())
    with pytest.raises(AccessError):
        policy.rights(Principal("ann", ("shop",))).check_filter(parse("subject is present"))


# --- quotas -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "publications", "subscriptions", "connections"),
    [
        ("analyst", math.inf, 10, 2),
        ("trader", 100, 10, 5),
        # A role that says nothing lifts nothing.
        ("trader analyst operator", 100, 10, 5),
        ("trader feed", math.inf, 10, 5),
    ],
)
def test_the_widest_bound_that_a_role_sets_holds(
    roles: str, publications: float, subscriptions: float, connections: float
) -> None:
    assert rights(*roles.split()).limits == Quotas(
        publications=publications, subscriptions=subscriptions, connections=connections
    )


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("[roles.a\n", "", "this is not TOML: Expected ']' at the end of a table"),
        ("role = 1", "", 'it has no key "role"; did you mean "roles"?'),
        ("[roles.a]\nsees = true", "roles.a", 'it has no key "sees"; did you mean "see"'),
        ("[roles.a]\nsee = 5", "roles.a.see", "true or false or a text or a table, not an integer"),
        ("[roles.a]\nsee = 'x <'", "roles.a.see.filter", "missing at the end (line 1, column 4)\n"),
        ("[roles.'a.b'.see]\nhide = 'x'", 'roles."a.b".see.hide', "a list, not a text"),
        ("[roles.'a,b']\nsee = true", 'roles."a,b"', "a role's name has 1 to 100 letters"),
        ("[roles.a.see]\nhide = [1]", "roles.a.see.hide[0]", "a text, not an integer"),
        ("[roles.a.see]\nshow = ['']", "roles.a.see.show[0]", "a text of at least 1 character"),
        ("[roles.a.publish]\nhide = ['x']", "roles.a.publish", "the keys are filter, language, "),
        ("[roles.a.see]\nmode = 'sq'", "roles.a.see.mode", "'sq' is not a mode"),
        ("[roles.a.see]\nmode = 'total'", "roles.a.see.mode", "a promise about all events"),
        ("[roles.a.see]\nlanguage = 'tams'", "roles.a.see.filter", 'did you mean "tamis"'),
        ("[roles.a.quotas]\nbytes = -1", "roles.a.quotas.bytes", "a number of at least 0"),
        ("[roles.a.quotas]\nbytes = nan", "roles.a.quotas.bytes", "a number of at least 0"),
        ("[quotas]\nbytes = 'lots'", "quotas.bytes", "a number or \"unlimited\", not 'lots'"),
        ("[quotas]\nbyte = 1", "quotas", 'did you mean "bytes"'),
        ("[roles]\na = 3", "roles.a", "a table, not an integer"),
        ("[principals]\nann = 'a'", "principals.ann", "a list, not a text"),
        ("[roles.seer]\n[principals]\nann = ['ser']", "principals.ann", 'did you mean "seer"'),
        ("[principals]\nann = ['a']", "principals.ann", "describe it under [roles.a]"),
        ('[principals]\n"a\\nb" = []', 'principals."a\\nb"', "not the name of a principal"),
        ("blocked = 'x'", "blocked", "a list, not a text"),
    ],
)
def test_a_mistake_in_the_file_is_reported_with_its_place(
    text: str, place: str, reason: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.parse(text, source="policy.toml")
    assert caught.value.source == "policy.toml"
    assert caught.value.place == place
    assert reason in caught.value.reason
    assert str(caught.value).startswith(f"policy.toml, {place}: " if place else "policy.toml: ")


def test_a_role_must_agree_with_the_schema() -> None:
    with pytest.raises(PolicyError, match='did you mean "price"'):
        Policy.parse('[roles.a]\nsee = "pric < 5"', schema=Schema({"price": "int"}))


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    with pytest.raises(PolicyError, match="it cannot be read"):
        Policy.load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(PolicyError, match="it is not UTF-8 text"):
        Policy.load(path)
    path.write_text(POLICY)
    assert sorted(Policy.load(path).roles) == ["analyst", "broker", "feed", "operator", "trader"]


def test_a_filter_that_looks_like_a_mistake_is_warned_of() -> None:
    policy = Policy.parse(
        """
        [roles.desk]
        see = { filter = "desk = LONDON", hide = ["level"] }
        publish = "level < 3"
        """,
        source="policy.toml",
    )
    [warning] = policy.warnings
    assert warning.startswith("policy.toml: roles.desk.see.filter: desk = LONDON: LONDON is read")


def test_a_role_may_link_brokers() -> None:
    policy = Policy.parse("[roles.branch]\npeer = true\nsee = true\n[roles.desk]\nsee = true\n")
    assert policy.rights(Principal("b", ("branch",))).is_peer
    assert not policy.rights(Principal("d", ("desk",))).is_peer
    assert Policy.open().rights(Principal("anyone")).is_peer
    with pytest.raises(PolicyError, match=r"roles\.branch\.peer: it"):
        Policy.parse('[roles.branch]\npeer = "yes"\n')

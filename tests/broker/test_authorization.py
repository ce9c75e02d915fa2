"""Access control of real brokers: nobody learns what the roles do not show.

Each (policy, principal, filter, event, path) is compared with the oracle of `tests/access`, and all
observations of a participant with those of a twin: another broker, reached by another client, in
which everything differs that this participant may not see.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from access.oracle import (
    Case,
    Document,
    Sees,
    can_be_published,
    random_document,
    random_roles,
)
from broker.authorization_checks import Checker
from broker.authorization_clients import Collector, Data, FrameClient, HttpClient, as_json
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    encoded,
    exhaust_attempts,
    fetched,
    refusal,
    run_async,
    subscribe,
    unreadable,
)
from broker.authorization_run import Observations, run_scenario
from broker.authorization_scenario import Scenario, random_scenario, random_written_schema, twin_of
from broker.log_lines import log_lines
from tamis.broker import Broker, Session
from tamis.errors import RefusedError
from tamis.filters import TRUE, Mode
from tamis.protocol import Code, Subscribe

EVENTS_PER_PHASE = (16, 8, 8, 8)

# --- by chance -----------------------------------------------------------------------------------


def run_scenario_and_twins(rng: Random, folder: Path, counts: Counter[str]) -> None:
    """Run a scenario, and for each of its participants a twin of it."""
    scenario = random_scenario(rng, participants=3, filters=4, phases=EVENTS_PER_PHASE)
    observed_by = asyncio.run(run_scenario(scenario, folder / "all", scenario.phases[0]))
    for participant in scenario.participants:
        Checker(scenario, participant, observed_by[participant.name], counts).check()
        twin = twin_of(rng, scenario, participant)
        kind = rng.choice((HttpClient, FrameClient))
        [observed] = asyncio.run(
            run_scenario(twin, folder / participant.name, scenario.phases[0], kind)
        ).values()
        check_alike(observed_by[participant.name], observed)
        counts["twins"] += sum(a != b for a, b in zip(_all(scenario), _all(twin), strict=True))


def check_alike(left: Observations, right: Observations) -> None:
    """Check that two observations agree, step by step, so that a failure names the step."""
    assert [*left] == [*right]
    for step, said in left.items():
        assert json.dumps(said) == json.dumps(right[step]), step


def _all(scenario: Scenario) -> list[Document]:
    return [document for phase in scenario.phases for document in phase]


def run(rng: Random, folder: Path, *, tuples: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    while counts["tuples"] < tuples:
        counts["scenarios"] += 1
        run_scenario_and_twins(rng, folder / str(counts["scenarios"]), counts)
    return counts


def test_nobody_learns_what_the_roles_do_not_show(tmp_path: Path) -> None:
    counts = run(Random(5), tmp_path, tuples=800)
    assert counts["deliveries"] > 20
    assert counts["twins"] > 4


@pytest.mark.slow
def test_a_hundred_thousand_tuples_through_brokers(tmp_path: Path) -> None:
    counts = run(Random(2026), tmp_path, tuples=100_000)
    print(
        f"\nbroker authorization: {counts['tuples']:,} tuples, 0 leaks, "
        f"{counts['deliveries']:,} deliveries, {counts['scenarios']:,} policies, "
        f"{counts['twins']:,} events replaced in twins"
    )


# --- what is published ---------------------------------------------------------------------------


@run_async
async def test_only_what_roles_allow_is_published(tmp_path: Path) -> None:
    rng, counts = Random(11), Counter[str]()
    for n in range(6):
        schema = random_written_schema(rng) if n % 2 else None
        participants = {f"p{i}": random_roles(rng, schema) for i in range(4)}
        scenario = Scenario(schema, False, (), ())
        settings = scenario.settings(tmp_path / str(n))
        assert settings.policy is not None
        settings.policy.write_text(publishers_policy(participants))
        async with await Broker.open(settings) as broker:
            for name, roles in participants.items():
                text, _ = await broker.access_control.issue(name, (), None, "")
                session = await broker.authenticate(text)
                for _ in range(60):
                    case = Case(schema, roles, TRUE, Mode.SQL, {})
                    await try_to_publish(rng, broker, session, case, counts)
    assert counts["stored"] > 100
    assert counts["refused"] > 100


def publishers_policy(participants: Mapping[str, Sequence[Sees]]) -> str:
    """Return a policy in which participants may publish what the roles of the oracle see."""
    tables, held = [], []
    for name, roles in participants.items():
        own = [role._replace(name=f"{name}-{role.name}") for role in roles]
        tables += [
            role.toml()
            .replace("see = {", "publish = {")
            .replace("show = [", "allow = [")
            .replace("hide = [", "forbid = [")
            for role in own
        ]
        held.append(f"{name} = {json.dumps([role.name for role in own])}\n")
    return "".join((*tables, "[principals]\n", *held))


async def try_to_publish(
    rng: Random, broker: Broker, session: Session, case: Case, counts: Counter[str]
) -> None:
    schema, roles = case.schema, case.roles
    document = next(
        one for one in iter(lambda: random_document(rng, case), None) if can_be_published(case, one)
    )
    event, before = case.event(document), broker.store.log.next_sequence
    allowed = any(role.has(event, schema) and all(map(role.shows, event)) for role in roles)
    # All or none: one that may not be published keeps another from being stored.
    batch = encoded([document, document])
    if allowed:
        await session.publish(batch)
        counts["stored"] += 1
    else:
        said = await refusal(session.publish(batch))
        assert said == "forbidden: this is not an event that you may publish"
        counts["refused"] += 1
    assert broker.store.log.next_sequence == before + 2 * allowed


SCHEMA = {"a": "int", "pay.net": "float", "when": "timestamp"}


@run_async
async def test_errors_do_not_reveal_the_schema_to_unauthorized_principals(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    policy = """
    [roles.clerk]
    publish = { allow = ["a", "note"] }
    see = { show = ["a", "note"] }
    [roles.nobody]
    """
    async with broker_fixture(tmp_path, policy, schema_file=schema) as fixture:
        clerk, nobody = await fixture.login("ann", "clerk"), await fixture.login("bob", "nobody")
        no = "forbidden: this is not an event that you may publish"
        for hidden in (
            b'{"pay": {"net": "x"}}',
            b'{"when": 5}',
            b'{"a": 1, "pay": {"net": [1, 2]}}',
        ):
            unknown = hidden.replace(b"pay", b"pax").replace(b"when", b"whom")
            assert await refusal(clerk.publish([hidden])) == no
            assert await refusal(clerk.publish([unknown])) == no
            assert await refusal(nobody.publish([hidden])) == no
        assert await refusal(nobody.publish([b'{"a": "x"}'])) == no
        # What one may publish one is helped with.
        said = await refusal(clerk.publish([b'{"a": "x"}']))
        assert said == "bad_event: a: 'x' is not of type 'int', which the schema declares"
        for name in ("pay.net", "when"):
            other = name.replace("pay", "pax").replace("when", "whom")
            for ask in (subscribe, explain_own, try_own):
                said = await refusal(ask(clerk, f"{name} = 1"))
                assert said == (await refusal(ask(clerk, f"{other} = 1"))).replace(other, name)
                assert "float" not in said
                assert "timestamp" not in said
        # Samples are read as if what is hidden were not declared.
        [trial] = await clerk.try_filter(
            "a = 1", events=[b'{"a": 1, "pay": {"net": "x"}, "when": 5}']
        )
        assert (trial.matches, trial.error) == (True, "")


async def explain_own(session: Session, filter_: str) -> str:
    return (await session.explain(filter_=filter_, event=b"{}")).explanation


async def try_own(session: Session, filter_: str) -> object:
    return await session.try_filter(filter_, events=[b"{}"])


@run_async
async def test_nobody_publishes_under_the_name_of_another(tmp_path: Path) -> None:
    everyone = "[roles.all]\npublish = true\nsee = true\n"
    async with broker_fixture(tmp_path, everyone) as fixture:
        names = [("ann", ""), ("ann", "x"), ("ann", "x/y"), ("ann/x", ""), ("ann/x", "y")]
        names += [("ann%2Fx", ""), ("ann%2Fx", "y"), ("ann%2F", "x"), ("ann/", "x"), ("ann/", "")]
        reader = await fixture.login("reader", "all")
        await subscribe(reader, "true", "r")
        for principal, publisher in names:
            session = await fixture.login(principal, "all")
            # The same numbers of others are not theirs.
            receipt = await session.publish([b"{}"], publisher=publisher, sequence=1_000)
            assert receipt.duplicates == 0
        await fixture.wait_until_idle()
        seen = [delivery.publisher for delivery in await reader.fetch("r")]
        assert len({*seen}) == len(names)
        assert seen[:3] == ["ann", "ann/x", "ann/x/y"]


# --- what belongs to others ----------------------------------------------------------------------

READERS = """
[roles.reader]
see = { filter = "level < 3", hide = ["level"] }
[roles.all]
see = true
publish = true
[roles.operator]
admin = true
"""


@run_async
async def test_what_belongs_to_others_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READERS, max_attempts=1) as fixture:
        ann, bob = await fixture.login("ann", "all"), await fixture.login("bob", "all", "operator")
        await subscribe(ann, "true", "x")
        await fixture.publish({"a": 1}, {"a": 2})
        await exhaust_attempts(ann, "x")
        asks: list[Callable[[str], Coroutine[Any, Any, object]]] = [
            bob.subscription,
            bob.delete,
            bob.fetch,
            bob.acknowledge,
            bob.dead_letters,
            lambda id_: bob.renew(id_, 5.0),
            lambda id_: bob.attach(id_, Collector(), credit=1),
            lambda id_: bob.reject(id_, 1),
            lambda id_: bob.requeue(id_, [1, 2]),
            lambda id_: bob.delete_dead_letters(id_, [1, 2]),
            lambda id_: bob.explain(id_=id_, event=b"{}"),
        ]
        for ask in asks:
            missing = await refusal(ask("y"))
            assert missing == "not_found: there is no subscription 'y'"
            assert await refusal(ask("x")) == missing.replace("y", "x", 1).replace("'y'", "'x'")
        assert await bob.subscriptions() == []
        # The same name is another subscription, and the letters of one are not the other's.
        await subscribe(bob, "false", "x")
        assert await bob.dead_letters("x") == []
        assert await bob.requeue("x", [1, 2]) == await bob.delete_dead_letters("x", [1, 2]) == 0
        assert [letter.sequence for letter in await ann.dead_letters("x")] == [1, 2]
        await bob.delete("x")
        assert (await ann.subscription("x")).dead == 2


@run_async
async def test_two_tokens_of_one_name_give_each_what_its_roles_allow(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READERS, max_attempts=1) as fixture:
        strong, weak = await fixture.login("ann", "all"), await fixture.login("ann", "reader")
        await subscribe(strong, "level > 0", "by level")
        await subscribe(strong, "a > 0", "by a")
        events = [{"a": 1, "level": 1}, {"a": 2, "level": 5}]
        await fixture.publish(*events)
        # The weak one does not even learn how many there are, and changes nothing.
        views = await weak.subscriptions()
        assert [(v.pending, v.in_flight, v.dropped, v.dead) for v in views] == [(0, 0, 0, 0)] * 2
        no = "forbidden: the filter mentions level, which is not an attribute that you may see"
        assert await refusal(subscribe(weak, "level > 0", "by level")) == no
        no = unreadable("by level")
        assert await refusal(weak.fetch("by level")) == no
        assert await refusal(weak.attach("by level", Collector(), credit=1)) == no
        assert await refusal(weak.dead_letters("by level")) == no
        assert await refusal(weak.explain(id_="by level", event=b"{}")) == no
        assert await fetched(strong, "by level") == events
        # What both may ask for, each gets as its own roles show it.
        assert await fetched(weak, "by a") == [{"a": 1}]
        await fixture.publish(*events)
        # What the weak one may not see waits for the strong one.
        assert (await strong.subscription("by a")).pending == 4
        await subscribe(strong, "a > 0", "by a")
        await fixture.publish(*events)
        got = await strong.fetch("by a")
        assert [as_json(one)["data"] for one in got] == [events[1], *events, *events]
        await exhaust_attempts(strong, "by a")
        for one in got:
            await strong.reject("by a", one.sequence, reason="no")
        await fixture.broker.acknowledgement_writer.settled()
        letters = await weak.dead_letters("by a")
        assert [as_json(one)["data"] for one in letters] == [{"a": 1}] * 2
        assert await weak.delete_dead_letters("by a", range(1, 10)) == 2
        assert await weak.requeue("by a", range(1, 10)) == 0
        letters = await strong.dead_letters("by a")
        assert [as_json(one)["data"] for one in letters] == [events[1]] * 3


@run_async
async def test_a_page_of_dead_letters_is_full_even_after_hidden_ones(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, "[roles.reader]\nsee = true\n", max_attempts=1) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "a >= 0", "x")
        await fixture.publish(*({"a": n} for n in range(20)))
        await exhaust_attempts(ann, "x")
        await fixture.change_policy('[roles.reader]\nsee = "a > 9"\n')
        page = await ann.dead_letters("x", limit=3)
        assert [letter.sequence for letter in page] == [11, 12, 13]
        page = await ann.dead_letters("x", after=13, limit=100)
        assert [letter.sequence for letter in page] == [*range(14, 21)]


# --- CloudEvents ---------------------------------------------------------------------------------


@run_async
async def test_cloudevents_are_seen_and_published_by_the_types_of_the_schema(
    tmp_path: Path,
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "str", "data.due": "timestamp", "data.flags": "bits"}))
    policy = """
    [roles.early]
    see = { filter = 'data.due < timestamp "2026-01-02T00:00:00Z"', hide = ["data.flags"] }
    publish = 'data.due < timestamp "2026-01-02T00:00:00Z"'
    [roles.unflagged]
    see = { filter = 'not (data.flags has any bit 0b100)', mode = "default", hide = ["data.due"] }
    publish = { filter = 'not (data.flags has any bit 0b100)', mode = "default" }
    """
    async with broker_fixture(tmp_path, policy, schema_file=schema) as fixture:
        early, unflagged = (
            await fixture.login("ann", "early"),
            await fixture.login("bob", "unflagged"),
        )
        feed = await fixture.login("feed", "feed")
        for session in (early, unflagged):
            await subscribe(session, 'type = "t"', "x")
        for day, flags in ((1, 1), (1, 4), (3, 1), (3, 4)):
            event = cloudevent({"due": f"2026-01-0{day}T00:00:00Z", "flags": flags})
            await feed.publish([event], format="cloudevents")
            for session, may in ((early, day == 1), (unflagged, flags == 1)):
                if may:
                    continue
                said = await refusal(session.publish([event], format="cloudevents"))
                assert said == "forbidden: this is not an event that you may publish"
        await fixture.wait_until_idle()
        assert [one["data"] for one in await fetched(early, "x")] == [
            {"due": "2026-01-01T00:00:00Z"}
        ] * 2
        assert [one["data"] for one in await fetched(unflagged, "x")] == [{"flags": 1}] * 2


def cloudevent(data: Data) -> bytes:
    context = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    return json.dumps({**context, "data": data}).encode()


@run_async
async def test_bytes_are_hidden_with_what_may_be_in_them(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, '[roles.r]\nsee = { hide = ["data.pay"] }\n') as fixture:
        ann, feed = await fixture.login("ann", "r"), await fixture.login("feed", "feed")
        await subscribe(ann, 'type = "t"', "x")
        event = cloudevent({}).replace(b'"data": {}', b'"data_base64": "eyJwYXkiOiA1fQ=="')
        await feed.publish([event], format="cloudevents")
        await fixture.wait_until_idle()
        [seen] = await fetched(ann, "x")
        assert seen == {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


# --- who comes in, and how much ------------------------------------------------------------------


@run_async
async def test_every_invalid_token_gets_the_same_answer(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, 'blocked = ["eve"]\n' + READERS) as fixture:
        root = await fixture.login("root", "operator")
        short = await fixture.token("ann", "all", lifetime=5)
        issued = await root.issue_token("ann", ["all"])
        revoked, record = issued.text, issued.token
        await root.revoke_token(record.id)
        fixture.clock.now += 10
        broken = ["tamis_" + "A" * 43, "tamis_x", "a.b.c", "é", "x" * 100_000, short, revoked]
        said = {await refusal(fixture.broker.authenticate(text)) for text in broken}
        said.add(await refusal(fixture.broker.authenticate(await fixture.token("eve", "all"))))
        assert said == {"unauthenticated: the token is not valid"}
        assert await refusal(fixture.broker.authenticate(None)) == (
            "unauthenticated: a token is required"
        )


@run_async
async def test_what_is_for_administrators_is_refused_to_others_alike(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READERS) as fixture:
        ann, root = await fixture.login("ann", "all"), await fixture.login("root", "operator")
        issued = await root.issue_token("bob", [])
        record = issued.token
        said = {
            await refusal(ann.issue_token("ann", ["operator"])),
            await refusal(ann.revoke_token(record.id)),
            await refusal(ann.revoke_token("no such token")),
            await refusal(ann.tokens()),
            await refusal(ann.audit()),
        }
        assert said == {"forbidden: only administrators may do this"}
        acts = [(entry.principal, entry.act) for entry in await root.audit()]
        assert acts == [("root", "issue token")]
        # Who administrates sees no events for that.
        assert (
            await refusal(subscribe(root, "true"))
            == "forbidden: your roles allow you to see no events"
        )
        assert (await refusal(root.publish([b"{}"]))).startswith("forbidden: this is not an event")


@run_async
async def test_quotas_are_separate_and_reveal_nothing_about_others(tmp_path: Path) -> None:
    policy = READERS + "[quotas]\nsubscriptions = 5\nconnections = 3\npublications = 10\n"
    async with broker_fixture(tmp_path, policy) as fixture:
        ann, bob = await fixture.login("ann", "all"), await fixture.login("bob", "all")
        # Also of those that are asked for at the same moment no more than allowed are made.
        asked = [subscribe(ann, "a = 1", f"x{n}") for n in range(20)]
        said = await asyncio.gather(*asked, return_exceptions=True)
        refused = [str(one) for one in said if isinstance(one, RefusedError)]
        limit = "ann has 5 subscriptions, which is the limit; delete some"
        assert refused == [limit] * 15
        assert len(await ann.subscriptions()) == 5
        await subscribe(bob, "a = 1", "x0")
        said_late = await refusal(subscribe(ann, "a = 1"))
        assert said_late == f"too_many: {limit}"
        token = await fixture.token("ann", "all")
        more = [await fixture.broker.authenticate(token) for _ in range(2)]
        assert await refusal(fixture.broker.authenticate(token)) == (
            "too_many: ann has 3 connections, which is the limit"
        )
        await more[0].close()
        await fixture.broker.authenticate(token)
        await ann.publish([b"{}"] * 10)
        assert (await refusal(ann.publish([b"{}"]))).startswith(
            "too_many: ann publishes more than 10 events a second; try again in"
        )
        await bob.publish([b"{}"])


# --- what answers reveal indirectly -------------------------------------------------------------

SECRETS = ("quetzal", "okapi", "axolotl", "narwhal")
"""In a value, in the name of an attribute, in a filter, and in the name of a subscription."""


@run_async
async def test_metrics_status_and_logs_say_nothing_of_events_filters_and_tokens(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, READERS, max_attempts=1) as fixture:
        with log_lines() as logged:
            tokens = await use_secrets_everywhere(fixture)
        registry = fixture.broker.metrics.registry
        shown = generate_latest(registry).decode() + json.dumps(fixture.broker.status())
        lines = repr([vars(record) for record in logged])
        assert "refused" in lines
        for secret in (*SECRETS, *tokens):
            assert secret not in shown
            assert secret not in lines
        labels = {
            (label, value)
            for metric in registry.collect()
            for sample in metric.samples
            for label, value in sample.labels.items()
            if label != "le"
        }
        assert {label for label, _ in labels} <= {"code", "reason", "queue"}
        assert {value for label, value in labels if label == "code"} <= {*Code}
        assert {value for label, value in labels if label == "reason"} <= {"slow", "retention"}
        # For others there is nothing to see at all.
        client = HttpClient(fixture.broker, tokens[0])
        for path in ("status", "../metrics", "audit", "tokens"):
            assert await client.ask("GET", path) == "forbidden: only administrators may do this"
        # A token in a URL, which proxies write down, is none.
        bare = HttpClient(fixture.broker, "")
        for path in (f"subscriptions?token={tokens[1]}", f"status?access_token={tokens[1]}"):
            assert (await bare.ask("GET", path)).startswith(("unauthenticated", "bad_request"))
        for each in (client, bare):
            await each.close()


async def use_secrets_everywhere(fixture: BrokerFixture) -> list[str]:
    """Send the secrets through every operation; return the tokens that were used."""
    value, attribute, constant, name = SECRETS
    event = {"a": value, attribute: 1, "level": 1}
    tokens = [await fixture.token("ann", "reader"), await fixture.token("root", "all", "operator")]
    ann, root = HttpClient(fixture.broker, tokens[0]), FrameClient(fixture.broker, tokens[1])
    wanted = Subscribe(ref=1, filter=f"`{attribute}` = 1 or a = '{constant}'", durable=name)
    for client in (ann, root):
        await client.subscribe(wanted)
        await fixture.publish(event)
        [got, *_] = await client.fetch(name)
        await client.reject(name, got["sequence"], value)
        await fixture.broker.acknowledgement_writer.settled()
        await client.letters(name)
        await client.try_filter(wanted, encoded([event]))
        await client.explain(wanted, *encoded([event]))
        await client.explain(name, *encoded([event]))
        await client.subscribe(msgspec.structs.replace(wanted, filter=f"level = '{constant}' and"))
        await client.ask("POST", "events", event)
        await client.ask("POST", "events", {"a": [value, {}], "": value})
        await client.ask("GET", f"subscriptions/{value}")
    await root.follow(msgspec.structs.replace(wanted, durable=f"{name}2"))
    wrong = [f"tamis_{value}", "tamis_" + value.ljust(43, "x"), f"{value}.{value}.{value}"]
    for token in wrong:
        client = HttpClient(fixture.broker, token)
        assert (await client.subscribe(wanted)).startswith("unauthenticated")
        await client.close()
    await fixture.change_policy(READERS.replace("level < 3", f"level < 3 or {attribute} = 2"))
    await fixture.change_policy(READERS)
    for client in (ann, root):
        await client.close()
    return [*tokens, *wrong]


@run_async
async def test_publishers_do_not_see_errors_of_the_policy(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READERS) as fixture:
        ann = await fixture.login("ann", "all")
        await fixture.change_policy("[roles.x]\nsee = 'quetzal <'")
        fixture.broker.health.report("matches cannot be stored", "/data/okapi: no space")
        said = await refusal(ann.publish([b"{}"]))
        assert said == "unavailable: nothing was stored: matches cannot be stored"
        assert "quetzal" in "".join(fixture.broker.status()["problems"])
        fixture.broker.health.clear("matches cannot be stored")
        await ann.publish([b"{}"])


@run_async
async def test_samples_that_are_too_large_are_refused_with_a_sentence(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READERS, largest_event=1_000) as fixture:
        ann = await fixture.login("ann", "all")
        large = json.dumps({"a": "x" * 2_000}).encode()
        said = await refusal(ann.explain(filter_="a = 1", event=large))
        assert said.startswith("too_large: ")
        [trial] = await ann.try_filter("a = 1", events=[large])
        assert trial.matches is None
        assert "1,000" in trial.error

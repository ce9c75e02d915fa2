"""One wrong argument is refused in a sentence, before anything is sent, and hurts nothing else."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tamis
from tamis.client.options import ClientOptions, ConsumerOptions
from tamis.errors import EventError, OptionError
from tamis.protocol import Code
from tamis.protocol.management import IssueToken

from .buses import Connect, on_every_bus, topic

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"lifetime": "1x"}, "lifetime is '1x'; it must be a duration, such as 30, 30s,"),
    ({"lifetime": "1 year"}, "24h, 7 days (the units are ms, s, m, h, d and w), or a timedelta"),
    ({"lifetime": 0}, "lifetime is 0; it must be more than 0 s"),
    ({"lifetime": -5.0}, "lifetime is -5.0; it must be more than 0 s"),
    ({"lifetime": timedelta(days=-1)}, "it must be more than 0 s"),
    ({"lifetime": 1e12}, "it must be at most 36600 days"),
    ({"lifetime": True}, "lifetime is True; it must be a duration"),
    ({"durable": 7}, "durable is 7; it must be a text of 1 to 200 printable characters"),
    ({"durable": ""}, "durable is ''; it must be a text of 1 to 200 printable characters"),
    ({"durable": "a/b"}, "no slash"),
    ({"durable": ".."}, "not . or .."),
    ({"durable": "x" * 201}, "1 to 200"),
    ({"overflow": "bogus"}, "overflow is 'bogus'; it must be 'wait', 'drop' or 'disconnect'"),
    ({"overflow": "w"}, "overflow is 'w'; it must be 'wait', 'drop' or 'disconnect'"),
    ({"overflow": "drpo"}, "or 'disconnect'; did you mean \"drop\"?"),
    ({"overflow": None}, "overflow is None; it must be 'wait', 'drop' or 'disconnect'"),
    ({"acknowledge": "atuo"}, "it must be 'auto' or 'manual'; did you mean \"auto\"?"),
    ({"acknowledge": True}, "acknowledge is True; it must be 'auto' or 'manual'"),
    ({"mode": "stirct"}, 'did you mean "strict"?'),
    ({"mode": 3}, "mode is 3; it must be"),
    ({"language": "jmx"}, "language is 'jmx'; it must be 'tamis', 'jms', 'siena', 'xql'"),
    ({"start": "earlist"}, 'did you mean "earliest"?'),
    ({"start": "tomorrow"}, "start is 'tomorrow'; it must be 'latest', 'earliest', a sequence"),
    ({"start": 1.5}, "start is 1.5; it must be"),
    ({"start": True}, "start is True; it must be"),
    ({"start": -1}, "start is -1; it must be"),
    ({"start": 2**63}, "it must be"),
    ({"start": None}, "start is None; it must be"),
    ({"start": datetime(2026, 1, 31)}, "a datetime with a time zone; use datetime.now(UTC)"),
    ({"start": "2026-01-31T12:00:00"}, "a time with a zone; add Z for UTC"),
    ({"start": "2026-01-31"}, "a time with a zone; add Z for UTC"),
    ({"max_attempts": -1}, "max_attempts is -1; it must be a whole number from 0 to 1,000,000"),
    ({"max_attempts": "3"}, "max_attempts is '3'; it must be a whole number"),
    ({"window": 0}, "window is 0; it must be a whole number from 1"),
    ({"window": 2.5}, "window is 2.5; it must be a whole number from 1"),
    ({"window": True}, "window is True; it must be a whole number from 1"),
    ({"on_missed": "print"}, "on_missed is 'print'; it must be a function, or None"),
]
WRONG_IN_CONNECT: list[tuple[dict[str, Any], str]] = [
    ({"token": 5}, "token must be a text, a function that returns one, or None, not int"),
    ({"token": b"secret"}, "token must be a text, a function that returns one, or None, not bytes"),
    ({"timeout": "soon"}, "timeout is 'soon'; it must be a duration"),
    ({"timeout": 0}, "timeout is 0; it must be more than 0 s"),
    ({"reconnect": "no"}, "reconnect is 'no'; it must be True or False"),
    ({"patient": 1}, "patient is 1; it must be True or False"),
    ({"publish_window": 0}, "publish_window is 0; it must be a whole number from 1"),
    ({"publisher": "", "sequence": 1}, "publisher is ''; it must be a text of 1 to 200"),
    ({"publisher": 5, "sequence": 1}, "publisher is 5; it must be a text of 1 to 200"),
    ({"publisher": "p", "sequence": 0}, "sequence is 0; it must be a whole number from 1"),
    ({"publisher": "p", "sequence": "1"}, "sequence is '1'; it must be a whole number from 1"),
    ({"publisher": "p", "sequence": 2**63}, "it must be a whole number from 1"),
    ({"publisher": "p"}, "publisher and sequence go together"),
    ({"sequence": 1}, "publisher and sequence go together"),
]


def names(wrong: list[tuple[dict[str, Any], str]]) -> list[str]:
    return [str(options)[:40] for options, _ in wrong]


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=names(WRONG))
def test_a_wrong_option_of_a_subscription_is_named(options: Any, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        ConsumerOptions.of("a > 0", 256, options)
    assert sentence in str(caught.value)
    assert caught.value.option in options
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("options", "sentence"), WRONG_IN_CONNECT, ids=names(WRONG_IN_CONNECT))
def test_a_wrong_option_of_a_bus_is_named(options: Any, sentence: str) -> None:
    for make in (tamis.connect, tamis.open_bus, tamis.connect_sync, tamis.open_bus_sync):
        with pytest.raises(OptionError) as caught:
            make(**options)
        assert sentence in str(caught.value)
        assert "secret" not in str(caught.value)


def test_an_unknown_option_is_refused() -> None:
    unknown: Any = {"strat": "earliest"}
    with pytest.raises(TypeError, match=r"'strat' is not an option of subscribe.*\"start\"\?"):
        ConsumerOptions.of("a > 0", 256, unknown)
    with pytest.raises(TypeError, match=r"'policy' is not an option of subscribe; .* overflow"):
        ConsumerOptions.of("a > 0", 256, {"policy": 1})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match=r"'foo' is not an option of subscribe; they are durable,"):
        ConsumerOptions.of("a > 0", 256, {"foo": 1})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match=r"'tocken' is not an option of connect.*\"token\"\?"):
        tamis.connect(tocken="x")  # type: ignore[call-arg]


@pytest.mark.parametrize("wrong", [5, None, b"a > 0", ["a > 0"]])
def test_what_is_not_a_filter_is_refused(wrong: Any) -> None:
    with pytest.raises(OptionError, match="it must be a text or a Filter"):
        ConsumerOptions.of(wrong, 256, {})


def test_a_filter_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(OptionError, match=r"filter has a lone surrogate \(U\+D800, character 6\)"):
        ConsumerOptions.of('a = "\ud800"', 256, {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [("1h", 3600), ("500ms", 0.5), ("7 days", 604_800), (timedelta(hours=1), 3600), (5, 5)],
)
def test_durations_may_be_text(given: Any, expected: float) -> None:
    assert ConsumerOptions.of("a > 0", 256, {"lifetime": given}).lifetime == expected
    assert ClientOptions.of({"timeout": given}).timeout == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [("latest", "latest"), ("12", 12), (12, 12), (0, 0), ("2026-01-31T12Z", "2026-01-31T12Z")],
)
def test_a_start_may_be_given_in_many_ways(start: Any, expected: object) -> None:
    assert ConsumerOptions.of("a > 0", 256, {"start": start}).start == expected
    moment = datetime.fromisoformat("2026-01-31T12:00:00+00:00")
    found = ConsumerOptions.of("a > 0", 256, {"start": moment}).start
    assert datetime.fromisoformat(str(found)) == moment


@pytest.mark.parametrize("start", ["1h", "60 minutes", timedelta(hours=1)])
def test_a_start_may_be_how_long_ago(start: Any) -> None:
    found = ConsumerOptions.of("a > 0", 256, {"start": start}).start
    ago = datetime.now(UTC) - datetime.fromisoformat(str(found))
    assert timedelta(minutes=60) <= ago < timedelta(minutes=61)
    far = ConsumerOptions.of("a > 0", 256, {"start": "900000000 weeks"}).start
    assert datetime.fromisoformat(str(far)).year < 2000


@on_every_bus
async def test_a_wrong_argument_does_not_hurt_the_bus(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        consumer = await bus.subscribe(f"topic = '{name}'", durable=name)
        for options, _ in WRONG:
            with pytest.raises(OptionError):
                await bus.subscribe("a > 0", **options)
        await bus.publish({"topic": name})
        event = await consumer.next("20s")
        for call in (
            lambda: event.nack(delay="soon"),
            lambda: event.nack(delay=-1),
            lambda: event.nack(reason=5),  # type: ignore[arg-type]
            lambda: consumer.take(0),
            lambda: consumer.take("5"),  # type: ignore[arg-type]
            lambda: consumer.next("soon"),
            lambda: consumer.close(delete="no"),  # type: ignore[arg-type]
            lambda: bus.publish({"a": 1}, sequence=2**63),
            lambda: bus.publish({"a": 1}, sequence="7"),  # type: ignore[arg-type]
            lambda: bus.renew(name, "soon"),
            lambda: bus.renew(name, -1),
            lambda: bus.dead_letters(name, limit=0),
            lambda: bus.dead_letters(name, after="x"),  # type: ignore[arg-type]
            lambda: bus.requeue(name, ["x"]),  # type: ignore[list-item]
            lambda: bus.subscription(5),  # type: ignore[arg-type]
            lambda: bus.try_filter("a = 1", [], mode="slq"),
            lambda: bus.explain({"a": 1}, filter=5),  # type: ignore[arg-type]
        ):
            with pytest.raises(OptionError):
                await call()
        assert (await bus.renew(name, "1h")).expires_at is not None
        await event.nack(delay="20ms", reason="x" * 5_000_000)
        assert (await consumer.next(timedelta(seconds=20))).attempt == 2
        await consumer.close(delete=True)


@on_every_bus
async def test_an_argument_has_the_name_that_the_caller_gave_it(connect: Connect) -> None:
    bus = connect()
    for call, words in (
        (lambda: bus.renew(7, "1h"), "id must be a text, not an integer"),  # type: ignore[arg-type]
        (lambda: bus.requeue(7, [1]), "id must be a text, not an integer"),  # type: ignore[arg-type]
        (lambda: bus.requeue("x", [1, "y"]), "sequences[1] must be an integer"),  # type: ignore[list-item]
        (lambda: bus.requeue("x", 5), "sequences is 5; it must be a list of whole"),  # type: ignore[arg-type]
        (lambda: bus.delete_dead_letters("x", "12"), "it must be a list"),  # type: ignore[arg-type]
        (lambda: bus.requeue("x", [object()]), "sequences is not valid: "),  # type: ignore[list-item]
        (lambda: bus.dead_letters("x", limit=0), "limit must be an integer of at least 1"),
        (lambda: bus.call(IssueToken("")), "principal must be a text of at least 1 character"),
    ):
        with pytest.raises(OptionError) as raised:
            await call()
        assert words in str(raised.value)
        assert "DeadLetters" not in str(raised.value)


@on_every_bus
async def test_what_is_no_collection_of_events_is_refused(connect: Connect) -> None:
    async with connect() as bus:
        for wrong in (None, 5):
            with pytest.raises(EventError, match="publish_many takes several events, not"):
                await bus.publish_many(wrong)  # type: ignore[arg-type]
            with pytest.raises(EventError, match="try_filter takes several events, not"):
                await bus.try_filter("a = 1", wrong)  # type: ignore[arg-type]
        with pytest.raises(EventError, match="try_filter takes several events, not one dict"):
            await bus.try_filter("a = 1", {"a": 1})
        with pytest.raises(EventError, match=r"events\[1\]") as raised:
            await bus.try_filter("a = 1", [{"a": 1}, {"a": 1j}])
        assert raised.value.index == 1


@on_every_bus
async def test_what_is_too_large_for_a_frame_fails_alone(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        consumer = await bus.subscribe(f"topic = '{name}'")
        large = f"a = '{'x' * 5_000_000}'"
        with pytest.raises(tamis.RefusedError, match=r"limit of 4,194,304 bytes") as caught:
            await bus.subscribe(large)
        assert caught.value.code == Code.TOO_LARGE
        with pytest.raises(tamis.RefusedError, match=r"limit of 4,194,304 bytes"):
            await bus.subscribe(large, durable=name)
        with pytest.raises(tamis.RefusedError, match="exceeds the limit") as caught:
            await bus.publish({"text": "x" * 5_000_000})
        assert caught.value.code == Code.TOO_LARGE
        assert bus.is_connected
        await bus.publish({"topic": name})
        assert (await consumer.next(20))["topic"] == name
        # The name is free again.
        again = await bus.subscribe("a = 1", durable=name)
        await again.close(delete=True)


def test_a_synchronous_bus_refuses_alike() -> None:
    with tamis.open_bus_sync(timeout="20s") as bus:
        for options in ({"lifetime": "1x"}, {"overflow": "bogus"}, {"durable": 7}):
            with pytest.raises(OptionError):
                bus.subscribe("a > 0", **options)
        with pytest.raises(TypeError, match="'strat' is not an option"):
            bus.subscribe("a > 0", strat="earliest")  # type: ignore[call-overload]
        consumer = bus.subscribe("a > 0", lifetime="1h")
        bus.publish({"a": 1})
        assert consumer.next("20s")["a"] == 1
        with pytest.raises(OptionError):
            consumer.next("soon")


def test_the_options_are_checked_before_connecting() -> None:
    async def main() -> None:
        bus = tamis.connect("http://127.0.0.1:1")
        with pytest.raises(OptionError, match="lifetime"):
            bus.subscribe("a > 0", lifetime="1x")
        with pytest.raises(OptionError, match="lifetime"):
            bus.on("a > 0", lifetime="1x")
        with pytest.raises(OptionError, match="tls"):
            tamis.connect(tls=True)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="url"):
            tamis.connect(5)  # type: ignore[arg-type]

    asyncio.run(main())

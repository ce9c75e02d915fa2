"""The options of clients and subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from types import BuiltinFunctionType, FunctionType
from typing import Final, Literal, NamedTuple, TypedDict, get_args

import msgspec

from tamis.client import option_checks as checks
from tamis.errors import EventError, LimitError, OptionError
from tamis.filters import Filter, Mode
from tamis.protocol.frames import MAX_ATTEMPTS, Overflow
from tamis.protocol.management import MAX_NUMBER
from tamis.units import Duration

WINDOW_EVENTS: Final = 256
# What waits in one member of a group, the others cannot handle.
GROUP_WINDOW_EVENTS: Final = 4
PUBLISH_WINDOW_EVENTS: Final = 5_000
MAX_WINDOW_EVENTS: Final = 1_000_000

Token = str | Callable[[], str | Awaitable[str]] | None
"""A token, or a function that returns one for every connection."""
Lifetime = Duration | None
"""Seconds, text such as `"7 days"`, or a timedelta; None: no limit."""
AcknowledgeMode = Literal["auto", "manual"]

_OVERFLOWS: Final = get_args(Overflow)
_ACKNOWLEDGE_MODES: Final = get_args(AcknowledgeMode)


class ConnectOptions(TypedDict, total=False):
    """The options of a client, all of them optional."""

    token: Token
    """A token, or a function, asynchronous or not, that returns one for every connection."""
    publisher: str | None
    """A name for publications that outlives this process; it requires `sequence`."""
    sequence: int | None
    """The number of the next event under that name. The broker ignores a number it has seen."""
    timeout: Duration | None
    """How long to wait for an answer; None: no limit."""
    reconnect: bool
    """Whether to reconnect when the connection is lost; True by default."""
    window: int
    """How many events of a subscription may wait in this process."""
    publish_window: int
    """How many published events may wait for their acknowledgement before `publish` waits."""
    patient: bool
    """Whether to publish again, rather than raise, when the broker refuses an event because it is
    overloaded or full; False by default."""


class ClientOptions(NamedTuple):
    """The options of a client with their defaults."""

    token: Token = None
    publisher: str | None = None
    sequence: int | None = None
    timeout: float | None = 30.0
    reconnect: bool = True
    window: int = WINDOW_EVENTS
    publish_window: int = PUBLISH_WINDOW_EVENTS
    patient: bool = False

    @classmethod
    def of(cls, options: ConnectOptions) -> ClientOptions:
        """Return the options with defaults for the missing ones; refuse what cannot be used."""
        checks.check_known(options, cls._fields, "connect")
        # The timeout is converted below.
        given = cls(**options)  # type: ignore[arg-type]
        most = MAX_WINDOW_EVENTS
        if (given.publisher is None) is not (given.sequence is None):
            raise OptionError(
                "publisher",
                "and sequence go together: when a name is used again, the broker expects its "
                "numbers to go on",
            )
        if given.publisher is not None and given.sequence is not None:
            checks.check_name("publisher", given.publisher)
            checks.check_integer("sequence", given.sequence, 1, MAX_NUMBER)
        return given._replace(
            token=_check_token(given.token),
            timeout=checks.check_duration("timeout", given.timeout),
            reconnect=checks.check_flag("reconnect", given.reconnect),
            window=checks.check_integer("window", given.window, 1, most),
            publish_window=checks.check_integer("publish_window", given.publish_window, 1, most),
            patient=checks.check_flag("patient", given.patient),
        )


def _check_token(token: Token) -> Token:
    if token is not None and not isinstance(token, str) and not callable(token):
        # The value is not shown: it may be a secret.
        raise OptionError(
            "token",
            f"must be a text, a function that returns one, or None, not {type(token).__name__}",
        )
    return token


class Missed(msgspec.Struct, frozen=True):
    """Events that a subscription missed."""

    count: int | None
    """None: unknown."""
    reason: str
    """`slow`: the subscriber was too slow; `retention`: the broker kept them no longer;
    `damage`: its disk lost them; `invalid`: its schema has changed; `dead_letters`: there were too
    many of them; `disconnected`."""


class SubscribeOptions(TypedDict, total=False):
    """The options of a subscription, all of them optional."""

    durable: str | None
    """A name under which the broker keeps the subscription and its events while nobody is
    connected."""
    acknowledge: AcknowledgeMode
    """`auto`: an event of a durable subscription is acknowledged when you ask for the next one, any
    other when it is sent. `manual`: by `event.ack()`."""
    start: int | str | datetime | timedelta
    """`latest` (the default), `earliest`, a sequence, a time, or how long ago: `"1h"`."""
    lifetime: Lifetime
    """Seconds, text such as `"7 days"`, or a timedelta until it expires, counted from the latest
    connection."""
    language: str
    mode: Mode | str | None
    overflow: Overflow
    """What happens to events while the subscriber is slow: `wait` (the default) on the broker's
    disk, `drop` the oldest, or `disconnect`, which ends the subscription."""
    max_attempts: int
    """How often an event is sent before it becomes a dead letter; 0: the broker's setting."""
    window: int
    """How many events may wait in this process; for a member of a group, 4 by default."""
    on_missed: Callable[[Missed], object] | None
    """Called when events are missed; without it, a warning is logged."""
    collection: str | None
    """Of a subscription to objects: the collections that they were added to, by a name or a pattern
    such as `/market/*`."""
    on_refused: Callable[[EventError | LimitError], object] | None
    """Of a subscription to objects: called when one cannot be read; without it, a warning is
    logged."""
    roaming: bool
    """Whether to bring a durable subscription here, with all that waits, if it is at home at
    another broker that is linked to this one; False by default."""
    group: str | None
    """The name of a group of consumers, on any number of connections, that share a durable
    subscription: each event goes to one of them, and to another if that one goes before it has
    acknowledged the event."""
    ordering_key: str | None
    """An attribute: of the events with the same value of it, a group handles one after the
    other, in order."""


class ConsumerOptions(NamedTuple):
    """A filter and the options of a subscription, complete."""

    filter: str
    language: str
    mode: str | None
    durable: str | None
    lifetime: float | None
    start: int | str
    overflow: Overflow
    acknowledge: AcknowledgeMode
    max_attempts: int
    window: int
    on_missed: Callable[[Missed], object] | None
    roaming: bool = False
    group: bool = False
    """Whether `durable` is the name of a group."""
    ordering_key: str = ""

    @classmethod
    def of(cls, filter_: str | Filter, window: int, options: SubscribeOptions) -> ConsumerOptions:
        """Return the request with defaults for the missing options; refuse what cannot be used."""
        if "policy" in options:
            raise TypeError(
                "'policy' is not an option of subscribe; what happens to events while the "
                "subscriber is slow is overflow"
            )
        checks.check_known(options, SubscribeOptions.__annotations__, "subscribe")
        group, durable = options.get("group"), options.get("durable")
        ordering_key = checks.check_attribute("ordering_key", options.get("ordering_key"))
        _check_group(group, durable, ordering_key)
        if group is not None:
            durable, window = group, min(window, GROUP_WINDOW_EVENTS)
        window = options.get("window", window)
        attempts = options.get("max_attempts", 0)
        acknowledge = options.get("acknowledge", "auto")
        roaming = checks.check_flag("roaming", options.get("roaming", False))
        for name in ("collection", "on_refused"):
            if options.get(name) is not None:
                raise OptionError(name, "is for filters over objects: leave it out")
        if roaming and group is not None:
            raise OptionError("roaming", "is not for a group, which stays at its broker")
        if roaming and durable is None:
            raise OptionError("roaming", "needs durable, the name that the subscription has")
        return cls(
            filter=checks.check_filter(filter_),
            language=checks.check_language(options.get("language", "tamis")),
            mode=checks.check_mode(options.get("mode")),
            durable=checks.check_subscription_name(
                "durable" if group is None else "group", durable
            ),
            lifetime=checks.check_duration("lifetime", options.get("lifetime")),
            start=checks.check_position("start", options.get("start", "latest")),
            overflow=checks.check_choice("overflow", options.get("overflow", "wait"), _OVERFLOWS),
            acknowledge=checks.check_choice("acknowledge", acknowledge, _ACKNOWLEDGE_MODES),
            max_attempts=checks.check_integer("max_attempts", attempts, 0, MAX_ATTEMPTS),
            window=checks.check_integer("window", window, 1, MAX_WINDOW_EVENTS),
            on_missed=checks.check_function("on_missed", options.get("on_missed")),
            roaming=roaming,
            group=group is not None,
            ordering_key=ordering_key or "",
        )

    @property
    def is_stored(self) -> bool:
        """Return whether events wait on the broker's disk, so that it can start in the past."""
        return self.overflow == "wait"

    @property
    def settles(self) -> bool:
        """Return whether events are acknowledged one by one, rather than when they are sent."""
        return self.durable is not None or self.acknowledge == "manual"


def _check_group(group: str | None, durable: str | None, ordering_key: str | None) -> None:
    """Refuse options that do not go together."""
    if group is not None and durable is not None:
        raise OptionError("group", "is the name of a durable subscription: leave out durable")
    if group is None and ordering_key is not None:
        raise OptionError("ordering_key", "needs group: without one, all events come in order")


def refuse_function(given: object) -> None:
    """Refuse a function where a filter is expected: `@bus.on` decorates with parentheses."""
    if isinstance(given, FunctionType | BuiltinFunctionType):
        raise OptionError("filter", "is a function: write @bus.on(), with parentheses")

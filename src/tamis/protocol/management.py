"""The management calls: everything a client can ask of a broker besides frames.

Each is entered in the table (`management_table.py`). The HTTP routes, the OpenAPI document, the
HTTP client, the in-process client and `Bus.call` follow from it. To add a call, add a struct here
and a method to the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, field

from tamis.events.schema import did_you_mean
from tamis.filters import Filter, FilterLimits, Mode
from tamis.languages.registry import ALL_LANGUAGES
from tamis.protocol.codes import Code
from tamis.protocol.frames import MAX_NAME_CHARACTERS, OrderingKeyName
from tamis.protocol.management_table import OPERATIONS as OPERATIONS  # noqa: PLC0414 - exported
from tamis.protocol.management_table import ManagementCall as ManagementCall  # noqa: PLC0414
from tamis.protocol.management_table import (
    ManagementOperation as ManagementOperation,  # noqa: PLC0414
)
from tamis.protocol.management_table import operation
from tamis.protocol.views import (
    AuditEntryView,
    Creation,
    DeadLetterView,
    HistoryView,
    IssuedTokenView,
    PeerView,
    SubscriptionList,
    SubscriptionView,
    TokenView,
    TopologyView,
    Trial,
)

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from tamis.units import Duration

MAX_PAGE_ITEMS: Final = 1_000
MAX_NUMBER: Final = 2**63 - 1
MAX_LIFETIME_SECONDS: Final = 100 * 366 * 86_400

# --- types of fields -----------------------------------------------------------------------------

FilterText = Annotated[
    str, Meta(max_length=FilterLimits().text, description="The filter.", examples=["price < 5"])
]
LanguageName = Annotated[
    str,
    Meta(description="The language of the filter.", extra_json_schema={"enum": [*ALL_LANGUAGES]}),
]
ModeName = Annotated[
    Mode | None, Meta(description="What an absent attribute means; null: the broker's setting.")
]
PrincipalName = Annotated[
    str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=r"^[!-~]([ -~]*[!-~])?$")
]
RoleName = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.:/-]+$")]
SequenceNumber = Annotated[
    int, Meta(ge=1, le=MAX_NUMBER, description="An event's position in the log.")
]
After = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
PageSize = Annotated[int, Meta(ge=1, le=MAX_PAGE_ITEMS)]
LifetimeSeconds = Annotated[
    float,
    Meta(gt=0, le=MAX_LIFETIME_SECONDS, description="Seconds until it expires; null: never."),
]
MOMENT_SCHEMA: Final = {"anyOf": [{"enum": ["latest", "earliest"]}, {"format": "date-time"}]}
PositionText = Annotated[
    str,
    Meta(
        max_length=64,
        description="`latest`, `earliest`, a sequence, or a time such as 2026-01-31T12:00:00Z.",
        extra_json_schema={"anyOf": [*MOMENT_SCHEMA["anyOf"], {"pattern": "^[0-9]{1,18}$"}]},
    ),
]
_STEPS: Final = (".", "..")
"""In the path of an address these are no names; most clients resolve them before they ask."""
SUBSCRIPTION_NAME_RULE: Final = (
    f"a text of 1 to {MAX_NAME_CHARACTERS} printable characters and no slash, and not . or .."
)
SubscriptionName = Annotated[
    str,
    # Not checked by the decoder: of many, one with a wrong name is refused by itself.
    Meta(
        description=f"Its name: {SUBSCRIPTION_NAME_RULE}.",
        extra_json_schema={
            "minLength": 1,
            "maxLength": MAX_NAME_CHARACTERS,
            "pattern": r"^[^/\u0000-\u001f\u007f-\u00a0]+$",
            "not": {"enum": [*_STEPS]},
        },
    ),
]
StartPosition = Annotated[
    Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
    | Annotated[str, Meta(max_length=64, extra_json_schema=MOMENT_SCHEMA)],
    Meta(description="`latest`, `earliest`, a sequence, or a time such as 2026-01-31T12:00:00Z."),
]
SampleEvent = Annotated[
    msgspec.Raw,
    Meta(
        description="An event; a string is the text of an XML document.",
        extra_json_schema={"type": ["object", "string"]},
    ),
]

# --- arguments -----------------------------------------------------------------------------------


def is_subscription_name(name: object) -> bool:
    """Return whether a subscription may have this name.

    >>> is_subscription_name("till 7"), is_subscription_name("till/7"), is_subscription_name("..")
    (True, False, False)
    """
    return (
        isinstance(name, str)
        and 0 < len(name) <= MAX_NAME_CHARACTERS
        and name.isprintable()
        and "/" not in name
        and name not in _STEPS
    )


class _HintingStruct(msgspec.StructMeta):
    """Structs that say which field may have been meant."""

    if not TYPE_CHECKING:

        def __call__(cls, *values: Any, **fields: Any) -> Any:  # noqa: N805 - a metaclass
            known = cls.__struct_fields__
            for name in fields:
                if name not in known:
                    hint = did_you_mean(name, known) or f"they are {', '.join(known)}"
                    raise TypeError(f"{name!r:.60} is not a field of {cls.__name__}; {hint}")
            return super().__call__(*values, **fields)


class NewSubscription(
    msgspec.Struct, kw_only=True, forbid_unknown_fields=True, metaclass=_HintingStruct
):
    """A subscription to create."""

    filter: FilterText
    id: SubscriptionName | None = None
    """Its name; the broker chooses one if there is none."""
    language: LanguageName = "tamis"
    mode: ModeName = None
    lifetime: LifetimeSeconds | None = None
    start: StartPosition = "latest"
    max_attempts: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Deliveries of one event before it becomes a dead letter; 0 is the broker's setting."""
    group: bool = False
    """Whether a group shares it: each event goes to one of the members."""
    ordering_key: OrderingKeyName = ""
    """The attribute whose value says which events of a group are handled in order."""

    if TYPE_CHECKING:
        # What `create_subscriptions` of a client takes, which converts it as `subscribe` does.
        def __init__(
            self,
            *,
            filter: str | Filter,  # noqa: A002
            id: str | None = None,  # noqa: A002
            language: str = "tamis",
            mode: Mode | str | None = None,
            lifetime: Duration | None = None,
            start: int | str | datetime | timedelta = "latest",
            max_attempts: int = 0,
            group: bool = False,
            ordering_key: str = "",
        ) -> None: ...


class RoamingSubscription(NewSubscription, kw_only=True, forbid_unknown_fields=True):
    """A subscription to create, or to bring from another broker."""

    roaming: bool = False
    """Whether to bring it here, with what waits, if a linked broker has it; it needs an `id`."""


# --- responses that are more than the result -----------------------------------------------------


class DeadLetterList(msgspec.Struct):
    """Events that failed after too many attempts."""

    dead_letters: list[DeadLetterView]


class CreationResults(msgspec.Struct):
    """One result for each subscription, in order."""

    results: list[Creation]


class CountView(msgspec.Struct):
    """How many there were."""

    count: int


class TrialResults(msgspec.Struct):
    """One result for each event, in order."""

    results: list[Trial]


class WantedView(msgspec.Struct):
    """Whether anybody would get an event."""

    wanted: bool


class ExplanationView(msgspec.Struct):
    """Whether an event matches, and why, in lines of text."""

    matched: bool
    explanation: str


class TokenList(msgspec.Struct):
    """The valid tokens."""

    tokens: list[TokenView]


class PeerList(msgspec.Struct):
    """The links of the broker."""

    peers: list[PeerView]


class AuditLog(msgspec.Struct):
    """Administrative acts, in order."""

    entries: list[AuditEntryView]


# --- subscriptions -------------------------------------------------------------------------------

_SUBSCRIPTION: Final = "/v1/subscriptions/{subscription}"


@operation("GET", "/v1/subscriptions", "list_subscriptions", tag="Subscriptions")
class ListSubscriptions(ManagementCall[SubscriptionList]):
    """List your subscriptions."""

    after: Annotated[str, Meta(max_length=MAX_NAME_CHARACTERS, description="The last id seen.")] = (
        ""
    )
    limit: PageSize = 100


@operation(
    "POST",
    "/v1/subscriptions/batch",
    "create_subscriptions",
    tag="Subscriptions",
    response=CreationResults,
    refuses=(Code.BAD_FILTER,),
)
class CreateSubscriptions(ManagementCall[list[Creation]]):
    """Create many subscriptions, which share the time that the disk takes.

    Each has a result of its own: created, resumed, or refused with a reason, as for a name, a
    start, a language or a filter that is not valid. A field that is unknown, has another type or is
    out of bounds refuses them all, and `detail` says which it is.
    """

    subscriptions: Annotated[list[NewSubscription], Meta(min_length=1, max_length=MAX_PAGE_ITEMS)]


@operation("GET", _SUBSCRIPTION, "subscription", tag="Subscriptions", refuses=(Code.NOT_FOUND,))
class ReadSubscription(ManagementCall[SubscriptionView]):
    """Show one of your subscriptions."""

    id_: str = field(name="subscription")


@operation(
    "PATCH",
    _SUBSCRIPTION,
    "renew",
    tag="Subscriptions",
    refuses=(Code.NOT_FOUND, Code.STORAGE_FULL),
)
class RenewSubscription(ManagementCall[SubscriptionView]):
    """Renew a subscription: set when it expires, in seconds from now."""

    id_: str = field(name="subscription")
    lifetime: LifetimeSeconds | None


@operation(
    "PUT",
    f"{_SUBSCRIPTION}/filter",
    "update",
    tag="Subscriptions",
    refuses=(Code.NOT_FOUND, Code.BAD_FILTER, Code.CONFLICT, Code.STORAGE_FULL),
)
class UpdateSubscription(ManagementCall[SubscriptionView]):
    """Replace the filter of a durable subscription; the events that wait for it stay.

    `filter_from` of the answer is the first event that the new filter holds for.
    """

    id_: str = field(name="subscription")
    filter_: FilterText = field(name="filter")
    language: LanguageName = "tamis"
    mode: ModeName = None


@operation(
    "DELETE",
    _SUBSCRIPTION,
    "delete",
    tag="Subscriptions",
    refuses=(Code.NOT_FOUND, Code.STORAGE_FULL),
)
class DeleteSubscription(ManagementCall[None]):
    """Delete a subscription and the events that wait for it."""

    id_: str = field(name="subscription")


# --- dead letters --------------------------------------------------------------------------------


@operation(
    "GET",
    f"{_SUBSCRIPTION}/dead-letters",
    "dead_letters",
    tag="Delivery",
    response=DeadLetterList,
    refuses=(Code.NOT_FOUND,),
)
class ListDeadLetters(ManagementCall[list[DeadLetterView]]):
    """List dead letters: events that failed after too many attempts."""

    id_: str = field(name="subscription")
    after: Annotated[int, Meta(ge=0, le=MAX_NUMBER, description="The last one seen.")] = 0
    limit: PageSize = 100


@operation(
    "POST",
    f"{_SUBSCRIPTION}/dead-letters/requeue",
    "requeue",
    tag="Delivery",
    response=CountView,
    refuses=(Code.NOT_FOUND, Code.STORAGE_FULL),
)
class RequeueDeadLetters(ManagementCall[int]):
    """Send dead letters again, as if they had never been sent."""

    id_: str = field(name="subscription")
    sequences: Annotated[list[SequenceNumber], Meta(min_length=1, max_length=10_000)]


@operation(
    "DELETE",
    f"{_SUBSCRIPTION}/dead-letters",
    "delete_dead_letters",
    tag="Delivery",
    response=CountView,
    refuses=(Code.NOT_FOUND, Code.STORAGE_FULL),
)
class DeleteDeadLetters(ManagementCall[int]):
    """Delete dead letters."""

    id_: str = field(name="subscription")
    sequences: Annotated[list[SequenceNumber], Meta(min_length=1, max_length=1000)] = field(
        name="sequence"
    )


# --- history and filters -------------------------------------------------------------------------


@operation("GET", "/v1/history", "history", tag="Events", refuses=(Code.BAD_FILTER,))
class ReadHistory(ManagementCall[HistoryView]):
    """Read past events that match a filter, page by page, without a subscription.

    A page can be empty and yet not the last: continue with `start` set to `next`, and `end` to
    `end`, until both are equal.
    """

    filter_: FilterText = field(name="filter", default="true")
    language: LanguageName = "tamis"
    mode: ModeName = None
    start: PositionText = "earliest"
    """The first event to read."""
    end: PositionText = "latest"
    """The first event not to read."""
    limit: Annotated[
        int, Meta(ge=1, le=MAX_PAGE_ITEMS, description="The maximum number of events.")
    ] = 100


@operation(
    "POST",
    "/v1/events/wanted",
    "wanted",
    tag="Events",
    response=WantedView,
    refuses=(Code.BAD_EVENT,),
)
class AskWanted(ManagementCall[bool]):
    """Ask whether anybody would get an event if it were published now.

    Durable subscriptions count while nobody is connected, and so do those of linked brokers.
    """

    event: SampleEvent


@operation(
    "POST",
    "/v1/filters/try",
    "try_filter",
    tag="Filters",
    response=TrialResults,
    refuses=(Code.BAD_FILTER,),
)
class TryFilter(ManagementCall[list[Trial]]):
    """Try a filter on sample events, without subscribing."""

    filter_: FilterText = field(name="filter")
    events: Annotated[list[msgspec.Raw], Meta(max_length=MAX_PAGE_ITEMS)]
    language: LanguageName = "tamis"
    mode: ModeName = None


@operation(
    "POST",
    "/v1/filters/explain",
    "explain",
    tag="Filters",
    refuses=(Code.BAD_FILTER, Code.BAD_EVENT),
)
class ExplainFilter(ManagementCall[ExplanationView]):
    """Explain why a filter matches a sample event, or why not."""

    filter_: FilterText = field(name="filter")
    event: SampleEvent
    language: LanguageName = "tamis"
    mode: ModeName = None


@operation(
    "POST",
    f"{_SUBSCRIPTION}/explain",
    "explain",
    tag="Filters",
    refuses=(Code.NOT_FOUND, Code.BAD_FILTER, Code.BAD_EVENT),
)
class ExplainSubscription(ManagementCall[ExplanationView]):
    """Explain why a subscription matches a sample event, or why not."""

    id_: str = field(name="subscription")
    event: SampleEvent


# --- administration ------------------------------------------------------------------------------


@operation(
    "POST",
    "/v1/tokens",
    "issue_token",
    tag="Administration",
    status=201,
    refuses=(Code.STORAGE_FULL,),
)
class IssueToken(ManagementCall[IssuedTokenView]):
    """Issue a token."""

    principal: PrincipalName
    roles: Annotated[list[RoleName], Meta(max_length=100)] = field(default_factory=list)
    lifetime: LifetimeSeconds | None = None
    note: Annotated[str, Meta(max_length=500, description="For readers of the list.")] = ""
    undefined_roles: Annotated[
        bool, Meta(description="Accept roles that the policy does not define yet.")
    ] = False


@operation("GET", "/v1/tokens", "tokens", tag="Administration", response=TokenList)
class ListTokens(ManagementCall[list[TokenView]]):
    """List the valid tokens."""


@operation(
    "DELETE",
    "/v1/tokens/{token}",
    "revoke_token",
    tag="Administration",
    refuses=(Code.NOT_FOUND, Code.STORAGE_FULL),
)
class RevokeToken(ManagementCall[None]):
    """Revoke a token and close the connections that use it."""

    token_id: str = field(name="token")


@operation("GET", "/v1/audit", "audit", tag="Administration", response=AuditLog)
class ReadAuditLog(ManagementCall[list[AuditEntryView]]):
    """Read the log of administrative acts."""

    after: After = 0
    limit: PageSize = 100


@operation("GET", "/v1/status", "status", tag="Administration", name="status")
class ReadStatus(ManagementCall[dict[str, Any]]):
    """Show the broker's state and its main counters."""


# --- links to other brokers ----------------------------------------------------------------------

PeerAddress = Annotated[
    str,
    Meta(
        min_length=1, max_length=1_000, description="Its address, such as https://hamburg.example."
    ),
]


PeerToken = Annotated[
    str,
    Meta(min_length=1, max_length=8_000, description="The token that the other broker asks for."),
]


@operation("GET", "/v1/peers", "peers", tag="Peers", response=PeerList)
class ListPeers(ManagementCall[list[PeerView]]):
    """List the links to other brokers, whether they are connected or not."""


@operation(
    "POST",
    "/v1/peers",
    "add_peer",
    tag="Peers",
    status=201,
    refuses=(Code.CONFLICT, Code.STORAGE_FULL),
)
class AddPeer(ManagementCall[PeerView]):
    """Link this broker to another, also after a restart."""

    url: PeerAddress
    token: PeerToken | None = None
    role: RoleName | None = None
    """The role that the other broker has here, if there is a policy."""


@operation(
    "DELETE",
    "/v1/peers",
    "remove_peer",
    tag="Peers",
    refuses=(Code.NOT_FOUND, Code.CONFLICT, Code.STORAGE_FULL),
)
class RemovePeer(ManagementCall[None]):
    """Remove a link, and delete the events that wait for the other broker."""

    peer: Annotated[
        str, Meta(min_length=1, max_length=1_000, description="The peer's id, name or address.")
    ]


@operation("GET", "/v1/topology", "topology", tag="Peers", name="topology")
class ReadTopology(ManagementCall[TopologyView]):
    """Show all brokers that can be reached over links, and what passes each link."""


def parse_position(text: int | str) -> int | str:
    """Return a position in the log, with a sequence as a number.

    >>> parse_position("12"), parse_position("earliest")
    (12, 'earliest')
    """
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return text

"""What requests bring and responses hold: decoding and the OpenAPI document use these structs."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tamis.broker.sessions import LONGEST_NAME, LONGEST_WAIT, MOST_AT_ONCE
from tamis.filters import FilterLimits, Mode
from tamis.languages.registry import LANGUAGES
from tamis.protocol import Delivery
from tamis.protocol.frames import Policy
from tamis.protocol.views import DeadLetterView, SubscriptionView, TokenView, Trial

LARGEST_NUMBER: Final = 2**63 - 1
LONGEST_LIFETIME: Final = 100 * 366 * 86_400

# --- parts ---------------------------------------------------------------------------------------

FilterText = Annotated[
    str, Meta(max_length=FilterLimits().text, description="The filter.", examples=["price < 5"])
]
Language = Annotated[
    str,
    Meta(description="The language of the filter.", extra_json_schema={"enum": [*LANGUAGES]}),
]
ModeName = Annotated[
    Mode | None, Meta(description="What an absent attribute means; null: as the broker is set.")
]
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_NAME,
        pattern=r"^[A-Za-z0-9._~@:-]+$",
        description="A name that can stand in a URL.",
    ),
]
PrincipalName = Annotated[
    str, Meta(min_length=1, max_length=LONGEST_NAME, pattern=r"^[!-~]([ -~]*[!-~])?$")
]
RoleName = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.:/-]+$")]
Sequence = Annotated[int, Meta(ge=1, le=LARGEST_NUMBER, description="An event's place in the log.")]
Position = Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]
Lifetime = Annotated[
    float,
    Meta(gt=0, le=LONGEST_LIFETIME, description="Seconds until it expires; null: it does not."),
]
_MOMENT: Final = {"anyOf": [{"enum": ["latest", "earliest"]}, {"format": "date-time"}]}
Start = Annotated[
    Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]
    | Annotated[str, Meta(max_length=64, extra_json_schema=_MOMENT)],
    Meta(description="`latest`, `earliest`, a sequence, or a time such as 2026-01-31T12:00:00Z."),
]
PlaceText = Annotated[
    str,
    Meta(
        max_length=64,
        description="`latest`, `earliest`, a sequence, or a time such as 2026-01-31T12:00:00Z.",
        extra_json_schema={"anyOf": [*_MOMENT["anyOf"], {"pattern": "^[0-9]{1,18}$"}]},
    ),
]
JSONObject = Annotated[
    msgspec.Raw, Meta(description="An event.", extra_json_schema={"type": "object"})
]


class _RequestBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A body or a query: what it does not know it refuses, so that no mistake goes unnoticed."""


class _ResponseBody(msgspec.Struct, kw_only=True):
    """The body of a response."""


# --- subscriptions -------------------------------------------------------------------------------


class NewSubscription(_RequestBody):
    """A subscription to be made."""

    filter: FilterText
    id: Name | None = None
    """Its name; one is made up if there is none."""
    language: Language = "tamis"
    mode: ModeName = None
    lifetime: Lifetime | None = None
    start: Start = "latest"
    max_attempts: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Deliveries of one event before it goes to the dead letters; 0: as the broker is set."""


class Renewal(_RequestBody):
    """For how long a subscription is to live from now on."""

    lifetime: Lifetime | None


class Page(_RequestBody):
    """A part of a list."""

    after: Annotated[str, Meta(max_length=LONGEST_NAME, description="The last id seen.")] = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 100


class SubscriptionList(_ResponseBody):
    """Subscriptions, by id."""

    subscriptions: list[SubscriptionView]
    next: str | None
    """What to give as `after` for those that follow; null: there are no more."""


# --- delivery ------------------------------------------------------------------------------------


class Fetch(_RequestBody):
    """How much to fetch, and how long to wait for it."""

    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 100
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds.")] = 0.0


class Fetched(_ResponseBody):
    """Events; they come again unless they are acknowledged in time."""

    events: list[Delivery]


class Acknowledgement(_RequestBody):
    """Events that need not come again: each alone, or all up to one."""

    sequences: Annotated[list[Sequence], Meta(max_length=10_000)] = []
    up_to: Position = 0


class Rejection(_RequestBody):
    """An event that is to come again later."""

    sequence: Sequence
    delay: Annotated[float, Meta(ge=0, le=LONGEST_LIFETIME)] | None = None
    """Seconds; null: the longer the more often it has come."""
    reason: Annotated[str, Meta(max_length=500)] = ""


class DeadLetterPage(_RequestBody):
    """A part of the dead letters."""

    after: Annotated[int, Meta(ge=0, le=LARGEST_NUMBER, description="The last one seen.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 100


class DeadLetterList(_ResponseBody):
    """Events that were given up."""

    dead_letters: list[DeadLetterView]


class SequenceList(_RequestBody):
    """Some events."""

    sequences: Annotated[list[Sequence], Meta(min_length=1, max_length=10_000)]


class DeadLetterQuery(_RequestBody):
    """Some dead letters, named in the query."""

    sequence: Annotated[list[Sequence], Meta(min_length=1, max_length=1000)]


class CountView(_ResponseBody):
    """How many it was."""

    count: int


# --- filters -------------------------------------------------------------------------------------


class Trials(_RequestBody):
    """A filter, and events to try it on."""

    filter: FilterText
    events: Annotated[list[msgspec.Raw], Meta(max_length=MOST_AT_ONCE)]
    language: Language = "tamis"
    mode: ModeName = None


class TrialResults(_ResponseBody):
    """One result for each event, in order."""

    results: list[Trial]


class ExplainFilter(_RequestBody):
    """A filter and an event: why does it match, or why not?"""

    filter: FilterText
    event: JSONObject
    language: Language = "tamis"
    mode: ModeName = None


class ExplainSubscription(_RequestBody):
    """An event."""

    event: JSONObject


class ExplanationView(_ResponseBody):
    """Why an event matches or does not, in lines of text."""

    explanation: str


# --- headers -------------------------------------------------------------------------------------


class _Headers(msgspec.Struct, kw_only=True):
    """Headers that mean something to an operation; there may be any others."""


class PublisherHeaders(_Headers):
    """Which publication this is, so that it can be repeated and is stored once."""

    publisher: Annotated[
        str,
        Meta(
            max_length=LONGEST_NAME,
            pattern=r"^[ -~]*$",
            description="Tells several publishers of one principal apart.",
        ),
    ] = msgspec.field(name="Tamis-Publisher", default="")
    sequence: Annotated[
        int,
        Meta(
            ge=0,
            le=LARGEST_NUMBER - 1_000_000,
            description="The publisher's number for the first event, from 1 on; what it has sent "
            "before is not stored again. 0: it does not count.",
        ),
    ] = msgspec.field(name="Tamis-Sequence", default=0)


class ResumeHeaders(_Headers):
    """Where a stream is to go on."""

    after: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=LARGEST_NUMBER - 1,
                description="The id of the last event that was received; browsers send it.",
            ),
        ]
        | None
    ) = msgspec.field(name="Last-Event-ID", default=None)


# --- event streams -------------------------------------------------------------------------------


class EventStreamQuery(_RequestBody):
    """Which events are to be streamed."""

    filter: FilterText = "true"
    language: Language = "tamis"
    mode: ModeName = None
    start: PlaceText = "latest"
    """A Last-Event-ID goes before it."""
    policy: Policy = "wait"


class HistoryParameters(_RequestBody):
    """Which events of the past are wanted."""

    filter: FilterText = "true"
    language: Language = "tamis"
    mode: ModeName = None
    start: PlaceText = "earliest"
    """The first event that is wanted."""
    end: PlaceText = "latest"
    """The first event that is not wanted."""
    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE, description="How many at most.")] = 100


class FollowQuery(_RequestBody):
    """How a subscription is to be streamed."""

    acknowledge: Literal["auto", "manual"] = "auto"
    """`auto`: what has arrived is acknowledged. `manual`: the client acknowledges by itself."""


# --- administration ------------------------------------------------------------------------------


class NewToken(_RequestBody):
    """Whom a token is for, and what it allows."""

    principal: PrincipalName
    roles: Annotated[list[RoleName], Meta(max_length=100)] = []
    lifetime: Lifetime | None = None
    note: Annotated[str, Meta(max_length=500, description="For whoever reads the list.")] = ""


class TokenList(_ResponseBody):
    """The tokens that are valid."""

    tokens: list[TokenView]


class AuditPage(_RequestBody):
    """A part of the audit log."""

    after: Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 100


class AuditEntryView(_ResponseBody):
    """An administrative act."""

    number: int
    time: float
    principal: str
    act: str
    detail: str


class AuditLog(_ResponseBody):
    """Administrative acts, in order."""

    entries: list[AuditEntryView]


class Alive(_ResponseBody):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(_ResponseBody):
    """Publications are taken."""

    status: Literal["ready"] = "ready"

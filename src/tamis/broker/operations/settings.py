"""How a broker is to run: by flag, environment (`TAMIS_…`) and TOML file, in that order.

`BrokerSettings(data=…)` takes what it is given and defaults for the rest; `load_settings` also
looks at the environment and the file.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from tamis.errors import SettingsError
from tamis.filters import Mode
from tamis.protocol.addresses import DEFAULT_PORT, DEFAULT_URL
from tamis.units import number, seconds, size


def words(value: object) -> object:
    """Return the parts of a text between commas.

    >>> words("RS256, ES256")
    ('RS256', 'ES256')
    """
    if not isinstance(value, str):
        return value
    return tuple(part for part in map(str.strip, value.split(",")) if part)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address; `localhost` is the only such name.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class PeerSetting(BaseModel):
    """A broker to link to, and how the two know each other."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    token_file: Path | None = None
    """A file with the token that the other broker asks for."""
    role: str | None = None
    """The role that the other broker has here, if there is a policy."""
    ca: Path | None = None
    """Certificates to trust, as a PEM file; by default, the system's."""

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            is_usable = bool(parts.hostname) and parts.scheme in ("http", "https", "ws", "wss")
        except ValueError:
            is_usable = False
        if not is_usable or "@" in parts.netloc:
            raise ValueError(
                f"{url!r:.80} is not the address of a broker; write one like {DEFAULT_URL}"
            )
        return url

    def require_files(self) -> None:
        """Refuse to begin without the files that are named: the link would never be made."""
        for name, path in (("token_file", self.token_file), ("ca", self.ca)):
            if path is not None and not path.is_file():
                raise SettingsError(
                    f"the peer {self.url} has {name}={path}, but there is no such file"
                )


def peer_settings(value: object) -> object:
    """Return the peers in a text: addresses between commas, each with its options after spaces.

    >>> peer_settings("http://a:1, https://b role=branch token_file=b.token")
    [{'url': 'http://a:1'}, {'url': 'https://b', 'role': 'branch', 'token_file': 'b.token'}]
    """
    given = words(value)
    if not isinstance(given, (list, tuple)):
        return given
    return [_peer_setting(one) if isinstance(one, str) else one for one in given]


def _peer_setting(text: str) -> dict[str, str]:
    url, *options = text.split()
    pairs = [option.partition("=") for option in options]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(
                f"an address is followed by options such as role=branch, not {name!r:.60}"
            )
    return {"url": url} | {name: value for name, _, value in pairs}


Seconds = Annotated[
    float, BeforeValidator(seconds), Field(gt=0, allow_inf_nan=False, le=100 * 366 * 86_400)
]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(words)]
Bytes = Annotated[int, BeforeValidator(size), Field(gt=0)]
Count = Annotated[int, BeforeValidator(number), Field(gt=0)]
Peers = Annotated[tuple[PeerSetting, ...], NoDecode, BeforeValidator(peer_settings)]
Port = Annotated[int, BeforeValidator(number), Field(ge=0, le=65_535)]


DEFAULT_FILE: Final = Path("tamis.toml")
PREFIX: Final = "TAMIS_"
I_KNOW: Final = "yes, I know"
"""The consent required to run without TLS or tokens where others can reach the broker."""

FRAME_OVERHEAD_BYTES: Final = 4096

KnownRisk = Literal["yes, I know"]


class BrokerSettings(BaseModel):
    """Every setting of a broker, checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Path = Field(
        default=Path("tamis-data"), description="The folder for the log and the state."
    )
    schema_file: Path | None = Field(
        default=None, description="Types and defaults of attributes, as a JSON file."
    )
    mode: Mode = Field(
        default=Mode.SQL,
        description="What an absent attribute means, for subscriptions that do not set a mode.",
    )

    # --- the address ---
    host: str = Field(
        default="127.0.0.1",
        description="The address to listen on; one that others can reach needs TLS and a policy.",
    )
    port: Port = Field(default=DEFAULT_PORT, description="The port; 0 selects a free one.")
    tls_certificate: Path | None = Field(
        default=None, description="The certificate chain, a PEM file."
    )
    tls_key: Path | None = Field(
        default=None, description="The certificate's private key, a PEM file."
    )
    allow_plain_text: KnownRisk | None = Field(
        default=None,
        description=f'"{I_KNOW}" allows a broker that others can reach to run without TLS: anyone '
        "on the network path can read every event and token. Use it behind a TLS proxy.",
    )
    allow_anonymous: KnownRisk | None = Field(
        default=None,
        description=f'"{I_KNOW}" allows a broker that others can reach to run without tokens: '
        "anyone who can reach it may do everything.",
    )
    origins: Words = Field(
        default=(),
        description="Web origins that browsers may call from (CORS), such as https://shop.example.",
    )

    # --- who may do what ---
    policy: Path | None = Field(
        default=None,
        description="The policy file: roles, and what each may do. With it, clients need tokens.",
    )
    jwt_keys: Path | None = Field(
        default=None,
        description="The keys that sign JSON Web Tokens: a JWK set or a PEM file.",
    )
    jwt_issuer: str | None = Field(
        default=None, description="The `iss` that JSON Web Tokens must have."
    )
    jwt_audience: str | None = Field(
        default=None, description="The `aud` that JSON Web Tokens must have."
    )
    jwt_name_claim: str = Field(default="sub", description="The claim that names the principal.")
    jwt_roles_claim: Words = Field(
        default=("roles",),
        description="The claim that lists the roles; several names are a path to a nested claim.",
    )
    jwt_roles: Words = Field(
        default=(),
        description="The roles that a JSON Web Token may grant; by default, all roles.",
    )
    jwt_leeway: Annotated[int, BeforeValidator(seconds), Field(ge=0, le=600)] = Field(
        default=30, description="Allowed clock difference from the issuer."
    )
    jwt_algorithms: Words = Field(
        default=("RS256", "ES256", "Ed25519"),
        description="The accepted signature algorithms.",
    )

    # --- what one client may send ---
    largest_event: Bytes = Field(default=256 * 1024, description="The largest event, in bytes.")
    pattern_seconds: Seconds = Field(
        default=0.5,
        description="The most that the regular expressions of one filter may take for one event, "
        "at worst; a filter that could take longer is refused.",
    )
    pattern_burst: Seconds = Field(
        default=0.05,
        description="The most that the tests of texts and the comparisons between attributes of "
        "one principal's filters may take at once, in processor time; subscriptions that would "
        "take longer are suspended.",
    )
    pattern_share: Annotated[int, Field(ge=1, le=100)] = Field(
        default=10,
        description="How much of the time the tests of texts and the comparisons between "
        "attributes of one principal's filters may take in the long run, in percent.",
    )
    largest_frame: Bytes = Field(
        default=4 * 1024**2, description="The largest frame or HTTP body, in bytes."
    )
    largest_batch: Count = Field(default=1000, description="The most events in one publication.")
    largest_header: Bytes = Field(
        default=16 * 1024, description="The largest HTTP request header, in bytes."
    )
    hello_timeout: Seconds = Field(
        default=5.0,
        description="Time for a client to identify itself, after as much for a TLS handshake.",
    )
    body_timeout: Seconds = Field(
        default=30.0, description="Time for a client to send the body of an HTTP request."
    )
    send_timeout: Seconds = Field(
        default=30.0, description="Disconnect a client that accepts no data for this long."
    )
    ping_interval: Seconds = Field(
        default=20.0, description="Time between keepalives of a connection."
    )
    connections: Count = Field(
        default=10_000,
        description="Concurrent connections of all clients; at most half of them are of clients "
        "that have not identified themselves.",
    )
    connections_per_principal: Count = Field(
        default=1000, description="Concurrent connections of one principal."
    )
    subscriptions_per_principal: Count = Field(
        default=100_000, description="Subscriptions of one principal."
    )

    group_members: Count = Field(
        default=100, description="Connected members of one group of consumers."
    )

    queries_per_principal: Count = Field(
        default=16, description="Concurrent queries of one principal."
    )
    sources_per_principal: Count = Field(
        default=100, description="Data sources with which one principal answers queries."
    )
    query_seconds: Seconds = Field(default=300.0, description="The longest time for one query.")
    query_rows: Count = Field(
        default=1_000_000, description="The most rows with which one query is answered."
    )
    publishers_per_principal: Count = Field(
        default=100_000, description="Names under which one principal may number publications."
    )
    publisher_age: Seconds = Field(
        default=30 * 86_400.0,
        description="How long the numbers of a publisher that is idle are kept; at least as long "
        "as events.",
    )

    # --- delivery ---
    retention_age: Seconds = Field(default=7 * 86_400.0, description="How long events are kept.")
    retention_bytes: Bytes = Field(
        default=10 * 1024**3, description="How many bytes of events are kept."
    )
    ack_timeout: Seconds = Field(
        default=30.0,
        description="Time to acknowledge a fetched event before it is sent again.",
    )
    backoff_first: Seconds = Field(default=1.0, description="Pause before the first redelivery.")
    backoff_most: Seconds = Field(default=60.0, description="Longest pause before a redelivery.")
    max_attempts: Count = Field(
        default=10,
        description="Deliveries of one event before it becomes a dead letter, unless the "
        "subscription has a `max_attempts` of its own other than 0.",
    )
    dead_letters: Count = Field(
        default=1000,
        description="Dead letters kept for one subscription; beyond this the oldest are dropped.",
    )
    dead_letter_bytes: Bytes = Field(
        default=64 * 1024**2,
        description="Bytes of dead letters kept for one principal; beyond this the oldest of the "
        "subscription with the most are dropped.",
    )
    window: Count = Field(
        default=1000, description="Events per subscription that may await an outcome."
    )
    buffer: Count = Field(default=1000, description="Events kept in memory for a slow consumer.")
    commit_queue: Count = Field(
        default=1000, description="Publications that may wait to be stored."
    )
    match_queue: Count = Field(default=64, description="Batches that may wait to be matched.")

    # --- links to other brokers ---
    name: Annotated[str, Field(max_length=100, pattern=r"^[!-~]([ -~]*[!-~])?$")] | None = Field(
        default=None, description="What people call this broker, in logs and in the topology."
    )
    peers: Peers = Field(
        default=(),
        description="Brokers to link to: addresses, or tables with `url`, `token_file`, `role` and "
        "`ca`.",
    )
    accept_peers: bool = Field(
        default=False,
        description="Whether a broker without a policy accepts links from other brokers; with a "
        "policy, the roles with `peer = true` decide.",
    )
    advertisements: Literal["ignore", "require"] = Field(
        default="ignore",
        description="Whether filters go to every peer, or only to those behind whom somebody "
        "advertises events that they ask for.",
    )
    advertisement_grace: Seconds = Field(
        default=10.0,
        description="How long what a client has advertised stays advertised after its connection "
        "was lost, so that the filters of others need not travel again when it is back.",
    )
    peer_ping_interval: Seconds = Field(
        default=1.0, description="Time between signs of life on a link."
    )
    peer_timeout: Seconds = Field(
        default=3.0,
        description="Close the connection of a link over which nothing has come for this long, or "
        "that takes nothing; a new one is made.",
    )
    peer_retry: Seconds = Field(
        default=1.0, description="Longest pause between two attempts to reach a peer."
    )
    peer_window: Count = Field(
        default=2000, description="Events that a peer may send before the first of them is stored."
    )

    # --- the process ---
    stop_timeout: Seconds = Field(
        default=10.0, description="Time for the broker to finish its work when it stops."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto",
        description="Log format; auto is console in a terminal, JSON elsewhere.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level of messages to log."
    )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the broker."""
        return is_loopback(self.host)

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls_certificate is not None

    @property
    def tokens_required(self) -> bool:
        """Whether clients must identify themselves; otherwise everyone may do everything."""
        return self.policy is not None

    @model_validator(mode="after")
    def _both_halves_of_tls(self) -> BrokerSettings:
        if (self.tls_certificate is None) is not (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together; set both or neither")
        return self

    @model_validator(mode="after")
    def _whole_jwt(self) -> BrokerSettings:
        if self.jwt_keys is not None and self.policy is None:
            raise ValueError(
                "jwt_keys needs policy as well: a file that defines what the roles may do"
            )
        if self.jwt_keys is not None and not (self.jwt_issuer and self.jwt_audience):
            raise ValueError(
                "jwt_keys needs jwt_issuer and jwt_audience as well: without them, the broker "
                "would accept tokens made for others"
            )
        return self

    @model_validator(mode="after")
    def _events_fit_into_frames(self) -> BrokerSettings:
        if self.largest_event + FRAME_OVERHEAD_BYTES > self.largest_frame:
            raise ValueError(
                f"an event of largest_event = {self.largest_event:,} bytes does not fit into a "
                f"frame of largest_frame = {self.largest_frame:,}, which needs "
                f"{FRAME_OVERHEAD_BYTES:,} bytes more"
            )
        return self

    @model_validator(mode="after")
    def _safe_where_others_reach_it(self) -> BrokerSettings:
        if self.is_loopback:
            return self
        if not self.has_tls and self.allow_plain_text is None:
            raise ValueError(
                f"others can reach {self.host}, so the broker needs TLS: set "
                f'tls_certificate and tls_key, or allow_plain_text = "{I_KNOW}" if anyone '
                "on the network path may read every event and token"
            )
        if not self.tokens_required and self.allow_anonymous is None:
            raise ValueError(
                f"others can reach {self.host}, so the broker needs to know who they are: set "
                f'policy, or allow_anonymous = "{I_KNOW}" if anyone who can reach it '
                "may publish, read and delete everything"
            )
        return self


def load_settings(
    file: Path | None = None,
    flags: Mapping[str, object] = MappingProxyType({}),
    named: Mapping[str, object] = MappingProxyType({}),
) -> BrokerSettings:
    """Return the settings: a flag wins over the environment, which wins over the file.

    Those `named` were given with `--set`, and win over all. Without a file, read `tamis.toml` in
    the working directory if it exists.
    """
    path = file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    content = {} if path is None else _read(path)
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    places = {name: f"--{name.replace('_', '-')}" for name in given}
    places |= {name: f"--set {name}" for name in named}
    given |= named
    outside = _with_sources(content)
    try:
        return BrokerSettings(**outside(**given).model_dump())
    except ValidationError as error:
        raise SettingsError(_sentences(error, places, path)) from None


CLIENT_VARIABLES: Final = ("TAMIS_URL", "TAMIS_TOKEN")
"""What clients read from the environment; a broker on the same machine does not mind."""


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that looks like a setting and is none.

    >>> unknown_variables({"TAMIS_PROT": "3", "TAMIS_PORT": "4", "TAMIS_TOKEN": "…"})
    ['TAMIS_PROT: there is no such setting; did you mean TAMIS_PORT?']
    """
    known = [name.upper() for name in BrokerSettings.model_fields]
    given = [name.removeprefix(PREFIX) for name in environment if name.startswith(PREFIX)]
    return [
        f"{PREFIX}{name}: there is no such setting{_nearest(name, known, PREFIX)}"
        for name in sorted(given)
        if name not in known and f"{PREFIX}{name}" not in CLIENT_VARIABLES
    ]


def _nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def _with_sources(content: dict[str, Any]) -> type[BrokerSettings]:
    class Outside(BrokerSettings, BaseSettings):
        model_config = SettingsConfigDict(env_prefix=PREFIX)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is given
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, content)

    return Outside


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{path} is not a TOML file: {error}") from None


def _sentences(error: ValidationError, places: Mapping[str, str], path: Path | None) -> str:
    return "\n".join(_one_sentence(one, places, path) for one in error.errors())


def _one_sentence(error: ErrorDetails, places: Mapping[str, str], path: Path | None) -> str:
    message = _in_words(error)
    if not error["loc"]:
        return message
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden" and len(error["loc"]) > 1:
        part = str(error["loc"][-1])
        hint = _nearest(part, PeerSetting.model_fields)
        return f"{_place(name, places, path)}: there is no {part!r:.80} in it{hint}"
    if error["type"] == "extra_forbidden":
        hint = _nearest(name, BrokerSettings.model_fields)
        return f"{places.get(name, f'{path}: {name}')}: there is no such setting{hint}"
    given = "" if error["type"] == "value_error" else f", not {error['input']!r:.80}"
    return f"{_place(name, places, path)}: {message}{given}"


# Pydantic's types of errors, in our words.
_MISFITS: Final = {
    "int": "it must be an integer",
    "float": "it must be a number",
    "bool": "it must be true or false",
    "string": "it must be a text",
    "path": "it must be the path of a file or folder",
    "list": "it must be a list",
    "tuple": "it must be a list",
    "model": "it must be an address, or a table",
    "dict": "it must be a table",
    "finite": "it must be a finite number",
    "greater_than_equal": "it must be at least {ge}",
    "greater_than": "it must be more than {gt}",
    "less_than_equal": "it must be at most {le}",
    "less_than": "it must be less than {lt}",
    "enum": "it must be {expected}",
    "literal_error": "it must be {expected}",
    "missing": "it is missing",
}


def _in_words(error: ErrorDetails) -> str:
    """Return why a value does not fit; our own validators say it themselves."""
    for known, words in _MISFITS.items():
        if error["type"] == known or error["type"].startswith(f"{known}_"):
            return words.format(**error.get("ctx", {}))
    return error["msg"].removeprefix("Value error, ")


def _place(name: str, places: Mapping[str, str], path: Path | None) -> str:
    """Return where a setting was written, the way one writes it there."""
    if name in places:
        return places[name]
    variable = f"{PREFIX}{name.upper()}"
    return variable if variable in os.environ else f"{path}: {name}"

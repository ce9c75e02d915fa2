"""A broker's log as a Spark job reads it: by sequence, as often as needed."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tamis.client.environment import environment_token
from tamis.client.http import HTTPManagement
from tamis.client.management import read_history
from tamis.client.transport import parse_address
from tamis.errors import DisconnectedError, RefusedError, SparkError
from tamis.protocol import Delivery
from tamis.protocol.codes import RETRYABLE
from tamis.protocol.views import HistoryView

LOG: Final = logging.getLogger("tamis.spark.broker")
_RETRY_SECONDS: Final = 0.5
_REQUEST_SECONDS: Final = 30.0

SCHEMES: Final = ("http://", "https://")

# Options that have the names of similar options of Spark.
_SPARK_NAMES: Final = {"limit": "maxEventsPerTrigger", "fails_on_loss": "failOnDataLoss"}
_BOOLEANS: Final = {"true": True, "false": False}


class BrokerOptions(NamedTuple):
    """The options of a stream from or to a broker."""

    url: str
    filter: str = "true"
    language: str = "tamis"
    mode: str | None = None
    start: str = "latest"
    """Where a new stream begins: `latest`, `earliest`, a sequence or a time."""
    end: str = "latest"
    """Where a batch job ends."""
    token: str | None = None
    """Defaults to the driver's environment variable TAMIS_TOKEN, if it belongs to this broker."""
    ca: str | None = None
    """A PEM file of certificates to trust, on every machine."""
    limit: int | None = None
    """The maximum number of events of the log in a batch, matching or not."""
    tasks: int = 1
    """The number of tasks that read a batch."""
    publishers: int = 4
    """The number of parallel publishers of a sink; fixed for the life of a stream."""
    fails_on_loss: bool = True
    """Whether a stream stops if the broker has removed events before they were read."""
    patience: float = 60.0
    """How long the broker may be unreachable, in seconds."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> BrokerOptions:
        """Parse options, or raise if one is wrong.

        >>> BrokerOptions.parse({"url": "http://localhost:8765", "tasks": "2"}).tasks
        2
        """
        given = dict(_parse(name, value) for name, value in options.items())
        if not str(given.get("url", "")).startswith(SCHEMES):
            raise SparkError(
                "the option url is missing: the address of the broker, http://host:port"
            )
        if "token" not in given:
            given["token"] = environment_token(parse_address(given["url"]))
        return cls(**given)


def _parse(name: str, value: str) -> tuple[str, Any]:
    names = {field: _SPARK_NAMES.get(field, field) for field in BrokerOptions._fields}
    # Spark ignores the case of names, and may have lowered it.
    fields = [field for field, known in names.items() if known.lower() == name.lower()]
    if not fields:
        raise SparkError(f"there is no option {name!r}; there are {', '.join(names.values())}")
    [field] = fields
    try:
        match field:
            case "limit" | "tasks" | "publishers":
                return field, _positive(int(value))
            case "patience":
                return field, _positive(float(value))
            case "fails_on_loss":
                return field, _BOOLEANS[value.lower()]
    except (ValueError, KeyError):
        raise SparkError(f"the option {names[field]} cannot be {value!r}") from None
    return field, value


def _positive(number: Any) -> Any:
    if not number > 0:
        raise ValueError
    return number


class BrokerLog:
    """The events in a broker's log that match a filter."""

    def __init__(self, options: BrokerOptions) -> None:
        self._options = options
        self._broker = HTTPManagement(
            parse_address(options.url),
            options.token,
            timeout=min(_REQUEST_SECONDS, options.patience),
            tls=tls_context(options),
        )

    def position(self, text: str) -> int:
        """Return the sequence for `latest`, `earliest`, a sequence or a time."""
        start = int(text) if text.isdigit() else text
        return self._read(start, start).end

    def pages(self, start: int, end: int) -> Iterator[Sequence[Delivery]]:
        """Yield the matching events from one sequence up to, not including, another, in order."""
        while start < end:
            page = self._read(start, end)
            before = f"before {page.next:,}"
            if page.damaged:
                self._report_loss(f"{page.damaged:,} events {before} are damaged on its disk")
            if page.invalid:
                self._report_loss(
                    f"{page.invalid:,} events {before} no longer conform to its schema or limits"
                )
            if page.events:
                yield page.events
            if page.next >= page.end:
                return
            start = page.next

    def _report_loss(self, what: str) -> None:
        lost = f"the broker at {self._options.url} cannot search all of its log: {what}"
        if self._options.fails_on_loss:
            raise SparkError(f"{lost}; set failOnDataLoss to false to continue without them")
        LOG.warning("%s", lost)

    def _read(self, start: int | str, end: int | str) -> HistoryView:
        """Read a page, and retry until the broker's `patience` is over."""
        options, until = self._options, time.monotonic() + self._options.patience
        page = read_history(options.filter, start, end, options.language, options.mode)
        while True:
            try:
                return asyncio.run(self._broker.call(page))
            except RefusedError as error:
                if error.code not in RETRYABLE or time.monotonic() > until:
                    raise SparkError(f"the broker at {options.url} refuses: {error}") from None
            except DisconnectedError as error:
                if time.monotonic() > until:
                    raise SparkError(str(error)) from None
            time.sleep(_RETRY_SECONDS)


def tls_context(options: BrokerOptions) -> ssl.SSLContext | None:
    """Return a context that trusts the `ca` of the options; None for the system's."""
    return None if options.ca is None else ssl.create_default_context(cafile=options.ca)

"""Every error Tamis raises, in one tree.

::

    TamisError
    ├── EventError                an event that is not valid
    │   ├── JSONError             text that is not the JSON Tamis accepts
    │   ├── XMLError              text that is not the XML Tamis accepts
    │   └── CloudEventError       JSON that is not a CloudEvent 1.0
    ├── SchemaError               a schema that is wrong in itself, or needed and missing
    ├── FilterError               a filter that is not valid
    │   ├── FilterSyntaxError     text that is not a filter; knows line and column
    │   ├── FilterStructureError  data that is not a filter; knows the node
    │   └── FilterTypeError       a filter that contradicts itself, the schema or a class
    │       └── FilterFunctionError  a function that is no filter; knows file, line and column
    ├── SnapshotError             a snapshot file that is damaged, truncated or not a snapshot
    ├── LibraryError              a library of subscriptions that is missing or damaged
    ├── StreamError               a checkpoint or folder that belongs to another stream
    ├── StorageError              files that cannot be used, or that the system did not write
    │   └── StorageFullError      the disk is full; acknowledged data is safe
    ├── SparkError                something that Spark needs is missing
    ├── WorkloadError             a workload file that cannot be used; knows the key
    ├── SettingsError             a setting of the broker that cannot be used
    ├── ProtocolError             bytes that are not a valid frame
    ├── RefusedError              a request that the broker refused; knows the code
    │   ├── AccessError           an action that a principal may not take; knows the log's reason
    │   ├── BrokerFailedError     a broker that stops because a part of it has failed
    │   └── DisconnectedError     a connection that is closed, or cannot be made
    ├── SubscriptionEndedError    a subscription that the broker ended; knows the reason
    ├── AddressError              a URL that is not the address of a broker
    ├── OptionError               an argument of the client that cannot be used; knows its name
    ├── MissingExtraError         a part of Tamis whose packages are not installed
    │   ├── MissingExtraImportError      an import that needs them
    │   └── MissingExtraAttributeError   an attribute of a package that needs them
    ├── PolicyError               a policy or key file that cannot be used; knows the place
    └── LimitError                more of something than the configured limit
        └── WorkLimitError        a query that would take too much work on a document

Each error keeps its facts as fields and states them in a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AccessError",
    "AddressError",
    "BrokerFailedError",
    "CloudEventError",
    "DisconnectedError",
    "EventError",
    "FilterError",
    "FilterFunctionError",
    "FilterStructureError",
    "FilterSyntaxError",
    "FilterTypeError",
    "JSONError",
    "LibraryError",
    "LimitError",
    "MissingExtraAttributeError",
    "MissingExtraError",
    "MissingExtraImportError",
    "OptionError",
    "PolicyError",
    "ProtocolError",
    "RefusedError",
    "SchemaError",
    "SettingsError",
    "SnapshotError",
    "SparkError",
    "StorageError",
    "StorageFullError",
    "StreamError",
    "SubscriptionEndedError",
    "TamisError",
    "WorkLimitError",
    "WorkloadError",
    "XMLError",
]


class TamisError(Exception):
    """The base of all errors; its `str()` is a sentence for people."""


class EventError(TamisError):
    """An event that is not valid: which attribute, and why."""

    def __init__(self, reason: str, *, place: str = "") -> None:
        self.reason = reason
        self.place = place
        self.index: int | None = None
        """Which event of a batch it is, counted from 0; None: it was published alone."""
        super().__init__(f"{place}: {reason}" if place else reason)


class JSONError(EventError):
    """Text that is not the JSON Tamis accepts; `place` is a path or a line and column."""


class XMLError(EventError):
    """Text that is not the XML Tamis accepts; `place` is a line and column."""


class CloudEventError(EventError):
    """JSON that is not a CloudEvent 1.0."""


class SchemaError(TamisError):
    """A schema that is wrong in itself, or one that is needed and missing."""


class FilterError(TamisError):
    """A filter that is not valid."""


class FilterTypeError(FilterError):
    """A filter that compares what cannot be compared, or contradicts the schema."""

    def __init__(self, reason: str, *, attribute: str = "") -> None:
        self.reason = reason
        self.attribute = attribute
        super().__init__(reason)


class FilterFunctionError(FilterTypeError):
    """A function that cannot be read as a filter, shown with a caret under the place."""

    def __init__(self, reason: str, *, file: str, line: int, column: int, text: str = "") -> None:
        self.file = file
        self.line = line
        self.column = column
        self.text = text
        shown = f"\n  {text}\n  {' ' * (column - 1)}^" if text else ""
        super().__init__(f"{reason} ({file}, line {line}, column {column}){shown}")


class FilterSyntaxError(FilterError):
    """Text that is not a filter, shown with a caret under the place.

    >>> print(FilterSyntaxError("a value is missing", text="price <", offset=7))
    a value is missing (line 1, column 8)
      price <
             ^
    """

    # A long line is cut to this many characters around the caret.
    WINDOW = 100

    def __init__(self, reason: str, *, text: str, offset: int, hint: str = "") -> None:
        self.reason = reason
        self.text = text
        self.offset = offset
        self.hint = hint
        before = text[:offset]
        self.line = before.count("\n") + 1
        self.column = offset - (before.rfind("\n") + 1) + 1
        super().__init__(self._message())

    def _message(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        where = f"(line {self.line}, column {self.column})"
        return f"{self.reason}{hint} {where}\n{self._line_and_caret()}"

    def _line_and_caret(self) -> str:
        line = self.text.split("\n")[self.line - 1]
        start = max(0, self.column - 1 - self.WINDOW // 2)
        shown = "".join(c if c.isprintable() else " " for c in line[start : start + self.WINDOW])
        left, right = ("…" if start else ""), ("…" if start + self.WINDOW < len(line) else "")
        return f"  {left}{shown}{right}\n  {' ' * (len(left) + self.column - 1 - start)}^"


class FilterStructureError(FilterError):
    """Data that is not the structure of a filter: which node, and why.

    >>> print(FilterStructureError("there is nothing before it", number=3, node="['not']"))
    node 3 of the filter, ['not']: there is nothing before it
    """

    def __init__(self, reason: str, *, number: int | None = None, node: str = "") -> None:
        self.reason = reason
        self.number = number
        """Which node it is, counted from 1; None: it is not about one."""
        place = "" if number is None else f"node {number} of the filter, {node}: "
        super().__init__(f"{place}{reason}")


class SnapshotError(TamisError):
    """A snapshot file that cannot be used: which part of it, and why."""

    def __init__(self, path: object, part: str, reason: str) -> None:
        self.path = path
        self.part = part
        self.reason = reason
        where = f" in {part}" if part else ""
        super().__init__(f"the snapshot {path} cannot be used{where}: {reason}")


class LimitError(TamisError):
    """More of something than the configured limit allows."""

    def __init__(self, what: str, *, actual: int | None, limit: int, advice: str = "") -> None:
        self.what = what
        self.actual = actual
        self.limit = limit
        self.index: int | None = None
        """Which event of a batch it is, counted from 0; None: it was given alone."""
        number = f"{actual:,}" if actual is not None else f"more than {limit:,}"
        advice = f"; {advice}" if advice else ""
        super().__init__(f"{what}: {number} exceeds the limit of {limit:,}{advice}")


class WorkLimitError(LimitError):
    """A query that would take too much work on a document, though both are within their limits."""


class LibraryError(TamisError):
    """A library of subscriptions that cannot be used: which file of it, and why."""

    def __init__(self, path: object, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"the library {path} cannot be used: {reason}")


class StreamError(TamisError):
    """A folder that a stream cannot write to or resume from: which, and why."""

    def __init__(self, path: object, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"the stream cannot use the folder {path}: {reason}")


class StorageError(TamisError):
    """Files of a store that cannot be used, or that the system refused to read or write."""

    is_outcome_known = True
    """False if what was to be stored may be there after a power failure nevertheless."""

    def __init__(self, path: object, reason: str, *, advice: str = "") -> None:
        self.path = path
        self.reason = reason
        self.advice = advice
        super().__init__(f"{path}: {reason}{f'; {advice}' if advice else ''}")


class StorageFullError(StorageError):
    """The disk is full. Acknowledged data is safe, and work resumes once there is room."""


class SparkError(TamisError):
    """Something that Spark needs is missing."""


class WorkloadError(TamisError):
    """A workload file that cannot be used: the key with the mistake, and how to fix it.

    >>> print(WorkloadError('"range" is missing', source="my.toml", key="values.x", hint="add it"))
    my.toml: values.x: "range" is missing; add it
    """

    def __init__(self, reason: str, *, source: str, key: str = "", hint: str = "") -> None:
        self.reason = reason
        self.source = source
        self.key = key
        self.hint = hint
        place = f"{source}: {key}" if key else source
        super().__init__(f"{place}: {reason}{'; ' + hint if hint else ''}")


class SettingsError(TamisError):
    """A setting of a broker that cannot be used: where it was written, and why."""


class ProtocolError(TamisError):
    """Bytes that are not a frame, or a frame that is not allowed here."""


class RefusedError(TamisError):
    """A request that the broker refused; `code` is one of `tamis.protocol.Code`."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retry_after: float | None = None,
        expected: int | None = None,
    ) -> None:
        self.code = code
        self.retry_after = retry_after
        """Seconds after which to try again."""
        self.expected = expected
        """The number that the publisher must use next, if its number was out of order."""
        self.index: int | None = None
        """Which event of a publication was refused, counted from 0; None: all of it."""
        super().__init__(message)

    def locate(self, place: str) -> None:
        """Begin the message with a place.

        >>> error = RefusedError("bad_event", "line 1, column 5: this is not JSON")
        >>> error.locate("line 7")
        >>> print(error)
        line 7, column 5: this is not JSON
        """
        text = str(self)
        # A line was parsed alone, as line 1.
        within = text.removeprefix("line 1, ") if place.startswith("line ") else text
        separator = ": " if within is text else ", "
        self.args = (f"{place}{separator}{within}",)


class AccessError(RefusedError):
    """An action that a principal may not take; `reason` is for the log only.

    The message is the same for causes that a caller must not distinguish: an unknown and an
    expired token, a hidden and a missing attribute.
    """

    def __init__(
        self, code: str, message: str, *, reason: str = "", retry_after: float | None = None
    ) -> None:
        self.reason = reason or message
        super().__init__(code, message, retry_after=retry_after)


class BrokerFailedError(RefusedError):
    """A broker that stops because one of its parts has failed: which part; the log says why."""

    def __init__(self, part: str) -> None:
        self.part = part
        super().__init__(
            "unavailable",
            f"the {part} has failed, so the broker stops; its log says why, and nothing that it "
            "has acknowledged is lost",
        )


class PolicyError(TamisError):
    """A policy or key file that cannot be used: which, where in it, and why."""

    def __init__(self, reason: str, *, source: str, place: str = "") -> None:
        self.reason = reason
        self.source = source
        self.place = place
        where = f"{source}, {place}" if place else source
        super().__init__(f"{where}: {reason}")


class DisconnectedError(RefusedError):
    """A connection that is closed, or cannot be made."""

    def __init__(self, message: str) -> None:
        super().__init__("unavailable", message)


class SubscriptionEndedError(TamisError):
    """A subscription that the broker ended: it expired, was deleted, revoked or taken over."""

    def __init__(self, subscription: str, reason: str) -> None:
        self.subscription = subscription
        self.reason = reason
        super().__init__(f"the subscription {subscription!r} has ended: {reason}")


class AddressError(TamisError):
    """A URL that is not the address of a broker."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url!r} is not the address of a broker: {reason}")


class OptionError(TamisError, ValueError):
    """An argument that cannot be used: which, its value, and what is allowed.

    >>> print(OptionError("window", "is 0; it must be at least 1"))
    window is 0; it must be at least 1
    """

    def __init__(self, option: str, reason: str) -> None:
        self.option = option
        self.reason = reason
        super().__init__(f"{option} {reason}")


class MissingExtraError(TamisError):
    """A part of Tamis whose packages are not installed.

    >>> print(MissingExtraError("client", ["websockets"]))
    this needs websockets, which is not installed: pip install 'tamis[client]'
    """

    def __init__(self, extra: str, packages: Sequence[str]) -> None:
        self.extra = extra
        self.packages = packages
        verb = "is" if len(packages) == 1 else "are"
        super().__init__(
            f"this needs {', '.join(packages)}, which {verb} not installed: "
            f"pip install 'tamis[{extra}]'"
        )


class MissingExtraImportError(MissingExtraError, ImportError):
    """An import that needs an extra."""


class MissingExtraAttributeError(MissingExtraError, AttributeError):
    """An attribute of a package that needs an extra: for `hasattr` it does not exist."""

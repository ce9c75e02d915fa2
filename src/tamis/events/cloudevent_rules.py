"""What the CloudEvents 1.0 specification allows in context attributes and data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from tamis.errors import CloudEventError
from tamis.events import places
from tamis.events.uris import is_uri, is_uri_reference
from tamis.events.values import brief

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1

REQUIRED: Final = ("id", "source", "type")
OPTIONAL: Final = ("subject", "time", "datacontenttype", "dataschema")
# Names that an extension must leave alone.
RESERVED: Final = frozenset({*REQUIRED, *OPTIONAL, "specversion", "data"})

_NAME: Final = re.compile(r"[a-z0-9]+")

# Control characters, and what Unicode calls noncharacters: a block of 32, and the last two code
# points of each of the 17 planes. Surrogates are refused as in every other text.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)

_TOKEN: Final = r"[A-Za-z0-9!#$%&'*+\-.^_`{|}~]+"  # noqa: S105 - the token of RFC 2045
_MEDIA_TYPE: Final = re.compile(
    rf'({_TOKEN})/({_TOKEN})(?:[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|"[^"\\]*"))*'
)


def check_version(version: object) -> None:
    """Refuse any version of the specification but 1.0."""
    if version is None:
        raise CloudEventError("it is missing, and every CloudEvent has one", place="specversion")
    if version != "1.0":
        raise CloudEventError(f"it is {brief(version)}, and Tamis knows '1.0'", place="specversion")


def check_context(context: Mapping[str, object]) -> None:
    """Refuse context attributes, without the unset ones, that are not as the specification says."""
    for name in REQUIRED:
        if name not in context:
            raise CloudEventError("it is missing, and every CloudEvent has one", place=name)
    for name, value in context.items():
        reason = _CHECKS.get(name, _check_extension)(value)
        if reason:
            raise CloudEventError(reason, place=name)


def check_extension_name(name: object) -> None:
    """Refuse a name that the specification does not allow for an extension."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        place = places.path([str(name)])
        raise CloudEventError(
            "the name of an attribute has only lower-case letters a-z and digits", place=place
        )
    if name in RESERVED:
        raise CloudEventError("an extension cannot have this name, it is reserved", place=name)


def check_data(data: object, datacontenttype: str | None) -> None:
    """Refuse structured data under a content type that is not JSON."""
    if not isinstance(data, str | bytes) and not is_json(datacontenttype):
        raise CloudEventError(
            f"data of content type {brief(datacontenttype)} is a text or bytes; "
            "only JSON content has other values",
            place="data",
        )


def is_json(datacontenttype: str | None) -> bool:
    """Tell whether a content type declares JSON; none at all does.

    >>> is_json("application/geo+json; charset=utf-8"), is_json("text/xml"), is_json(None)
    (True, False, True)
    """
    if datacontenttype is None:
        return True
    found = _MEDIA_TYPE.fullmatch(datacontenttype)
    return found is not None and f"+{found[2].lower()}".endswith("+json")


# Each check returns what is wrong with a value, or nothing.


def _check_text(value: object) -> str:
    if not isinstance(value, str):
        return f"it is a text, not of type {type(value).__name__!r}"
    found = _FORBIDDEN.search(value)
    if found:
        return (
            f"it has the character U+{ord(found[0]):04X} at {found.start() + 1}, which CloudEvents "
            "does not allow in an attribute"
        )
    return ""


def _check_filled_text(value: object) -> str:
    return "it is empty" if value == "" else _check_text(value)


def _check_source(value: object) -> str:
    return _check_filled_text(value) or _unless(is_uri_reference, value, "a URI reference")


def _check_dataschema(value: object) -> str:
    # The specification's text excludes a fragment, its JSON Schema does not, and people use one.
    return _check_filled_text(value) or _unless(is_uri, value, "a URI with a scheme")


def _check_datacontenttype(value: object) -> str:
    return _check_text(value) or _unless(_MEDIA_TYPE.fullmatch, value, "a media type")


def _check_time(value: object) -> str:
    return "" if isinstance(value, datetime) else "it is a datetime with a time zone"


def _check_extension(value: object) -> str:
    if isinstance(value, bool):
        return ""
    if isinstance(value, int):
        fits = INT32_MIN <= value <= INT32_MAX
        return (
            "" if fits else f"the integer {brief(value)} does not fit in 32 bits; send it as text"
        )
    if isinstance(value, str):
        return _check_text(value)
    return f"an extension is a boolean, an integer or a text, not of type {type(value).__name__!r}"


def _unless(accepts: Callable[[str], object], value: object, what: str) -> str:
    return "" if accepts(str(value)) else f"{str(value)[:60]!r} is not {what}"


_CHECKS: Final[dict[str, Callable[[object], str]]] = {
    "id": _check_filled_text,
    "source": _check_source,
    "type": _check_filled_text,
    "subject": _check_filled_text,
    "time": _check_time,
    "datacontenttype": _check_datacontenttype,
    "dataschema": _check_dataschema,
}

"""Values of settings as people write them: `7 days`, `256 KiB`, `a, b`."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(
    r"(\d{1,15}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|seconds?|minutes?|hours?|days?)?", re.ASCII
)
_PREFIXES: Final = ("", "K", "M", "G", "T")
_SIZE: Final = re.compile(
    r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(i?)(?:B|bytes)?", re.ASCII | re.IGNORECASE
)


def number(value: object) -> object:
    """Return what may be a number; to Python, true is one as well."""
    if isinstance(value, bool):
        raise ValueError(f"a number is needed, not {str(value).lower()}")  # noqa: TRY004 - pydantic's
    return value


def seconds(value: object) -> object:
    """Return a duration in seconds; what is none is left to be refused.

    >>> seconds("7 days"), seconds("1.5h"), seconds("30")
    (604800.0, 5400.0, 30.0)
    """
    if not isinstance(value, str):
        return number(value)
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise ValueError(
            f"{value!r} is no duration; write one like 30, 30s, 5 minutes, 24h, 7 days"
        )
    unit = found[2] or "s"
    return float(found[1]) * _UNITS[unit if unit in _UNITS else unit[0]]


def size(value: object) -> object:
    """Return a number of bytes; what is none is left to be refused.

    >>> size("256 KiB"), size("1.5MB"), size("12")
    (262144, 1500000, 12)
    """
    if not isinstance(value, str):
        return number(value)
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"{value!r} is no size; write one like 65536, 256 KiB, 4 MiB, 10 GB")
    prefix, binary = found[2] or "", found[3]
    return int(float(found[1]) * (1024 if binary else 1000) ** _PREFIXES.index(prefix.upper()))


def words(value: object) -> object:
    """Return the parts of a text between commas.

    >>> words("RS256, ES256")
    ('RS256', 'ES256')
    """
    if not isinstance(value, str):
        return value
    return tuple(part for part in map(str.strip, value.split(",")) if part)


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address; of a name only `localhost` is sure.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


Seconds = Annotated[
    float, BeforeValidator(seconds), Field(gt=0, allow_inf_nan=False, le=100 * 366 * 86_400)
]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(words)]
Bytes = Annotated[int, BeforeValidator(size), Field(gt=0)]
Count = Annotated[int, BeforeValidator(number), Field(gt=0)]
Port = Annotated[int, BeforeValidator(number), Field(ge=0, le=65_535)]

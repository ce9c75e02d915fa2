"""Checks of arguments, made before anything is sent: a sentence says what is allowed."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from tamis.errors import OptionError
from tamis.events import EventLimits
from tamis.events.schema import did_you_mean
from tamis.events.values import brief
from tamis.filters import Filter, Mode
from tamis.languages.registry import ALL_LANGUAGES
from tamis.mismatches import find_mismatch
from tamis.protocol.frames import MAX_ATTEMPTS, MAX_NAME_CHARACTERS
from tamis.protocol.management import (
    MAX_LIFETIME_SECONDS,
    MAX_NUMBER,
    SUBSCRIPTION_NAME_RULE,
    ManagementCall,
    NewSubscription,
    is_subscription_name,
    parse_position,
)
from tamis.units import DURATION_EXAMPLES, DURATION_UNITS, format_seconds, seconds

T = TypeVar("T")

_POSITIONS: Final = ("latest", "earliest")


def _refuse(name: str, value: object, allowed: str, hint: str = "") -> NoReturn:
    hint = f"; {hint}" if hint else ""
    raise OptionError(name, f"is {brief(value)}; it must be {allowed}{hint}")


def check_known(given: Iterable[str], known: Collection[str], function: str) -> None:
    """Refuse a keyword that is none of the known, as Python does."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"they are {', '.join(known)}"
            raise TypeError(f"{name!r:.60} is not an option of {function}; {hint}")


def check_choice(name: str, value: T, choices: Collection[str]) -> T:
    """Return a value that is one of several words."""
    if isinstance(value, str) and value in choices:
        return value
    *others, last = map(repr, map(str, choices))
    hint = did_you_mean(value, choices) if isinstance(value, str) else ""
    _refuse(name, value, f"{', '.join(others)} or {last}", hint)


def check_mode(mode: Mode | str | None) -> Mode | None:
    """Return the mode of that name."""
    return None if mode is None else Mode(check_choice("mode", mode, [*Mode]))


def check_language(language: str) -> str:
    """Return the name of a language of filters."""
    return check_choice("language", language, ALL_LANGUAGES)


def check_filter(filter_: str | Filter) -> str:
    """Return a filter as text."""
    if not isinstance(filter_, str | Filter):
        _refuse("filter", filter_, "a text or a Filter")
    return check_sendable("filter", str(filter_))


def check_integer(name: str, value: int, least: int, most: int) -> int:
    """Return a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        _refuse(name, value, f"a whole number from {least:,} to {most:,}")
    return int(value)


def check_sequences(sequences: Iterable[int]) -> list[int]:
    """Return several sequences; each is checked with the call that it is for."""
    if isinstance(sequences, str | bytes) or not isinstance(sequences, Iterable):
        _refuse("sequences", sequences, "a list of whole numbers")
    return list(sequences)


def check_flag(name: str, value: bool) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        _refuse(name, value, "True or False")
    return value


def check_name(name: str, value: str) -> str:
    """Return a name as brokers take it."""
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= MAX_NAME_CHARACTERS
        or not value.isprintable()
    ):
        _refuse(name, value, f"a text of 1 to {MAX_NAME_CHARACTERS} printable characters")
    return value


def check_subscription_name(name: str, value: str | None) -> str | None:
    """Return the name of a durable subscription, or None."""
    if value is not None and not is_subscription_name(value):
        _refuse(name, value, SUBSCRIPTION_NAME_RULE)
    return value


def check_attribute(name: str, value: str | None) -> str | None:
    """Return the name of an attribute, or None."""
    most = EventLimits().name
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= most):
        _refuse(name, value, f"the name of an attribute, a text of 1 to {most:,} characters")
    return None if value is None else check_sendable(name, value)


def check_subscriptions(
    given: Iterable[NewSubscription | Mapping[str, Any]],
) -> list[NewSubscription]:
    """Return subscriptions in the form that brokers take; refuse them all if one is wrong."""
    is_one = isinstance(given, NewSubscription | Mapping | str | bytes)
    if is_one or not isinstance(given, Iterable):
        allowed = "a list of NewSubscription or of mappings"
        _refuse("subscriptions", given, allowed, "put it in a list" if is_one else "")
    found = []
    for index, row in enumerate(given):
        try:
            found.append(_new_subscription(row))
        except OptionError as error:
            place = f"subscriptions[{index}]"
            place += f".{error.option}" if error.option else ""
            raise OptionError(place, error.reason) from None
    return found


def _new_subscription(row: NewSubscription | Mapping[str, Any]) -> NewSubscription:
    if not isinstance(row, NewSubscription):
        row = _from_mapping(row)
    checked = NewSubscription(
        filter=check_filter(row.filter),
        id=check_subscription_name("id", row.id),
        language=check_language(row.language),
        mode=check_mode(row.mode),
        lifetime=check_duration("lifetime", row.lifetime),
        start=check_position("start", row.start),
        max_attempts=check_integer("max_attempts", row.max_attempts, 0, MAX_ATTEMPTS),
        group=check_flag("group", row.group),
        ordering_key=check_attribute("ordering_key", row.ordering_key or None) or "",
    )
    # Also the length of the filter, and that it is Unicode.
    check_arguments(checked)
    return checked


def _from_mapping(row: object) -> NewSubscription:
    if not isinstance(row, Mapping):
        _refuse("", row, "a NewSubscription or a mapping")
    if "filter" not in row:
        raise OptionError("", 'lacks the field "filter"')
    try:
        return NewSubscription(**row)
    except TypeError as error:
        raise OptionError("", f"is not valid: {error}") from None


def check_sendable(name: str, value: str) -> str:
    """Return a text that can be sent."""
    if not isinstance(value, str):
        _refuse(name, value, "a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        character = f"U+{ord(value[error.start]):04X}, character {error.start + 1}"
        reason = f"has a lone surrogate ({character}), so it is not valid Unicode"
        raise OptionError(name, reason) from None
    return value


def check_function(name: str, value: T) -> T:
    """Return a function, or None."""
    if value is not None and not callable(value):
        _refuse(name, value, "a function, or None")
    return value


def check_tls(tls: ssl.SSLContext | None) -> None:
    """Refuse what is neither a TLS context nor None."""
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        _refuse("tls", tls, "an ssl.SSLContext, or None")


def check_duration(name: str, value: object, *, may_be_zero: bool = False) -> float | None:
    """Return a duration in seconds; None: no limit."""
    if value is None:
        return None
    try:
        found = seconds(value)
    except ValueError:
        allowed = f"a duration, such as {DURATION_EXAMPLES} ({DURATION_UNITS}), or a timedelta"
        _refuse(name, value, allowed)
    if found < 0 or (found == 0 and not may_be_zero):
        _refuse(name, value, "0 s or more" if may_be_zero else "more than 0 s")
    if found > MAX_LIFETIME_SECONDS:
        _refuse(name, value, f"at most {format_seconds(MAX_LIFETIME_SECONDS)}")
    return found


def check_position(name: str, value: int | str | datetime | timedelta) -> int | str:
    """Return a position in the log in the form that brokers take; `1h` is an hour ago."""
    if isinstance(value, datetime):
        return _in_zone(name, value).isoformat()
    ago = _ago(value)
    if ago is not None:
        return (datetime.now(UTC) - ago).isoformat()
    place = parse_position(value) if isinstance(value, str) else value
    if isinstance(place, int) and not isinstance(place, bool) and 0 <= place <= MAX_NUMBER:
        return place
    if isinstance(place, str) and (place in _POSITIONS or _is_time(name, place)):
        return place
    hint = did_you_mean(place, _POSITIONS) if isinstance(place, str) else ""
    allowed = (
        "'latest', 'earliest', a sequence, a time such as 2026-01-31T12:00:00Z, or how long ago, "
        "such as 1h"
    )
    _refuse(name, value, allowed, hint)


def _ago(value: object) -> timedelta | None:
    """Return how long ago a position is; a number without a unit is a sequence, not seconds."""
    is_text = isinstance(value, str) and value.strip()[-1:].isalpha()
    if not is_text and not isinstance(value, timedelta):
        return None
    try:
        found = seconds(value)
    except ValueError:
        return None
    # Nothing is kept for longer, and a date has a limit.
    return timedelta(seconds=min(max(found, 0), MAX_LIFETIME_SECONDS))


def _is_time(name: str, text: str) -> bool:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return False
    if moment.tzinfo is None:
        _refuse(name, text, "a time with a zone", "add Z for UTC, or an offset such as +01:00")
    return True


def _in_zone(name: str, moment: datetime) -> datetime:
    """Return a time of a known zone: one without would mean another time on another machine."""
    if moment.tzinfo is None:
        _refuse(
            name, moment, "a datetime with a time zone", "use datetime.now(UTC), or .astimezone()"
        )
    return moment


def check_arguments(call: ManagementCall[Any] | NewSubscription) -> None:
    """Refuse a management call whose arguments have the wrong types or are out of bounds."""
    kind = type(call)
    try:
        msgspec.json.decode(msgspec.json.encode(call), type=kind)
    except msgspec.MsgspecError as error:
        place, reason = find_mismatch(error, kind)
        raise OptionError(_argument_at(place, kind), reason) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise OptionError(_unencodable_argument(call), f"is not valid: {error}") from None


def _argument_at(place: str, kind: type[msgspec.Struct]) -> str:
    """Return the argument at a place of the JSON, by its name in Python: `id`."""
    for field in msgspec.structs.fields(kind):
        rest = place.removeprefix(field.encode_name)
        if rest != place and not rest[:1].isalnum():
            return field.name.rstrip("_") + rest
    return place or "an argument"


def _unencodable_argument(call: msgspec.Struct) -> str:
    """Return the first argument that cannot be encoded."""
    for name in call.__struct_fields__:
        try:
            msgspec.json.encode(getattr(call, name))
        except (TypeError, ValueError, OverflowError):
            return name.rstrip("_")
    return "an argument"

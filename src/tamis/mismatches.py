"""Data that does not fit a type, in sentences: what msgspec says is for programmers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec import inspect

from tamis.events.schema import did_you_mean

_WHERE: Final = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_EXPECTED: Final = re.compile(r"Expected `([^`]+)`(.*?)(?:, got `([^`]+)`)?", re.DOTALL)
_LENGTH: Final = re.compile(r" of length (?:(<=|>=|==) )?(\d+)(?:, got (\d+))?")
_BOUND: Final = re.compile(r" (<=|>=|<|>) (\S+)")
_STEP: Final = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_PATTERN: Final = re.compile(r" matching regex '(.*)'", re.DOTALL)
_LONE: Final = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)*+"
    rb"\\u([dD][89a-fA-F][0-9a-fA-F]{2})",
    re.DOTALL,
)
"""All of a JSON text up to the first escape that is half of a surrogate pair."""
_MALFORMED: Final = re.compile(r"JSON is malformed: (.*) \(byte (\d+)\)")

# Others wait meanwhile, some 10 ms.
MAX_SEARCHED_BYTES: Final = 1024 * 1024
_ESCAPE_BYTES: Final = 6

_WORDS: Final = {
    "array": "an array",
    "bool": "true or false",
    "datetime": "a time",
    "field": "field",
    "float": "a number",
    "int": "an integer",
    "object": "an object",
    "str": "a text",
}
_UNITS: Final = {"str": "characters", "array": "items", "object": "fields"}
_BOUNDS: Final = {
    "<=": "of at most",
    ">=": "of at least",
    "==": "of exactly",
    "<": "less than",
    ">": "greater than",
}
NO_WORDS: Final[Mapping[str, str]] = MappingProxyType({})


class Mismatch(NamedTuple):
    """Where data does not fit, and why."""

    place: str
    """Empty: the whole."""
    reason: str
    """The rest of a sentence that begins with the place."""

    def sentence(self, whole: str) -> str:
        """Return a sentence about a part of the whole, or the whole.

        >>> Mismatch("limit", "must be an integer").sentence("the query")
        'limit in the query must be an integer'
        """
        return f"{self.place} in {whole} {self.reason}" if self.place else f"{whole} {self.reason}"


def find_mismatch(
    error: Exception,
    type_: Any = None,
    words: Mapping[str, str] = NO_WORDS,
    *,
    text: str | bytes = b"",
) -> Mismatch:
    """Return what an error of a decoder of a text means; `words` are other names for types.

    >>> import msgspec
    >>> class Page(msgspec.Struct, forbid_unknown_fields=True):
    ...     limit: int = 1
    >>> try:
    ...     msgspec.json.decode(b'{"limti": 5}', type=Page)
    ... except msgspec.ValidationError as error:
    ...     find_mismatch(error, Page)
    Mismatch(place='', reason='has no field "limti"; did you mean "limit"?')
    """
    if isinstance(error, RecursionError):
        return Mismatch("", "is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return Mismatch("", "is not UTF-8 text")
    message = str(error)
    if ("truncated" in message or "surrogate" in message) and (lone := _lone_surrogate(text)):
        return Mismatch("", f"has a lone surrogate {lone}, so it is not valid Unicode")
    found = _WHERE.search(message)
    place = found[1] if found else ""
    reason = message[: found.start()] if found else message
    return Mismatch(place, _reason(reason, place, type_, {**_WORDS, **words}))


def _lone_surrogate(text: str | bytes) -> str:
    """Return the first one, with its place; the decoder takes one at the end for the end."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    lone = _LONE.match(data, 0, MAX_SEARCHED_BYTES)
    # The other half may be behind the end of the search.
    if lone is None or lone.end() + _ESCAPE_BYTES > MAX_SEARCHED_BYTES:
        return ""
    return f"(U+{lone[1].decode().upper()}) at byte {lone.start(1) - 2}"


def _reason(reason: str, place: str, type_: Any, words: Mapping[str, str]) -> str:
    if name := _quoted(reason, "Object contains unknown field `"):
        known = [field.encode_name for field in _fields(_type_at(type_, place))]
        all_ = f"the {words['field']}s are {', '.join(known)}" if known else ""
        hint = did_you_mean(name, known) or all_
        return f'has no {words["field"]} "{name:.60}"{"; " + hint if hint else ""}'
    if name := _quoted(reason, "Object missing required field `"):
        return f'lacks the {words["field"]} "{name}"'
    if reason.startswith(("Invalid value ", "Invalid enum value ")):
        return _no_choice(reason.partition("value ")[2], place, type_)
    if (expected := _EXPECTED.fullmatch(reason)) is not None:
        types, condition, got = expected.groups()
        return f"must be {_expected(types, condition, got, words)}"
    if (malformed := _MALFORMED.fullmatch(reason)) is not None:
        return f"is not JSON: {malformed[1]} at byte {malformed[2]}"
    if "out of range" in reason:
        return "is a number that is too large"
    if reason == "Invalid decimal string":
        return "must be a number"
    return "ends before the JSON is complete" if "truncated" in reason else f"is wrong: {reason}"


def _quoted(reason: str, before: str) -> str:
    return reason.removeprefix(before)[:-1] if reason.startswith(before) else ""


def _expected(types: str, condition: str, got: str | None, words: Mapping[str, str]) -> str:
    text = " or ".join(words.get(one, one) for one in types.split(" | "))
    if (length := _LENGTH.fullmatch(condition)) is not None:
        unit = _UNITS.get(types, "items")
        sign, number, actual = length[1] or "==", length[2], length[3]
        text += f" {_BOUNDS[sign]} {number} {unit[:-1] if number == '1' else unit}"
        text += f", not {actual}" if actual else ""
    elif (bound := _BOUND.fullmatch(condition)) is not None:
        text += f" {_BOUNDS[bound[1]]} {bound[2].removesuffix('.0')}"
    elif (pattern := _PATTERN.fullmatch(condition)) is not None:
        text += f" that matches {pattern[1]}"
    elif "timezone" in condition:
        text += " with a time zone"
    return text if got is None else f"{text}, not {words.get(got, got)}"


def _no_choice(given: str, place: str, type_: Any) -> str:
    choices = ", ".join(_choices(type_, place))
    return f"is {given:.60}; it must be one of {choices}" if choices else f"cannot be {given:.60}"


def _choices(type_: Any, place: str) -> list[str]:
    """Return the values that a field may have, or the tags of several structs."""
    structs = list(_structs(type_))
    tags = [str(one.tag) for one in structs if one.tag_field == place]
    if tags:
        return sorted(tags)
    for field in _fields(type_):
        kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        for kind in kinds:
            if field.encode_name == place and isinstance(kind, inspect.LiteralType):
                return sorted(map(str, kind.values))
    return []


def _type_at(type_: Any, place: str) -> inspect.Type | None:
    """Return the type of the data at a place such as `items[3]`; None: unknown."""
    info: inspect.Type | None = inspect.type_info(type_)
    for step in _STEP.findall(place):
        if step.startswith("["):
            info = info.item_type if isinstance(info, inspect.ListType) else None
        else:
            fields = info.fields if isinstance(info, inspect.StructType) else ()
            info = next((one.type for one in fields if one.encode_name == step), None)
    return info


def _structs(type_: Any) -> Iterator[inspect.StructType]:
    info = type_ if isinstance(type_, inspect.Type) else inspect.type_info(type_)
    for one in info.types if isinstance(info, inspect.UnionType) else (info,):
        if isinstance(one, inspect.StructType):
            yield one


def _fields(type_: Any) -> tuple[inspect.Field, ...]:
    """Return the fields of a struct; of several structs, none."""
    structs = list(_structs(type_))
    return structs[0].fields if len(structs) == 1 else ()

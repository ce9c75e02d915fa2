"""Numbers as Java writes them: `57`, `0x1F`, `017`, `1_000L`, `7.`, `-57.9E2`, `1.5f`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from tamis.languages.literals import LARGEST
from tamis.languages.tokens import Tokens

# A token: everything that could belong to a number. What is none is refused as a whole.
NUMBER: Final = r"0[xX](?:[pP][+-]|[\w.])*+|\.?[0-9](?:[eE][+-]|[\w.])*+"

_DIGITS: Final = r"[0-9](?:[0-9_]*[0-9])?"
_HEX: Final = r"[0-9a-fA-F](?:[0-9a-fA-F_]*[0-9a-fA-F])?"
_EXPONENT: Final = rf"[eE][+-]?{_DIGITS}"

_INTEGER: Final = re.compile(
    rf"(?:0[xX](?P<hexadecimal>{_HEX})|0[bB](?P<binary>[01](?:[01_]*[01])?)"
    r"|0(?P<octal>[0-7_]*[0-7])|(?P<decimal>0|[1-9](?:[0-9_]*[0-9])?))[lL]?"
)
_FLOAT: Final = re.compile(
    rf"({_DIGITS}\.(?:{_DIGITS})?(?:{_EXPONENT})?|\.{_DIGITS}(?:{_EXPONENT})?|{_DIGITS}{_EXPONENT}"
    rf"|{_DIGITS}(?=[fFdD]))[fFdD]?"
)
_HEX_FLOAT: Final = re.compile(
    rf"(0[xX](?:{_HEX}\.?|(?:{_HEX})?\.{_HEX})[pP][+-]?{_DIGITS})[fFdD]?"
)

_BASES: Final = {"hexadecimal": 16, "binary": 2, "octal": 8, "decimal": 10}

# More digits than any 64-bit integer has, with room for zeros and underscores: converting
# thousands of them takes quadratic time.
_LONGEST: Final = 200


def read_number(word: str, tokens: Tokens) -> int | float:
    """Return the number that the token before the current one writes."""
    if integer := _INTEGER.fullmatch(word):
        return _integer(integer, tokens)
    if found := _FLOAT.fullmatch(word):
        return _finite(float, found[1], tokens)
    if found := _HEX_FLOAT.fullmatch(word):
        return _finite(float.fromhex, found[1], tokens)
    octal = word[:1] == "0" and word.isdecimal()
    raise tokens.error(
        f"{word[:30]} is not a number as Java writes it",
        at=tokens.at - 1,
        hint="a leading 0 makes it octal, with the digits 0 to 7" if octal else "",
    )


def _integer(found: re.Match[str], tokens: Tokens) -> int:
    base = found.lastgroup or ""
    digits = found[base].replace("_", "")
    value = int(digits, _BASES[base]) if len(digits) <= _LONGEST else LARGEST + 1
    # One more than the largest may be read, because a minus may stand before it.
    if value > LARGEST:
        raise tokens.error(
            f"the integer {found[0][:30]} does not fit in 64 bits",
            at=tokens.at - 1,
            hint="write it with a decimal point for a float",
        )
    return value


def _finite(read: Callable[[str], float], digits: str, tokens: Tokens) -> float:
    try:
        value = read(digits.replace("_", ""))
    except OverflowError:
        value = math.inf
    if math.isinf(value):
        raise tokens.error(f"{digits[:30]} is beyond the largest float", at=tokens.at - 1)
    return value

"""The grammar of RFC 3986, as far as it decides which texts are URIs."""

from __future__ import annotations

import re
from typing import Final

# Every repetition is possessive (`++`, `*+`): it never gives back what it took, and need not,
# because what follows starts with a character it cannot take. So matching is linear.
_PLAIN: Final = r"A-Za-z0-9\-._~!$&'()*+,;="
_ESCAPE: Final = r"%[0-9A-Fa-f]{2}"
_PATH: Final = rf"(?:[{_PLAIN}:@/]++|{_ESCAPE})*+"
_HOST: Final = rf"(?:\[[0-9A-Za-z:.]++\]|(?:[{_PLAIN}]++|{_ESCAPE})*+)"
_AUTHORITY: Final = rf"(?:(?:[{_PLAIN}:]++|{_ESCAPE})*+@)?{_HOST}(?::[0-9]*)?"
_WITH_AUTHORITY: Final = rf"//{_AUTHORITY}(?:/{_PATH})?"
_QUERY: Final = rf"(?:\?(?:[{_PLAIN}:@/?]++|{_ESCAPE})*+)?"
_FRAGMENT: Final = rf"(?:#(?:[{_PLAIN}:@/?]++|{_ESCAPE})*+)?"

_URI: Final = re.compile(
    rf"[A-Za-z][A-Za-z0-9+.\-]*+:(?:{_WITH_AUTHORITY}|(?!//){_PATH}){_QUERY}{_FRAGMENT}"
)
# A colon in the first segment would make it a scheme.
_RELATIVE: Final = re.compile(
    rf"(?:{_WITH_AUTHORITY}|/(?!/){_PATH}|(?:(?:[{_PLAIN}@]++|{_ESCAPE})++(?:/{_PATH})?)?)"
    rf"{_QUERY}{_FRAGMENT}"
)


def is_uri(text: str) -> bool:
    """Tell whether `text` is a URI: with a scheme, and perhaps a fragment.

    >>> is_uri("urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66"), is_uri("/sensors/17")
    (True, False)
    """
    return _URI.fullmatch(text) is not None


def is_uri_reference(text: str) -> bool:
    """Tell whether `text` is a URI, or one relative to another.

    >>> is_uri_reference("/sensors/17"), is_uri_reference("/sensors/no 17")
    (True, False)
    """
    return is_uri(text) or _RELATIVE.fullmatch(text) is not None

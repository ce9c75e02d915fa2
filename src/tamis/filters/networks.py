"""Networks of IP addresses, version 4 and 6, and the addresses in texts.

All addresses lie in one order: those of version 4, then those of version 6. A network is a range
of it. An address of version 6 that stands for one of version 4 stays one of version 6.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    NetmaskValueError,
    ip_network,
)
from typing import Final, NamedTuple

from tamis.errors import FilterTypeError

# Position 0 is for all texts that are no address.
FIRST_V4: Final = 1
FIRST_V6: Final = FIRST_V4 + 2**32
AFTER_LAST: Final = FIRST_V6 + 2**128

# The longest text of an address: "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".
MAX_ADDRESS_CHARACTERS: Final = 45


class Network(NamedTuple):
    """A network: the positions from the first to before the last, and how it is written."""

    first: int
    end: int
    text: str


@lru_cache(maxsize=4096)
def network_of(text: str) -> Network:
    """Return the network that a text describes, or raise FilterTypeError.

    >>> network_of("10.0.0.0/8").text, network_of("2001:DB8::1").text
    ('10.0.0.0/8', '2001:db8::1/128')
    """
    try:
        found = ip_network(text, strict=False)
    except (AddressValueError, NetmaskValueError, ValueError):
        raise FilterTypeError(
            f"{text[:60]!r} is not a network such as 10.0.0.0/8 or 2001:db8::/32"
        ) from None
    bits = text.partition("/")[2]
    if bits and not bits.isdecimal():
        raise FilterTypeError(f"{text[:60]!r} should give the number of bits, as in 10.0.0.0/8")
    if bits and _address(text.partition("/")[0]) != found.network_address:
        raise FilterTypeError(f"{text[:60]} has more bits than {bits}: write {found}")
    return _network(found)


def _network(found: IPv4Network | IPv6Network) -> Network:
    first = (FIRST_V4 if found.version == 4 else FIRST_V6) + int(found.network_address)
    return Network(first, first + found.num_addresses, str(found))


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return IPv6Address(text) if ":" in text else IPv4Address(text)
    except AddressValueError:
        return None


def position_of(text: str) -> int:
    """Return where an address lies among all addresses; 0 for a text that is none.

    >>> position_of("0.0.0.0"), position_of("10.0.0.300")
    (1, 0)
    """
    if len(text) > MAX_ADDRESS_CHARACTERS or "%" in text:
        return 0
    found = _address(text)
    if found is None:
        return 0
    return (FIRST_V4 if found.version == 4 else FIRST_V6) + int(found)


def text_at(position: int) -> str:
    """Return the address at a position; the empty text for none.

    >>> text_at(position_of("10.0.0.1"))
    '10.0.0.1'
    """
    if not FIRST_V4 <= position < AFTER_LAST:
        return ""
    if position < FIRST_V6:
        return str(IPv4Address(position - FIRST_V4))
    return str(IPv6Address(position - FIRST_V6))

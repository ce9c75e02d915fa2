"""What the environment says: which broker, and the token for it."""

from __future__ import annotations

import logging
import os
from typing import Final

from tamis.client.option_checks import check_sendable
from tamis.client.transport import BrokerAddress, parse_address
from tamis.errors import AddressError
from tamis.protocol.addresses import DEFAULT_URL

logger: Final = logging.getLogger("tamis.client")


def broker_address(url: str | None) -> BrokerAddress:
    """Return the address of the broker that a URL or the environment names."""
    if url is not None:
        check_sendable("url", url)
    return parse_address(url or os.environ.get("TAMIS_URL") or DEFAULT_URL)


def environment_token(address: BrokerAddress) -> str | None:
    """Return the token in TAMIS_TOKEN, if it belongs to this broker.

    It belongs to the broker that TAMIS_URL names, or, without that variable, to any on this
    machine. Any other, named perhaps by mistake or by somebody else, would learn a secret.
    """
    token = os.environ.get("TAMIS_TOKEN") or None
    if token is None or has_environment_token(address):
        return token
    logger.warning(
        "TAMIS_TOKEN is not sent to %s: it is for the broker in TAMIS_URL, or, without that, for "
        "one on this machine; set TAMIS_URL, or give the token with the URL",
        address.web,
    )
    return None


def has_environment_token(address: BrokerAddress) -> bool:
    """Return whether TAMIS_TOKEN has a token for this broker."""
    return bool(os.environ.get("TAMIS_TOKEN")) and _is_home(address)


def _is_home(address: BrokerAddress) -> bool:
    url = os.environ.get("TAMIS_URL")
    if not url:
        return address.is_loopback
    try:
        return parse_address(url).origin == address.origin
    except AddressError:
        return False

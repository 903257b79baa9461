"""What is known of the things around a Gateway's proxies: the addresses it was given, and what prevents them."""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

READY_PORT: Final = 15021
"""Where kubelets ask a proxy's Pod whether it is ready. No listener can have it there: if the port gave way, the author of a
ListenerSet could have all Pods replaced."""


class Infrastructure(msgspec.Struct, frozen=True):
    addresses: tuple[tuple[str, str], ...] = ()
    """(`IPAddress` or `Hostname`, value): where clients reach it."""
    missing: tuple[str, ...] = ()
    """Addresses that the Gateway asks for and has not got."""
    problem: str = ""
    """What could not be made, and why."""


def canonical(address: str) -> str:
    """Returns an IP address as everybody writes it, so that two can be compared; anything else as it is."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address

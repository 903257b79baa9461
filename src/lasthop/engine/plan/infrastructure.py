"""What is known of the things around a Gateway's proxies: the addresses it was given, and what prevents them."""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

READY_PORT: Final = 15021
"""Where kubelets ask a proxy's Pod whether it is ready. No listener can have it there: if the port gave way, the author of a
ListenerSet could have all Pods replaced."""


CLUSTER: Final = "Cluster"
"""The `routability` of an address that is for clients inside of the cluster."""


class RequestedAddresses(msgspec.Struct, frozen=True):
    """What a Gateway asks for in `spec.addresses`, by where it is to be reached from; an empty one is any."""

    outside: tuple[str, ...] = ()
    """Without `routability`: as the way of running has it."""
    inside: tuple[str, ...] = ()
    """For the cluster alone; for a gateway on a host, for that host."""
    unassigned: tuple[str, ...] = ()
    """Why others cannot be had."""

    @property
    def scoped(self) -> bool:
        """Whether some `routability` is asked for."""
        return bool(self.inside or self.unassigned)


class Infrastructure(msgspec.Struct, frozen=True):
    addresses: tuple[tuple[str, str], ...] = ()
    """(`IPAddress` or `Hostname`, value): where clients reach it."""
    missing: tuple[str, ...] = ()
    """Addresses that the Gateway asks for and has not got."""
    problem: str = ""
    """What could not be made, and why."""
    inside: tuple[str, ...] = ()
    """Those of the addresses that were asked for with routability Cluster."""


def canonical(address: str) -> str:
    """Returns an IP address as everybody writes it, so that two can be compared; anything else as it is."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address

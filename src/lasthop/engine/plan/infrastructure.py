"""The infrastructure around a Gateway's proxies: requested and assigned addresses, and errors that prevent them."""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

READY_PORT: Final = 15021
"""Port of the readiness probe of a proxy's Pod. No listener may use it in a cluster: otherwise the author of a ListenerSet
could make the kubelet replace all Pods."""


CLUSTER: Final = "Cluster"
"""The `routability` of addresses for clients inside the cluster."""


class RequestedAddresses(msgspec.Struct, frozen=True):
    """The addresses in a Gateway's `spec.addresses`, grouped by routability. An empty string requests any address."""

    outside: tuple[str, ...] = ()
    """Addresses without `routability`."""
    inside: tuple[str, ...] = ()
    """Addresses with routability Cluster: for clients inside the cluster, or on the host of `lasthop run`."""
    unassigned: tuple[str, ...] = ()
    """Why other addresses cannot be assigned."""

    @property
    def scoped(self) -> bool:
        """Whether an address has a `routability`."""
        return bool(self.inside or self.unassigned)


class Infrastructure(msgspec.Struct, frozen=True):
    addresses: tuple[tuple[str, str], ...] = ()
    """(`IPAddress` or `Hostname`, value) of each address where clients reach the Gateway."""
    missing: tuple[str, ...] = ()
    """Requested addresses that were not assigned."""
    problem: str = ""
    """Error of the Deployment or Service; empty if there is none."""
    inside: tuple[str, ...] = ()
    """The assigned addresses with routability Cluster."""


def canonical(address: str) -> str:
    """Returns an IP address in its canonical form, so that two can be compared. Other texts stay unchanged."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address

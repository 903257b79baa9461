"""What is wanted for a Gateway: all that its manifests are made of."""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

from lasthop.api import gateway as api
from lasthop.api.meta import Key, StringMap
from lasthop.api.profiles import ProxySettings
from lasthop.plan.infrastructure import READY_PORT
from lasthop.plan.listener import Gateway

TRANSPORT: Final = {"HTTP": "TCP", "HTTPS": "TCP", "TLS": "TCP", "TCP": "TCP", "UDP": "UDP"}


class Site(msgspec.Struct, frozen=True):
    """What is the same for all Gateways of a controller."""

    image: str
    xds_host: str
    """Where the proxies find the controller: a Service's DNS name, or an IP address."""
    xds_port: int
    xds_server_name: str = ""
    """What its certificate is for, if that is not `xds_host`."""

    @property
    def xds_address(self) -> str:
        return f"[{self.xds_host}]:{self.xds_port}" if ":" in self.xds_host else f"{self.xds_host}:{self.xds_port}"


class Wanted(msgspec.Struct, frozen=True):
    key: Key
    uid: str
    ports: tuple[tuple[int, str], ...] = ()
    """(port, TCP or UDP). Empty: no Service."""
    addresses: tuple[str, ...] = ()
    """IP addresses that it is to have; empty: whatever it is given."""
    labels: StringMap = StringMap()
    annotations: StringMap = StringMap()
    settings: ProxySettings = ProxySettings()
    hold: bool = False
    """It is not accepted as it is written now. What there is stays as it is: a wrong edit is no reason to lose an address,
    and one that was never right needs none."""


def wanted(obj: api.Gateway, plan: Gateway, settings: ProxySettings) -> Wanted:
    infrastructure = obj.spec.infrastructure or api.GatewayInfrastructure()
    # Also the ports of listeners that are not served just now, for want of a certificate perhaps: a load balancer that
    # is taken away and comes back may come back with another address.
    ports = {(listener.port, TRANSPORT[listener.protocol]) for listener in plan.listeners if listener.protocol in TRANSPORT}
    ports.discard((READY_PORT, "TCP"))
    return Wanted(
        plan.key,
        obj.metadata.uid,
        tuple(sorted(ports)),
        tuple(dict.fromkeys(_canonical(a.value) for a in obj.spec.addresses if a.value and a.type == "IPAddress")),
        infrastructure.labels,
        infrastructure.annotations,
        settings,
        hold=not plan.accepted.status,
    )


def _canonical(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address

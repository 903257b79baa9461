"""Describes the desired state of a Gateway's infrastructure, from which its manifests are built."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api import gateway as api
from lasthop.base.api.addresses import with_port
from lasthop.base.api.meta import Key, StringMap
from lasthop.base.api.profiles import ProxySettings
from lasthop.engine.plan.infrastructure import READY_PORT
from lasthop.engine.plan.listener import GatewayPlan

TRANSPORT: Final = {"HTTP": "TCP", "HTTPS": "TCP", "TLS": "TCP", "TCP": "TCP", "UDP": "UDP"}


class Site(msgspec.Struct, frozen=True):
    """Settings that all Gateways of a controller share."""

    image: str
    xds_host: str
    """The controller's address for proxies: a Service's DNS name, or an IP address."""
    xds_port: int
    xds_server_name: str = ""
    """The name in its certificate, if different from `xds_host`."""

    @property
    def xds_address(self) -> str:
        return with_port(self.xds_host, self.xds_port)


class DesiredGateway(msgspec.Struct, frozen=True):
    key: Key
    uid: str
    ports: tuple[tuple[int, str], ...] = ()
    """(port, TCP or UDP). Empty: no Service."""
    addresses: tuple[str, ...] = ()
    """Requested IP addresses; empty: any."""
    labels: StringMap = StringMap()
    annotations: StringMap = StringMap()
    settings: ProxySettings = ProxySettings()
    inside: tuple[str, ...] = ()
    """Requested addresses with routability Cluster; an empty one means any."""
    outside: bool = True
    """Whether it requests an address without a routability, or no address at all."""
    hold: bool = False
    """The Gateway is not accepted. Existing objects stay, so that a wrong edit does not lose an address; a Gateway that was
    never accepted gets none."""


def desired_gateway(obj: api.Gateway, plan: GatewayPlan, settings: ProxySettings) -> DesiredGateway:
    infrastructure = obj.spec.infrastructure or api.GatewayInfrastructure()
    # Includes ports of listeners that are not served at present, perhaps for lack of a certificate: a load balancer that is
    # deleted and created again may get another address.
    ports = {(listener.port, TRANSPORT[listener.protocol]) for listener in plan.listeners if listener.protocol in TRANSPORT}
    ports.discard((READY_PORT, "TCP"))
    return DesiredGateway(
        plan.key,
        obj.metadata.uid,
        tuple(sorted(ports)),
        tuple(filter(None, plan.requested.outside)),
        infrastructure.labels,
        infrastructure.annotations,
        settings,
        inside=plan.requested.inside,
        outside=bool(plan.requested.outside) or not plan.requested.inside,
        hold=not plan.accepted.status,
    )

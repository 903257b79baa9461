"""Builds the Services of a Gateway, and reads back the addresses that they were assigned.

Without `spec.addresses` there is one Service. With it, there is one for each address: a Service can request only one, and the
result can be read back for each.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lasthop.api.documents import Json
from lasthop.infra.kubernetes.desired import DesiredGateway
from lasthop.infra.kubernetes.names import digest, object_name, selector
from lasthop.plan.infrastructure import Infrastructure, canonical

LOAD_BALANCER: Final = "LoadBalancer"
CLUSTER_IP: Final = "ClusterIP"


def service_specs(gateway: DesiredGateway) -> dict[str, Json]:
    if not gateway.ports:
        return {}
    if not gateway.addresses or gateway.settings.service.type not in (LOAD_BALANCER, CLUSTER_IP):
        return {object_name(gateway.key.name): {**_common(gateway), "ipFamilyPolicy": "PreferDualStack"}}
    return {
        object_name(gateway.key.name, f"-{digest(address)}"): {**_common(gateway), **_asking_for(gateway, address)}
        for address in gateway.addresses
    }


def _common(gateway: DesiredGateway) -> Json:
    settings = gateway.settings.service
    spec: Json = {
        "type": settings.type,
        "selector": selector(gateway.key.name),
        "ports": [
            {"name": f"{protocol.lower()}-{port}", "protocol": protocol, "port": port, "targetPort": port}
            for port, protocol in gateway.ports
        ],
    }
    if settings.external_traffic_policy and settings.type != CLUSTER_IP:
        spec["externalTrafficPolicy"] = settings.external_traffic_policy
    if settings.load_balancer_class and settings.type == LOAD_BALANCER:
        spec["loadBalancerClass"] = settings.load_balancer_class
    return spec


def _asking_for(gateway: DesiredGateway, address: str) -> Json:
    family = "IPv6" if ipaddress.ip_address(address).version == 6 else "IPv4"
    field = "loadBalancerIP" if gateway.settings.service.type == LOAD_BALANCER else "clusterIP"
    return {"ipFamilyPolicy": "SingleStack", "ipFamilies": [family], field: address}


def read_back(gateway: DesiredGateway, services: Mapping[str, Mapping[str, Any]], problem: str = "") -> Infrastructure:
    """Returns the addresses of the Services, by name, as they are now."""
    names = service_specs(gateway)
    assigned = [address for name in names if (service := services.get(name)) for address in _assigned(gateway, service)]
    assigned = list(dict.fromkeys(assigned))
    if gateway.addresses:
        # Exactly the requested ones, in that order; others that a load balancer has assigned are not the Gateway's.
        have = {canonical(value) for _, value in assigned}
        return Infrastructure(
            tuple(("IPAddress", address) for address in gateway.addresses if address in have),
            tuple(address for address in gateway.addresses if address not in have),
            problem,
        )
    return Infrastructure(tuple(assigned), (), problem)


def _assigned(gateway: DesiredGateway, service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    spec = service.get("spec") or {}
    if spec.get("type") == LOAD_BALANCER:
        ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        for entry in ingress:
            if entry.get("ip"):
                yield "IPAddress", entry["ip"]
            elif entry.get("hostname"):
                yield "Hostname", entry["hostname"]
        return
    if spec.get("type") == "NodePort" and gateway.addresses:
        # Addresses of nodes, or of something in front of them, which only the Gateway's author can know.
        yield from (("IPAddress", address) for address in gateway.addresses)
        return
    yield from (("IPAddress", ip) for ip in spec.get("clusterIPs") or () if ip != "None")

"""The Services of a Gateway, and the addresses that they were given.

Without `spec.addresses` there is one Service. With it, one for each address: a Service can ask for one address only, and
what came of it can be read back for each.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lasthop.api.documents import Json
from lasthop.infra.kubernetes.names import digest, object_name, selector
from lasthop.infra.kubernetes.wanted import Wanted
from lasthop.plan.infrastructure import Infrastructure

LOAD_BALANCER: Final = "LoadBalancer"
CLUSTER_IP: Final = "ClusterIP"


def service_specs(gateway: Wanted) -> dict[str, Json]:
    """Name -> spec."""
    if not gateway.ports:
        return {}
    if not gateway.addresses or gateway.settings.service.type not in (LOAD_BALANCER, CLUSTER_IP):
        return {object_name(gateway.key.name): {**_common(gateway), "ipFamilyPolicy": "PreferDualStack"}}
    return {
        object_name(gateway.key.name, f"-{digest(address)}"): {**_common(gateway), **_asking_for(gateway, address)}
        for address in gateway.addresses
    }


def _common(gateway: Wanted) -> Json:
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


def _asking_for(gateway: Wanted, address: str) -> Json:
    family = "IPv6" if ipaddress.ip_address(address).version == 6 else "IPv4"
    field = "loadBalancerIP" if gateway.settings.service.type == LOAD_BALANCER else "clusterIP"
    return {"ipFamilyPolicy": "SingleStack", "ipFamilies": [family], field: address}


def read_back(gateway: Wanted, services: Mapping[str, Mapping[str, Any]], problem: str = "") -> Infrastructure:
    """From the Services as they stand now, by name."""
    names = service_specs(gateway)
    given = [address for name in names if (service := services.get(name)) for address in _given(gateway, service)]
    given = list(dict.fromkeys(given))
    if gateway.addresses:
        # Exactly those that were asked for, in that order; whatever else a load balancer has given is not the Gateway's.
        have = {_canonical(value) for _, value in given}
        return Infrastructure(
            tuple(("IPAddress", address) for address in gateway.addresses if address in have),
            tuple(address for address in gateway.addresses if address not in have),
            problem,
        )
    return Infrastructure(tuple(given), (), problem)


def _given(gateway: Wanted, service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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
        # Of nodes, or of something in front of them, which only whoever wrote them can know.
        yield from (("IPAddress", address) for address in gateway.addresses)
        return
    yield from (("IPAddress", ip) for ip in spec.get("clusterIPs") or () if ip != "None")


def _canonical(value: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        return value

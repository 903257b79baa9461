"""Builds the Services of a Gateway, and reads back their assigned addresses.

Without `spec.addresses` there is one Service. With it, there is one for each address, because a Service can request only one,
and the result can be read back for each. Addresses with routability Cluster come from Services of type ClusterIP, independent
of the others' type.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from lasthop.base.api.documents import Json
from lasthop.engine.plan.infrastructure import Infrastructure, canonical
from lasthop.run.infra.kubernetes.desired import DesiredGateway
from lasthop.run.infra.kubernetes.names import digest, object_name, selector

LOAD_BALANCER: Final = "LoadBalancer"
CLUSTER_IP: Final = "ClusterIP"


def service_specs(gateway: DesiredGateway) -> dict[str, Json]:
    if not gateway.ports:
        return {}
    return {**(_outside(gateway) if gateway.outside else {}), **_inside(gateway)}


def _inside(gateway: DesiredGateway) -> dict[str, Json]:
    specs = {}
    for address in gateway.inside:
        request = _request_for(CLUSTER_IP, address) if address else {"ipFamilyPolicy": "PreferDualStack"}
        specs[_inside_name(gateway, address)] = {**_common(gateway, CLUSTER_IP), **request}
    return specs


def _inside_name(gateway: DesiredGateway, address: str) -> str:
    return object_name(gateway.key.name, f"-cluster-{digest(address)}" if address else "-cluster")


def _outside(gateway: DesiredGateway) -> dict[str, Json]:
    kind = gateway.settings.service.type
    if not gateway.addresses or kind not in (LOAD_BALANCER, CLUSTER_IP):
        return {object_name(gateway.key.name): {**_common(gateway, kind), "ipFamilyPolicy": "PreferDualStack"}}
    return {
        object_name(gateway.key.name, f"-{digest(address)}"): {**_common(gateway, kind), **_request_for(kind, address)}
        for address in gateway.addresses
    }


def _common(gateway: DesiredGateway, kind: str) -> Json:
    settings = gateway.settings.service
    spec: Json = {
        "type": kind,
        "selector": selector(gateway.key.name),
        "ports": [
            {"name": f"{protocol.lower()}-{port}", "protocol": protocol, "port": port, "targetPort": port}
            for port, protocol in gateway.ports
        ],
    }
    if settings.external_traffic_policy and kind != CLUSTER_IP:
        spec["externalTrafficPolicy"] = settings.external_traffic_policy
    if settings.load_balancer_class and kind == LOAD_BALANCER:
        spec["loadBalancerClass"] = settings.load_balancer_class
    return spec


def _request_for(kind: str, address: str) -> Json:
    family = "IPv6" if ipaddress.ip_address(address).version == 6 else "IPv4"
    field = "loadBalancerIP" if kind == LOAD_BALANCER else "clusterIP"
    return {"ipFamilyPolicy": "SingleStack", "ipFamilies": [family], field: address}


def read_back(gateway: DesiredGateway, services: Mapping[str, Mapping[str, Any]], problem: str = "") -> Infrastructure:
    """Returns the current addresses of the Services, by name."""
    outside, inside = _read_outside(gateway, services, problem), tuple(_read_inside(gateway, services))
    missing = tuple(address for address in gateway.inside if address and address not in inside)
    inside_addresses = (("IPAddress", value) for value in inside)
    return Infrastructure((*outside.addresses, *inside_addresses), (*outside.missing, *missing), problem, inside)


def _read_inside(gateway: DesiredGateway, services: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for address in gateway.inside:
        spec = (services.get(_inside_name(gateway, address)) or {}).get("spec") or {}
        addresses = [canonical(ip) for ip in spec.get("clusterIPs") or () if ip != "None"]
        yield from (ip for ip in addresses if address in ("", ip))


def _read_outside(gateway: DesiredGateway, services: Mapping[str, Mapping[str, Any]], problem: str) -> Infrastructure:
    names = _outside(gateway) if gateway.ports and gateway.outside else {}
    existing = [services[name] for name in names if services.get(name)]
    assigned = tuple(dict.fromkeys(chain.from_iterable(_assigned(gateway, service) for service in existing)))
    if not gateway.addresses:
        return Infrastructure(assigned, (), problem)
    # Exactly the requested addresses, in that order; other addresses that a load balancer has assigned are not the Gateway's.
    have = {canonical(value) for _, value in assigned}
    missing = tuple(address for address in gateway.addresses if address not in have)
    addresses = tuple(("IPAddress", address) for address in gateway.addresses if address in have)
    return Infrastructure(addresses, missing, problem)


def _assigned(gateway: DesiredGateway, service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    spec = service.get("spec") or {}
    if spec.get("type") == LOAD_BALANCER:
        yield from _balanced(service)
    elif spec.get("type") == "NodePort" and gateway.addresses:
        # Addresses of nodes, or of a device in front of them, which only the Gateway's author can know.
        yield from (("IPAddress", address) for address in gateway.addresses)
    else:
        yield from (("IPAddress", ip) for ip in spec.get("clusterIPs") or () if ip != "None")


def _balanced(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for entry in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
        if entry.get("ip"):
            yield "IPAddress", entry["ip"]
        elif entry.get("hostname"):
            yield "Hostname", entry["hostname"]

"""Renders the expected half of a case for readers: status, Envoy's configuration, and findings."""

from __future__ import annotations

from typing import Any

from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2

from lasthop.base.api.status import ConditionStatus
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET
from tests.snapshot import Snapshot
from tests.summary_clusters import cluster_lines
from tests.summary_routes import host_lines
from tests.summary_streams import listener_lines


def summary(engine: Engine, snapshot: Snapshot, findings: list[str]) -> dict[str, Any]:
    return {
        "status": {str(key): _status(status) for key, status in sorted(snapshot.status.items()) if _status(status)},
        "envoy": _envoy(snapshot),
        "findings": findings,
    }


def _status(status: Any) -> Any:
    if hasattr(status, "parents"):
        return {_parent(p.parent_ref): _conditions(p.conditions) for p in status.parents}
    if hasattr(status, "ancestors"):
        return {a.ancestor_ref.name: _conditions(a.conditions) for a in status.ancestors}
    lines: dict[str, Any] = {"conditions": _conditions(status.conditions)}
    for listener in getattr(status, "listeners", ()):
        lines[f"listener {listener.name}"] = {
            "routes": listener.attached_routes,
            "conditions": _conditions(listener.conditions),
        }
    if sets := getattr(status, "attached_listener_sets", 0):
        lines["ListenerSets"] = sets
    return lines


def _parent(ref: Any) -> str:
    kind = "" if ref.kind == "Gateway" else f"{ref.kind} "
    return f"{kind}{ref.name}{f' {ref.section_name}' if ref.section_name else ''}"


def _conditions(conditions: tuple[ConditionStatus, ...]) -> list[str] | str:
    if all((c.status, c.reason, c.message) == ("True", c.type, "") or _untried(c) for c in conditions):
        return " ".join(f"{c.type}?" if _untried(c) else c.type for c in conditions)
    return [
        f"{c.type}?" if _untried(c) else f"{c.type}={c.status} {c.reason}" + (f": {c.message}" if c.message else "")
        for c in conditions
    ]


def _untried(c: ConditionStatus) -> bool:
    """The state of every backend before traffic."""
    return (c.type, c.status, c.reason) == ("BackendConnected", "Unknown", "NotTried")


def _envoy(snapshot: Snapshot) -> dict[str, Any]:
    endpoints = {
        name: endpoint_pb2.ClusterLoadAssignment.FromString(r.body)
        for (_, t, name), r in snapshot.xds.items()
        if t == ENDPOINTS
    }
    gateways: dict[str, Any] = {}
    for (gateway, type_url, name), resource in sorted(snapshot.xds.items()):
        section = gateways.setdefault(str(gateway), {})
        if type_url == CLUSTER:
            section.setdefault("hops", {})[name] = cluster_lines(resource, endpoints)
        elif type_url == ROUTES:
            table = route_pb2.RouteConfiguration.FromString(resource.body)
            section.setdefault("routes", {})[name] = {", ".join(h.domains): host_lines(h) for h in table.virtual_hosts}
        elif type_url == LISTENER:
            listener = listener_pb2.Listener.FromString(resource.body)
            address = listener.address.socket_address
            udp = " (UDP)" if address.protocol == address.UDP else ""
            section.setdefault("listeners", {})[f"{address.address}:{address.port_value}{udp}"] = listener_lines(listener)
        elif type_url == SECRET:
            section.setdefault("secrets", []).append(name)
    return gateways

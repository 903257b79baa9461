"""What a case expects, in a form that people read: status, what Envoy is told, and findings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2

from lasthop.api.status import ConditionStatus
from lasthop.engine import Engine
from lasthop.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET
from lasthop.pki import parse
from tests.snapshot import Snapshot, tls_context
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
    found: dict[str, Any] = {"conditions": _conditions(status.conditions)}
    for listener in getattr(status, "listeners", ()):
        found[f"listener {listener.name}"] = {
            "routes": listener.attached_routes,
            "conditions": _conditions(listener.conditions),
        }
    if sets := getattr(status, "attached_listener_sets", 0):
        found["ListenerSets"] = sets
    return found


def _parent(ref: Any) -> str:
    kind = "" if ref.kind == "Gateway" else f"{ref.kind} "
    return f"{kind}{ref.name}{f' {ref.section_name}' if ref.section_name else ''}"


def _conditions(conditions: tuple[ConditionStatus, ...]) -> list[str] | str:
    if all((c.status, c.reason, c.message) == ("True", c.type, "") for c in conditions):
        return " ".join(c.type for c in conditions)
    return [f"{c.type}={c.status} {c.reason}" + (f": {c.message}" if c.message else "") for c in conditions]


def _envoy(snapshot: Snapshot) -> dict[str, Any]:
    endpoints = {
        name: endpoint_pb2.ClusterLoadAssignment.FromString(r.body)
        for (_, t, name), r in snapshot.xds.items()
        if t == ENDPOINTS
    }
    found: dict[str, Any] = {}
    for (gateway, type_url, name), resource in sorted(snapshot.xds.items()):
        section = found.setdefault(str(gateway), {})
        if type_url == CLUSTER and not name.endswith("/h1-upgrade"):
            cluster = cluster_pb2.Cluster.FromString(resource.body)
            assignment = endpoints.get(cluster.eds_cluster_config.service_name, cluster.load_assignment)
            until = {"until": datetime.fromtimestamp(resource.expires, UTC).isoformat()} if resource.expires else {}
            section.setdefault("hops", {})[name] = {**_tls(cluster), **until, "endpoints": _endpoints(assignment)}
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
    return found


def _endpoints(assignment: Any) -> list[str]:
    addresses = [e.endpoint.address.socket_address for group in assignment.endpoints for e in group.lb_endpoints]
    return [f"{a.address}:{a.port_value}" for a in addresses]


def _tls(cluster: Any) -> dict[str, Any]:
    context = tls_context(cluster)
    if context is None:
        return {"plaintext": True}
    common = context.common_tls_context
    if not common.HasField("validation_context"):
        return {"tls": f"SNI {context.sni}", "trusts": "anybody"}
    validation = common.validation_context
    ca = validation.trusted_ca
    certificates = parse.certificates(ca.inline_bytes) if ca.inline_bytes else ()
    assert isinstance(certificates, tuple)
    names = [m.matcher.exact or m.matcher.safe_regex.regex for m in validation.match_typed_subject_alt_names]
    shown: dict[str, Any] = {
        "tls": f"SNI {context.sni}",
        "trusts": [c.common_name for c in certificates] or ca.filename or "only pins",
        "accepts": names or "any name",
    }
    if validation.verify_certificate_spki or validation.verify_certificate_hash:
        shown["pins"] = [*validation.verify_certificate_spki, *validation.verify_certificate_hash]
    if validation.allow_expired_certificate:
        shown["dates"] = "not checked"
    if common.tls_certificate_sds_secret_configs:
        shown["presents"] = common.tls_certificate_sds_secret_configs[0].name
    params = common.tls_params
    if (params.tls_minimum_protocol_version, params.tls_maximum_protocol_version) != (3, 4):
        shown["versions"] = f"TLS 1.{params.tls_minimum_protocol_version - 1} to 1.{params.tls_maximum_protocol_version - 1}"
    versions = ("tls_minimum_protocol_version", "tls_maximum_protocol_version")
    shown |= {field.name: list(value) for field, value in params.ListFields() if field.name not in versions}
    return shown

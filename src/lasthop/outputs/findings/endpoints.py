"""Findings: ports of Services and ServiceImports that a route leads to and that have no endpoint."""

from __future__ import annotations

from lasthop.api.core import AnyService
from lasthop.api.kinds import SERVICE_GROUPS
from lasthop.api.meta import Key
from lasthop.plan.finding import Finding, Severity
from lasthop.plan.limits import MAX_ENDPOINTS
from lasthop.plan.upstream import Protocol
from lasthop.resolve.backends import SLICE_LABELS, endpoints
from lasthop.resolve.missing_endpoints import missing_endpoints
from lasthop.resolve.reach import HOPS
from lasthop.resolve.settings import settings
from lasthop.store.graph import Graph, query
from lasthop.store.stages import Output
from lasthop.store.store import read

REMEDY = "Write an EndpointSlice with the label {} and a port of the same name as the {}'s, or correct the one that is there."
IN_CLUSTER = {
    "Service": "Correct the Service's selector and port name, or wait until a Pod is ready.",
    "ServiceImport": "Look at what the other clusters export (ServiceExport), or wait until a Pod there is ready.",
}


@query
def endpoint_findings(g: Graph, gateway: Key, service_key: Key, port: int, protocol: Protocol) -> tuple[Finding, ...]:
    """Returns an error where people write the endpoints themselves; in a cluster, where they come and go, a warning."""
    service = read(g, service_key, AnyService) if service_key.kind in SERVICE_GROUPS else None
    why = missing_endpoints(g, service_key, port, protocol.transport) if service else ""
    if service is None:
        return ()
    number = next((n for n, p in enumerate(service.spec.ports) if (p.port, p.protocol) == (port, protocol.transport)), 0)
    field = f"spec.ports[{number}]"
    if len(endpoints(g, service_key, port, protocol.transport).endpoints) >= MAX_ENDPOINTS:
        message = f"port {port} has {MAX_ENDPOINTS:,} endpoints or more; of these, {MAX_ENDPOINTS:,} are used."
        return (Finding(service_key, "TooManyEndpoints", message, "Use several Services.", field, Severity.WARNING),)
    if not why:
        return ()
    message = f"port {port} has no ready endpoint, so {fate(protocol)}: {why}."
    kind, pods = service_key.kind, settings(g).pods
    remedy = IN_CLUSTER[kind] if pods else REMEDY.format(SLICE_LABELS[kind], kind)
    severity = Severity.WARNING if pods else Severity.ERROR
    return (Finding(service_key, "NoEndpoints", message, remedy, field, severity),)


def fate(protocol: Protocol) -> str:
    """Says what happens to traffic without an endpoint."""
    if protocol.http:
        return "requests get 503"
    return "datagrams are dropped" if protocol is Protocol.UDP else "connections are closed"


ENDPOINT_FINDINGS = Output("findings-endpoints", HOPS, endpoint_findings)

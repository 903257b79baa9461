"""Findings on ports of Services and ServiceImports that a route uses but that have no endpoint."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.core import AnyService
from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.plan.limits import MAX_ENDPOINTS
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.resolve.backends.backends import SLICE_LABELS, endpoints, missing_endpoints
from lasthop.engine.resolve.settings import settings
from lasthop.engine.store.graph import Graph

REMEDY = "Create an EndpointSlice with the label {} and a port of the same name as the {}'s, or correct the existing one."
IN_CLUSTER = {
    "Service": "Correct the Service's selector and port name, or wait until a Pod is ready.",
    "ServiceImport": "Look at what the other clusters export (ServiceExport), or wait until a Pod there is ready.",
}


def endpoint_findings(g: Graph, key: Key, service: AnyService, port: int, protocol: Protocol) -> Iterator[Finding]:
    """Yields an error for handwritten endpoints; in a cluster, where endpoints come and go, a warning."""
    transport = protocol.transport
    count = len(endpoints(g, key, port, transport).endpoints)
    if 0 < count < MAX_ENDPOINTS:
        return
    number = next((n for n, p in enumerate(service.spec.ports) if (p.port, p.protocol) == (port, transport)), 0)
    field = f"spec.ports[{number}]"
    if count:
        message = f"port {port} has {MAX_ENDPOINTS:,} endpoints or more; of these, {MAX_ENDPOINTS:,} are used."
        yield make_finding(key, reasons.TOO_MANY_ENDPOINTS, message, field=field)
    elif why := missing_endpoints(g, key, port, transport):
        message = f"port {port} has no ready endpoint, so {fate(protocol)}: {why}."
        kind, pods = key.kind, settings(g).pods
        remedy = IN_CLUSTER[kind] if pods else REMEDY.format(SLICE_LABELS[kind], kind)
        yield make_finding(key, reasons.NO_ENDPOINTS, message, remedy, field, Severity.WARNING if pods else Severity.ERROR)


def fate(protocol: Protocol) -> str:
    if protocol.http:
        return "requests get 503"
    return "datagrams are dropped" if protocol is Protocol.UDP else "connections are closed"

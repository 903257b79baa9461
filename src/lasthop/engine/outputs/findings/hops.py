"""Findings on Services and ServiceImports that a route leads to: by one query for each hop, because most have none."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.core import AnyService
from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.findings.endpoints import endpoint_findings
from lasthop.engine.outputs.findings.failing import backend_failing
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, make_finding
from lasthop.engine.plan.tls import Plaintext
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.app_protocols import annotation_for_tls, policy_to_write
from lasthop.engine.resolve.hops.failing import failing_plaintext
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read


@query
def hop_findings(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> tuple[Finding, ...]:
    service = read(g, backend, AnyService) if backend.kind in SERVICE_GROUPS else None
    if service is None:
        return ()
    found = [*endpoint_findings(g, backend, service, port, protocol)]
    if isinstance(hop_tls(g, gateway, backend, port, protocol), Plaintext):
        hop = Hop(gateway, backend, port, protocol)
        found += _plaintext(hop, service)
        if problem := failing_plaintext(g, hop):
            found.append(backend_failing(backend, gateway, problem))
    return tuple(found)


def _plaintext(hop: Hop, service: AnyService) -> Iterator[Finding]:
    """Warns of a plaintext port that an annotation for another gateway gives TLS: its author surely expects TLS here, too."""
    port = service.port(hop.port) if hop.protocol.policed else None
    annotation = annotation_for_tls(service, port) if port else ""
    if port and annotation:
        asks = f"annotation {annotation} asks other gateways for TLS"
        message = f"port {hop.port} uses plaintext: {asks}, and has no effect here."
        policy = policy_to_write(hop.backend, port)
        remedy = f"Create a BackendTLSPolicy {policy}; or if plaintext is meant, give the port appProtocol: http."
        yield make_finding(hop.backend, reasons.PLAINTEXT_BACKEND, message, remedy, "metadata.annotations")

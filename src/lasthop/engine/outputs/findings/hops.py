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
from lasthop.engine.resolve.backends.app_protocols import annotation_for_tls, looks_like_tls, policy_to_write
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
    """Warns of a plaintext port that probably speaks TLS: an annotation for another gateway says so, or its name or number."""
    port = service.port(hop.port) if hop.protocol.policed else None
    if port is None:
        return
    annotation, looks = annotation_for_tls(service, port), looks_like_tls(port)
    if annotation:
        why, field = f"annotation {annotation} asks other gateways for TLS, and has no effect here", "metadata.annotations"
    elif looks:
        why, field = f"{looks}, and no BackendTLSPolicy names it", "spec.ports"
    else:
        return
    remedy = f"Create a BackendTLSPolicy {policy_to_write(hop.backend, port)}; or if plaintext is meant, give the port "
    remedy += "appProtocol: http."
    yield make_finding(hop.backend, reasons.PLAINTEXT_BACKEND, f"port {hop.port} uses plaintext: {why}.", remedy, field)

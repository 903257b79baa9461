"""The conditions of an XTelemetryPolicy at one of the Gateways that it names."""

from __future__ import annotations

from lasthop.base.api.gateway import Gateway as ApiGateway
from lasthop.base.api.meta import Key
from lasthop.base.api.telemetry import XTelemetryPolicy
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.problem import Problem, joined, not_found
from lasthop.engine.plan.tls import BackendTLS, Plaintext, Refused
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.backends import Target
from lasthop.engine.resolve.backends.reach import weakenings
from lasthop.engine.resolve.gateways.gateways import gateway as served_gateway
from lasthop.engine.resolve.gateways.ports import serves_nothing
from lasthop.engine.resolve.gateways.telemetry import TELEMETRY, collector, tracing_problems, unknown_attributes
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.hops.observed import connected
from lasthop.engine.resolve.hops.verification import weakened
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read


def gateway_problem(g: Graph, policy: Key, gateway: Key) -> Problem | None:
    """Returns why a policy does not apply to a Gateway that it names."""
    if read(g, gateway, ApiGateway) is None:
        return not_found(reasons.TARGET_NOT_FOUND, gateway)
    return TELEMETRY.conflict(g, policy, gateway)


def collector_hop(g: Graph, policy: Key, gateway: Key) -> Hop | None:
    to = collector(g, policy)
    return Hop(gateway, to.backend, to.port, Protocol.H2) if isinstance(to, Target) else None


@query
def collector_problem(g: Graph, policy: Key, gateway: Key) -> Problem | None:
    """Returns why nothing is exported from a Gateway."""
    to = collector(g, policy)
    if isinstance(to, Problem):
        return to
    hop = collector_hop(g, policy, gateway)
    tls = hop_tls(g, *hop) if hop else None
    return tls.problem if isinstance(tls, Refused) else None


def conditions(g: Graph, policy: Key, gateway: Key) -> tuple[Condition, ...]:
    obj = read(g, policy, XTelemetryPolicy)
    if obj is None:
        return ()
    if problem := gateway_problem(g, policy, gateway):
        return (failed(reasons.ACCEPTED, problem),)
    if problems := tracing_problems(g, policy, gateway):
        return (failed(reasons.ACCEPTED, joined(problems, reasons.INVALID, fields=True)),)
    left_out = unknown_attributes(obj)
    found = [true(reasons.ACCEPTED, _note(g, obj, gateway))]
    if left_out:
        found.append(failed(reasons.PARTIALLY_INVALID, joined(left_out, fields=True)))
    if unserved := serves_nothing(g, gateway):
        found.append(failed(reasons.PROGRAMMED, unserved))
    if obj.spec.tracing.provider is None:
        return tuple(found)
    unresolved = collector_problem(g, policy, gateway)
    if unresolved:
        nothing = unresolved.at("").within("nothing is exported: spec.tracing.provider.backendRef")
        return (*found, failed(reasons.RESOLVED_REFS, nothing))
    hop = collector_hop(g, policy, gateway)
    tls = hop_tls(g, *hop) if hop else Plaintext()
    seen = connected(g, [hop], tls=isinstance(tls, BackendTLS)) if hop else None
    more = (true(reasons.RESOLVED_REFS), *((seen,) if seen else ()), *weakened(weakenings(g, policy, gateway)))
    return (*found, *more)


def _note(g: Graph, obj: XTelemetryPolicy, gateway: Key) -> str:
    served = served_gateway(g, gateway)
    if obj.spec.tracing.provider is None:
        return "nothing is traced"
    if served and not any(listener.http for listener in served.listeners):
        return "the Gateway has no HTTP or HTTPS listener, so nothing is traced"
    return ""

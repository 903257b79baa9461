"""The conditions of an XBackend at each Gateway whose routes use it."""

from __future__ import annotations

from lasthop.base.api.backends import EXTERNAL_HOSTNAME, KIND, XBackend
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.tls import BackendTLS, HopTLS, Plaintext, Refused
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.backends.reach import REACH
from lasthop.engine.resolve.backends.xbackends import client_certificate, spec_problem
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.hops.observed import connected
from lasthop.engine.resolve.hops.weakening import WEAKENED_POLICIES, weakened
from lasthop.engine.resolve.policies.ancestors import with_room
from lasthop.engine.resolve.policies.conditions import degraded
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

MAX_ANCESTORS = KINDS[KIND].ancestors


def hops(g: Graph, key: Key) -> tuple[Hop, ...]:
    return tuple(sorted(REACH.of(g, key)))


@query
def gateways(g: Graph, key: Key) -> tuple[Key, ...]:
    """Returns the Gateways that reach an XBackend, up to the limit of its status. Further Gateways use it without an entry."""
    obj = read(g, key, XBackend)
    return with_room(g, {hop.gateway for hop in hops(g, key)}, obj.status, MAX_ANCESTORS).gateways if obj else ()


def conditions(g: Graph, key: Key, gateway: Key) -> tuple[Condition, ...]:
    """Returns the conditions for one Gateway. The XBackend is accepted only if no hop of the Gateway to it is refused."""
    resolved = _resolved(g, key)
    problem, judged = spec_problem(g, key), judgement(g, key)
    if problem:
        return failed(reasons.ACCEPTED, problem), resolved
    if judged and judged.problem:
        return failed(reasons.ACCEPTED, judged.problem), resolved
    gateway_hops = [hop for hop in hops(g, key) if hop.gateway == gateway]
    connections = [hop_tls(g, *hop) for hop in gateway_hops]
    for tls in connections:
        if isinstance(tls, Refused):
            return failed(reasons.ACCEPTED, tls.why), resolved
    accepted = true(reasons.ACCEPTED, "; ".join(_warnings(g, key, connections)))
    observed = connected(g, gateway_hops, tls=any(isinstance(tls, BackendTLS) for tls in connections))
    waiver = next((tls.waiver for tls in connections if isinstance(tls, BackendTLS) and tls.waiver), None)
    optional = (observed, degraded(waiver) if waiver else None, *weakened(WEAKENED_POLICIES.of(g, key, gateway)))
    return accepted, resolved, *(condition for condition in optional if condition)


def _warnings(g: Graph, key: Key, connections: list[HopTLS]) -> tuple[str, ...]:
    obj, judged = read(g, key, XBackend), judgement(g, key)
    warnings = [*judged.warnings, *judged.notes] if judged else []
    if obj and obj.spec.type == EXTERNAL_HOSTNAME and any(isinstance(tls, Plaintext) for tls in connections):
        name = obj.spec.external_hostname.hostname
        warnings.append(f"nothing verifies the server behind {name}, because the gateway adds no TLS")
    return tuple(warnings)


def _resolved(g: Graph, key: Key) -> Condition:
    """Returns the condition ResolvedRefs for the references of an XBackend's TLS."""
    judged, certificate = judgement(g, key), client_certificate(g, key)
    if judged and judged.unresolved:
        return failed(reasons.RESOLVED_REFS, judged.unresolved)
    if isinstance(certificate, Problem):
        return failed(reasons.RESOLVED_REFS, certificate)
    return true(reasons.RESOLVED_REFS)

"""Findings: backends that connections fail to, as proxies have seen it."""

from __future__ import annotations

from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.kinds import SERVICE_GROUPS
from lasthop.api.meta import Key
from lasthop.plan import reasons
from lasthop.plan.finding import Finding
from lasthop.plan.problem import Problem
from lasthop.plan.tls import Plaintext
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.hops import hop_tls
from lasthop.resolve.missing_endpoints import missing_endpoints
from lasthop.resolve.observed import port_states
from lasthop.resolve.reach import HOPS
from lasthop.store.graph import Graph, query
from lasthop.store.stages import Output


def backend_failing(key: Key, gateway: Key, problem: Problem) -> Finding:
    """Returns the finding on the object that decides how a backend is connected to."""
    target = key.path if key.kind == "BackendTLSPolicy" else f"{key.kind.lower()}/{key.path}"
    remedy = f"See which check fails with: lasthop probe {target}"
    if key.kind in SERVICE_GROUPS:
        remedy = "Start the backend, or correct the addresses and ports of its EndpointSlice."
    return Finding(key, reasons.BACKEND_FAILING, f"at {gateway}: {problem.message}.", remedy, about=(gateway, *problem.about))


@query
def failing_plaintext(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> tuple[Finding, ...]:
    """Tells of a Service port without a policy that fails; what has a policy, or is an XBackend, has a condition as well."""
    hop = Hop(gateway, backend, port, protocol)
    if backend.kind == XBACKEND or not isinstance(hop_tls(g, *hop), Plaintext):
        return ()
    if missing_endpoints(g, backend, port, protocol.transport):
        return ()  # a finding of its own
    return tuple(backend_failing(backend, gateway, state.problem) for state in port_states(g, [hop]) if state.health.bad)


FAILING_PLAINTEXT = Output("findings-failing", HOPS, failing_plaintext)

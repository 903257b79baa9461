"""Service ports that had a BackendTLSPolicy and have none any more, so that they are plaintext.

The spec requires that, and it is rarely what the author wants: a policy was deleted, or its target mistyped. So the last
policy of each port that routes lead to is remembered. This is the one thing that the graph knows of its own past: it is kept
by the engine as an input, `HAD_POLICY`, and decides nothing but the finding, and that the port stays closed while the policy
may be in a text that cannot be read. It is acknowledged by writing what is meant: an `appProtocol` that is a plaintext
protocol; and it ends with the last route to the port.
"""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.api.core import Service
from lasthop.api.meta import Key
from lasthop.plan.finding import Finding
from lasthop.plan.tls import BackendTLS, Plaintext, Refused
from lasthop.plan.upstream import Protocol
from lasthop.resolve.backends import says_plaintext
from lasthop.resolve.hops import hop_tls
from lasthop.resolve.policies.targets import is_service, port_winner
from lasthop.resolve.policies.texts import read_policy
from lasthop.resolve.reach import HOPS, REACH
from lasthop.resolve.settings import HAD_POLICY
from lasthop.store.graph import Graph, query
from lasthop.store.stages import Output
from lasthop.store.store import read


@query
def _applied(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> Key | None:
    """Returns the BackendTLSPolicy that decides on a hop, whether it can be fulfilled or not."""
    tls = hop_tls(g, gateway, backend, port, protocol)
    policy = tls.source if isinstance(tls, BackendTLS | Refused) else None
    return policy if policy and policy.kind == "BackendTLSPolicy" else None


APPLIED = Output("applied-policies", HOPS, _applied)


@query
def downgrade_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(_downgrades(g, key)))


def _downgrades(g: Graph, key: Key) -> Iterator[Finding]:
    service = read(g, key, Service)
    for port in service.spec.ports if service else ():
        if port.protocol != "TCP" or says_plaintext(port.app_protocol) or port_winner(g, key, port.name):
            continue
        last = HAD_POLICY.of(g, key, port.port)
        if last is None:
            continue
        for route in _plaintext_routes(g, key, port.port):
            message = f"backend {key.path}:{port.port} is plaintext now, because {_reason(g, last, key)}."
            remedy = "Restore the policy; or if plaintext is meant, say so with appProtocol: http at the Service's port."
            yield Finding(route, "NoLongerVerified", message, remedy)


def _plaintext_routes(g: Graph, service: Key, port: int) -> list[Key]:
    found = [hop for hop in REACH.of(g, service) if hop.port == port and hop.protocol.policed]
    plain = [hop for hop in found if isinstance(hop_tls(g, *hop), Plaintext)]
    return sorted({route for hop in plain for route in HOPS.of(g, *hop)})


def _reason(g: Graph, policy: Key, service: Key) -> str:
    obj = read_policy(g, policy)
    if obj is None:
        return f"{policy} is gone"
    for target in obj.spec.target_refs:
        named = Key("Service", policy.namespace, target.name)
        if is_service(target) and named != service and read(g, named, Service) is None:
            return f"{policy} names {named}, which does not exist"
    return f"{policy} does not name it any more"

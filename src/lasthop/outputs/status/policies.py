"""Status of BackendTLSPolicies: one entry for each Gateway that reaches a target."""

from __future__ import annotations

from lasthop.api.gateway import GROUP
from lasthop.api.kinds import CONTROLLER_NAME
from lasthop.api.meta import Key
from lasthop.api.policies import AncestorReference, BackendTLSPolicy
from lasthop.api.status import AncestorStatus, PolicyStatus
from lasthop.outputs.status.conditions import stated
from lasthop.resolve.policies.backend_tls import ancestors
from lasthop.resolve.policies.standing import conditions
from lasthop.store.graph import Graph, Output
from lasthop.store.store import read


def policy_status(g: Graph, key: Key) -> PolicyStatus | None:
    obj = read(g, key, BackendTLSPolicy)
    if obj is None:
        return None
    entries = []
    for gateway in g(ancestors, key).gateways:
        ref = AncestorReference(gateway.name, gateway.namespace, GROUP, "Gateway")
        entries.append(AncestorStatus(ref, CONTROLLER_NAME, stated(g(conditions, key, gateway), obj)))
    return PolicyStatus(tuple(entries)) if entries else None


POLICY_STATUS = Output("status-policies", "BackendTLSPolicy", policy_status)

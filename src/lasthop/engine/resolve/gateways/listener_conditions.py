"""The conditions of a listener, including problems of the servers that its filters refer to.

They are separate from the listener's plan, because the policy of a server's Service decides whether the server can be used. A
listener with an unusable server is still served; its requests get 503."""

from __future__ import annotations

from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.plan.problem import Problem, joined
from lasthop.engine.plan.tls import Refused
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.store.graph import Graph


def listener_conditions(g: Graph, listener: ListenerPlan) -> tuple[Condition, ...]:
    """Returns all conditions but Programmed, which depends on the proxy."""
    refused = unusable_servers(g, listener)
    if not refused or not listener.served:
        return listener.conditions
    unresolved = failed(reasons.RESOLVED_REFS, joined(refused))
    return tuple(unresolved if c.type == reasons.RESOLVED_REFS and c.status else c for c in listener.conditions)


def unusable_servers(g: Graph, listener: ListenerPlan) -> list[Problem]:
    connections = ((number, hop_tls(g, *auth.hop)) for number, auth in enumerate(listener.auth))
    return [tls.problem.within(f"filters.requests[{n}].externalAuth") for n, tls in connections if isinstance(tls, Refused)]

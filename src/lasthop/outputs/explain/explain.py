"""`explain`: what applies to an object, to what it applies, and why not. It is a query like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lasthop.api.meta import Key
from lasthop.api.route_kinds import ROUTE_KINDS
from lasthop.api.unserved import Unserved
from lasthop.outputs.explain.contents import explain_content, explain_service
from lasthop.outputs.explain.fact import Fact, honest, warning
from lasthop.outputs.explain.gateways import explain_class, explain_gateway, explain_listener_set
from lasthop.outputs.explain.grants import explain_grant
from lasthop.outputs.explain.policies import explain_policy
from lasthop.outputs.explain.routes import explain_route
from lasthop.outputs.explain.xbackends import explain_xbackend
from lasthop.outputs.status.policies import UNSERVED
from lasthop.store.graph import Graph, query
from lasthop.store.store import OBJECTS

EXPLAINERS: Final[dict[str, Callable[[Graph, Key], Fact]]] = {
    "GatewayClass": explain_class,
    "Gateway": explain_gateway,
    "ListenerSet": explain_listener_set,
    **dict.fromkeys(ROUTE_KINDS, explain_route),
    "BackendTLSPolicy": explain_policy,
    "Service": explain_service,
    "XBackend": explain_xbackend,
    "ReferenceGrant": explain_grant,
}


@query
def explain(g: Graph, key: Key) -> Fact | None:
    """None if there is no such object."""
    obj = OBJECTS.of(g, key)
    if obj is None:
        return None
    if isinstance(obj, Unserved):
        return warning(f"{key}: {UNSERVED.format(key.kind)}", object=key)
    return honest(EXPLAINERS.get(key.kind, explain_content)(g, key))

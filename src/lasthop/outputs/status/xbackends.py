"""Status of XBackends: one entry for each Gateway that reaches them."""

from __future__ import annotations

from lasthop.api.backends import KIND, XBackend
from lasthop.api.meta import Key
from lasthop.api.status import PolicyStatus
from lasthop.outputs.status.conditions import stated
from lasthop.outputs.status.policies import entry
from lasthop.resolve.xbackend_conditions import conditions, gateways
from lasthop.store.graph import Graph, query
from lasthop.store.stages import Output
from lasthop.store.store import read


@query
def xbackend_status(g: Graph, key: Key) -> PolicyStatus | None:
    obj = read(g, key, XBackend)
    if obj is None:
        return None
    entries = [entry(gateway, stated(conditions(g, key, gateway), obj)) for gateway in gateways(g, key)]
    return PolicyStatus(tuple(entries)) if entries else None


XBACKEND_STATUS = Output("status-xbackends", KIND, xbackend_status)

"""Virtual hosts: all routes that are served under one hostname, in the spec's order of precedence."""

from __future__ import annotations

from lasthop.api.meta import Key
from lasthop.plan.routing import VirtualHost
from lasthop.resolve.attachment import route_hostname
from lasthop.resolve.hostnames import specificity
from lasthop.resolve.routes import PROTOCOLS, read_route, routes
from lasthop.store.graph import Graph


def virtual_host(g: Graph, gateway: Key, table: str, hostname: str) -> VirtualHost:
    """Order: the route's own hostname, then the match, then the older route, then {namespace}/{name}, then its own order."""
    ranked = []
    for (member,), _ in g.bucket("vhost", gateway, table, hostname):
        obj = read_route(g, member) if member.kind in PROTOCOLS else None
        if obj is None:
            continue
        own = specificity(g(route_hostname, member, hostname))
        for number, route in enumerate(g(routes, member, gateway)):
            ranked.append((own, route.match.precedence, obj.age, number, route))
    ranked.sort(key=lambda entry: entry[:4])
    return VirtualHost(hostname, tuple(route for *_, route in ranked))

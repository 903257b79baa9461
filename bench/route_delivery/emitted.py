"""Lasthop's configuration for a folder of a few policies, extended to any number of hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from bench.folder import TARGETS, Folder, PolicySet
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.files.state import StateDirectory
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, Resource
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult

LISTEN = 18080
"""In what is emitted; each Envoy gets a port of its own."""
PATHS = ("/x", "/y")
"""The match of the edited host's route, before and after an edit."""
Variant = Callable[[VirtualHost], None]
"""Changes a host in place, to see what of it costs something."""


class Emitted(NamedTuple):
    upstreams: list[Resource]
    """Clusters and endpoints. Most hosts have none, because an edit of a route does not involve them."""
    listener: Listener
    table: str
    pattern: VirtualHost
    """The first host's."""

    def host(self, name: str, path: str = "/", domain: str = "") -> VirtualHost:
        """Returns the host of a policy set, as if its route had that path."""
        first = PolicySet(0, 0)
        virtual_host = VirtualHost.FromString(self.pattern.SerializeToString())
        virtual_host.name = virtual_host.domains[0] = domain or f"{name}.example"
        (route,) = virtual_host.routes
        route.name = route.name.replace(first.name, name)
        route.route.cluster = route.route.cluster.replace(first.name, name)
        if path != "/":
            route.match.path_separated_prefix = path
        return virtual_host

    def hosts(self, size: int) -> list[VirtualHost]:
        return [self.host(PolicySet(number, 0).name) for number in range(size)]


def emitted(home: Path, backend: int, pem: str) -> Emitted:
    folder = Folder(home / "folder", TARGETS, LISTEN, backend, pem)
    for policy_set in folder.sets:
        folder.edit(PolicySet(policy_set.number, backend, policy_set.ca))
    loader = Loader(folder.path, StateDirectory(home / "state"))
    batch = loader.apply(loader.look())
    assert batch is not None
    engine = Engine(now=time.time())
    engine.apply(batch.changes)
    (gateway,) = (key for key in batch.changes if key.kind == "Gateway")
    BIND_RESULT.set(engine.graph, BindResult(), gateway, "127.0.0.1", LISTEN, "TCP")
    resources = {
        type_url: [r for r in changes.values() if isinstance(r, Resource)]
        for type_url, changes in engine.settle().xds[gateway].items()
    }
    (listener,), (table,) = resources[LISTENER], resources[ROUTES]
    pattern = RouteConfiguration.FromString(table.body).virtual_hosts[0]
    return Emitted([*resources[CLUSTER], *resources[ENDPOINTS]], Listener.FromString(listener.body), table.name, pattern)

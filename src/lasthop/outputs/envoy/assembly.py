"""Assembles xDS changes from the outputs of the graph: one class for each type whose resources are joined or renamed.

clusters, secrets                     one output each
load assignments ──> ContentNamed     the name changes with the cluster
client secrets ────> ContentNamed     the name changes with the certificate
hosts, tables ─────> RouteTables      a table is the join of its hosts
listeners, streams ─> Listeners       a listener is joined with the streams of its port, and sent only whole
"""

from __future__ import annotations

from lasthop.api.meta import Key
from lasthop.outputs.envoy.clusters import CLUSTERS, LOAD_ASSIGNMENTS, ClusterEntry, Withheld
from lasthop.outputs.envoy.listeners import LISTENERS
from lasthop.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, Change, Resource, Withdrawal
from lasthop.outputs.envoy.routes import HOSTS, TABLE_NAMES, EncodedHost, refused_host, route_table, table_name
from lasthop.outputs.envoy.secrets import CLIENT_SECRETS, SECRETS
from lasthop.outputs.envoy.streams import STREAMS, EncodedStream, with_streams
from lasthop.plan.upstream import Hop
from lasthop.resolve.attachment import MISDIRECTED
from lasthop.store.stages import GONE, AnyOutput, Changes, Gone

ByGateway = dict[Key, dict[str, dict[str, Change]]]
"""By Gateway, then by type and name."""


class _XdsChanges:
    def __init__(self) -> None:
        self.by_gateway: ByGateway = {}

    def put(self, gateway: Key, type_url: str, name: str, value: Resource | Gone | None) -> None:
        """Adds a change. `value`: GONE when nothing names it any more; None when it must fail at once."""
        change = value if isinstance(value, Resource) else Withdrawal(urgent=value is not GONE)
        self.by_gateway.setdefault(gateway, {}).setdefault(type_url, {})[name] = change


class Assembly:
    def __init__(self) -> None:
        self._tables, self._listeners = RouteTables(), Listeners()
        self._endpoints = ContentNamed(LOAD_ASSIGNMENTS, ENDPOINTS)
        self._client_secrets = ContentNamed(CLIENT_SECRETS, SECRET)

    def take(self, outputs: Changes, *, listeners_wait: bool) -> ByGateway:
        """Turns changed outputs into changed resources. `listeners_wait`: some listener or stream is still to be computed."""
        xds = _XdsChanges()
        for key, entry in CLUSTERS.of(outputs).items():
            # A hop that is still wanted but has no cluster must fail at once; one that is not goes when nothing names it.
            hop = Hop(*key)
            match entry:
                case ClusterEntry():
                    xds.put(hop.gateway, CLUSTER, hop.name, entry.resource)
                case Withheld():
                    xds.put(hop.gateway, CLUSTER, hop.name, None)
                case _:
                    xds.put(hop.gateway, CLUSTER, hop.name, entry)
        for (gateway, secret), resource in SECRETS.of(outputs).items():
            xds.put(gateway, SECRET, secret.path, resource)
        self._client_secrets.take(xds, outputs)
        self._endpoints.take(xds, outputs)
        self._tables.take(xds, outputs)
        self._listeners.take(outputs)
        # Only whole: two chains that match the same, if only for a moment, would have the listener refused.
        if not listeners_wait:
            self._listeners.join(xds)
        return xds.by_gateway


class ContentNamed:
    """Resources whose name has the hash of what they are for, so that another one has another name."""

    def __init__(self, output: AnyOutput, type_url: str) -> None:
        self._output, self._type_url = output, type_url
        self._names: dict[object, str] = {}

    def take(self, xds: _XdsChanges, outputs: Changes) -> None:
        for key, resource in self._output.of(outputs).items():
            gateway, new = key[0], resource.name if isinstance(resource, Resource) else ""
            old = self._names.pop(key, "")
            if old and old != new:
                xds.put(gateway, self._type_url, old, GONE)
            if new:
                self._names[key] = new
                xds.put(gateway, self._type_url, new, resource)


class RouteTables:
    def __init__(self) -> None:
        self._tables: set[tuple[Key, str]] = set()
        self._hosts: dict[tuple[Key, str], dict[str, EncodedHost]] = {}

    def take(self, xds: _XdsChanges, outputs: Changes) -> None:
        changed: dict[tuple[Key, str], dict[str, EncodedHost]] = {}
        for key, name in TABLE_NAMES.of(outputs).items():
            (self._tables.discard if name is GONE else self._tables.add)(key)
            changed[key] = self._hosts.get(key, {})
        for (gateway, table, hostname), host in HOSTS.of(outputs).items():
            known = changed[gateway, table] = self._hosts.setdefault((gateway, table), {})
            if host is GONE:
                known.pop(hostname, None)
            elif isinstance(host, EncodedHost):
                known[hostname] = host
            elif hostname != MISDIRECTED:
                known[hostname] = refused_host(hostname)
        for (gateway, table), known in changed.items():
            name, there = table_name(gateway, table), (gateway, table) in self._tables
            xds.put(gateway, ROUTES, name, route_table(name, known) if there else GONE)
            if not known:
                self._hosts.pop((gateway, table), None)


class Listeners:
    def __init__(self) -> None:
        self._listeners: dict[Key, dict[str, Resource]] = {}
        """By Gateway and name, without their streams."""
        self._streams: dict[str, dict[tuple[Key, str, str], EncodedStream]] = {}
        """By listener and member."""
        self._listener_of: dict[tuple[Key, str, str], str] = {}
        self._changed: dict[str, Key] = {}
        """Those that are still to be sent, each with its Gateway."""

    def take(self, outputs: Changes) -> None:
        for (gateway,), resources in LISTENERS.of(outputs).items():
            if resources is None:
                continue  # a crash: what is there stays, with its tables and secrets
            old = self._listeners.pop(gateway, {})
            new = {resource.name: resource for resource in (() if isinstance(resources, Gone) else resources)}
            self._changed |= dict.fromkeys((*old, *new), gateway)
            if new:
                self._listeners[gateway] = new
        for member, stream in STREAMS.of(outputs).items():
            if old_name := self._listener_of.pop(member, None):
                self._changed[old_name] = member[0]
                del self._streams[old_name][member]
                if not self._streams[old_name]:
                    del self._streams[old_name]
            if isinstance(stream, EncodedStream):
                self._changed[stream.listener] = member[0]
                self._streams.setdefault(stream.listener, {})[member] = stream
                self._listener_of[member] = stream.listener

    def join(self, xds: _XdsChanges) -> None:
        for name, gateway in sorted(self._changed.items()):
            listener, streams = self._listeners.get(gateway, {}).get(name), self._streams.get(name, {})
            xds.put(gateway, LISTENER, name, (with_streams(listener, streams.values()) if listener else None) or GONE)
        self._changed = {}

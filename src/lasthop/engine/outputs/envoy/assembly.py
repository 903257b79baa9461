"""Assembles xDS changes from the outputs of the graph, with a class for each type whose resources are joined or renamed.

clusters, secrets                     one output each
load assignments ──> ContentNamed     the name changes with the cluster
client secrets ────> ContentNamed     the name changes with the certificate
hosts, tables ─────> RouteTables      a table is the join of its hosts
listeners, streams ─> Listeners       a listener is joined with the streams of its port, and sent only whole
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Any

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.clusters import CLUSTERS, LOAD_ASSIGNMENTS, ClusterEntry, Withheld
from lasthop.engine.outputs.envoy.listeners import LISTENERS
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, Change, Resource, Withdrawal
from lasthop.engine.outputs.envoy.routes import HOSTS, TABLE_NAMES, EncodedHost, refused_host, route_table, table_name
from lasthop.engine.outputs.envoy.secrets import CLIENT_SECRETS, SECRETS
from lasthop.engine.outputs.envoy.streams import STREAMS, EncodedStream, with_streams
from lasthop.engine.plan.knowledge import Port
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.routing.attachment import MISDIRECTED
from lasthop.engine.store.stages import GONE, AnyOutput, Changes, Gone

ByGateway = dict[Key, dict[str, dict[str, Change]]]
"""By Gateway, then by type and name."""


class _XdsChanges:
    def __init__(self) -> None:
        self.by_gateway: ByGateway = {}

    def put(self, gateway: Key, type_url: str, name: str, value: Resource | Gone | None) -> None:
        """Adds a change. The value GONE removes a resource that nothing refers to; None removes it at once (fail closed)."""
        change = value if isinstance(value, Resource) else Withdrawal(urgent=value is not GONE)
        self.by_gateway.setdefault(gateway, {}).setdefault(type_url, {})[name] = change


class Assembly:
    def __init__(self) -> None:
        self._tables, self._listeners = RouteTables(), Listeners()
        self._endpoints = ContentNamed(LOAD_ASSIGNMENTS, ENDPOINTS)
        self._client_secrets = ContentNamed(CLIENT_SECRETS, SECRET)
        self._verified: set[Hop] = set()
        """Hops whose last sent cluster has TLS."""
        self._held: set[Hop] = set()

    def take(self, outputs: Changes, *, listeners_wait: bool, held: Collection[Port] = ()) -> ByGateway:
        """Turns changed outputs into changed resources. With `listeners_wait`, some listener or stream is unsettled. `held`
        ports wait for a proof that no policy names them. Until the proof, a cluster with TLS stays unchanged; any other is
        removed at once."""
        xds = _XdsChanges()
        clusters = {Hop(*key): entry for key, entry in CLUSTERS.of(outputs).items()}
        self._held -= clusters.keys()
        withheld = {hop for hop, entry in clusters.items() if isinstance(entry, Withheld)} | self._held
        self._held = {hop for hop in withheld & self._verified if (hop.backend, hop.port) in held}
        for hop, entry in clusters.items():
            if not isinstance(entry, Withheld):
                # A hop that is in use but has no cluster must fail at once; an unused one is removed when nothing refers to
                # it.
                xds.put(hop.gateway, CLUSTER, hop.name, entry.resource if isinstance(entry, ClusterEntry) else entry)
            verified = isinstance(entry, ClusterEntry) and not entry.plaintext
            (self._verified.add if verified or hop in self._held else self._verified.discard)(hop)
        for hop in withheld - self._held:
            self._verified.discard(hop)
            xds.put(hop.gateway, CLUSTER, hop.name, None)
        for (gateway, secret), resource in SECRETS.of(outputs).items():
            xds.put(gateway, SECRET, secret.path, resource)
        self._client_secrets.take(xds, outputs)
        self._endpoints.take(xds, outputs, self._held, withheld - self._held)
        self._tables.take(xds, outputs)
        self._listeners.take(outputs)
        # Only when complete: Envoy refuses a listener with two equal chain matches, even for a moment.
        if not listeners_wait:
            self._listeners.join(xds)
        return xds.by_gateway


class ContentNamed:
    """Resources whose name contains the hash of their content's owner, so that a change renames them."""

    def __init__(self, output: AnyOutput, type_url: str) -> None:
        self._output, self._type_url = output, type_url
        self._names: dict[object, str] = {}

    def take(
        self, xds: _XdsChanges, outputs: Changes, held: Container[object] = (), dropped: Iterable[tuple[Any, ...]] = ()
    ) -> None:
        """Applies changes, except of `held` members, and removes the resources of `dropped` members."""
        for key, resource in (*dict.fromkeys(dropped).items(), *self._output.of(outputs).items()):
            if key in held:
                continue
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
            hosts = changed[gateway, table] = self._hosts.setdefault((gateway, table), {})
            if host is GONE:
                hosts.pop(hostname, None)
            elif isinstance(host, EncodedHost):
                hosts[hostname] = host
            elif hostname != MISDIRECTED:
                hosts[hostname] = refused_host(hostname)
        for (gateway, table), hosts in changed.items():
            name, exists = table_name(gateway, table), (gateway, table) in self._tables
            xds.put(gateway, ROUTES, name, route_table(name, hosts) if exists else GONE)
            if not hosts:
                self._hosts.pop((gateway, table), None)


class Listeners:
    def __init__(self) -> None:
        self._listeners: dict[Key, dict[str, Resource]] = {}
        """Listeners without streams, by Gateway and name."""
        self._streams: dict[str, dict[tuple[Key, str, str], EncodedStream]] = {}
        """Streams by listener and member."""
        self._listener_of: dict[tuple[Key, str, str], str] = {}
        self._changed: dict[str, Key] = {}
        """Listeners to send, each with its Gateway."""

    def take(self, outputs: Changes) -> None:
        for (gateway,), resources in LISTENERS.of(outputs).items():
            if resources is None:
                continue  # a crash: the current listeners stay, with their tables and secrets
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

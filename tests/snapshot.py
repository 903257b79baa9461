"""Reproduces Envoy's state: the engine's updates, applied in order and decoded."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec
from envoy.config.cluster.v3 import cluster_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import Status
from lasthop.engine.engine import Engine, Update
from lasthop.engine.outputs.envoy.resource import CLUSTER, Resource
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.plan.reasons import NO_LONGER_VERIFIED
from lasthop.engine.plan.tls import SystemStore
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from lasthop.engine.resolve.settings import PROXY, SYSTEM_STORE, Settings
from lasthop.engine.store import sources
from lasthop.engine.store.graph import Query
from lasthop.engine.store.node import Crash, Node
from tests.world import NOW


class Snapshot:
    """The state of every proxy and every status after the updates so far."""

    def __init__(self) -> None:
        self.xds: dict[tuple[Key, str, str], Resource] = {}
        self.status: dict[Key, Status] = {}

    def take(self, update: Update) -> None:
        for key, by_type in update.xds.items():
            for type_url, changes in by_type.items():
                for name, change in changes.items():
                    if isinstance(change, Resource):
                        assert (change.type_url, change.name) == (type_url, name)
                        self.xds[key, type_url, name] = change
                    else:
                        self.xds.pop((key, type_url, name), None)
        for obj, status in update.status.items():
            if status is None:
                self.status.pop(obj, None)
            else:
                self.status[obj] = status

    def clusters(self) -> dict[tuple[Key, str], Any]:
        return {
            (key, name): cluster_pb2.Cluster.FromString(resource.body)
            for (key, type_url, name), resource in self.xds.items()
            if type_url == CLUSTER
        }


def tls_context(cluster: Any) -> Any | None:
    """The UpstreamTlsContext of a cluster; None if it speaks plaintext."""
    if not cluster.HasField("transport_socket"):
        return None
    context = tls_pb2.UpstreamTlsContext()
    assert cluster.transport_socket.typed_config.Unpack(context)
    return context


def settle(engine: Engine, snapshot: Snapshot) -> None:
    """Settles the engine on a host whose ports are free, with proxies that accept their configuration."""
    snapshot.take(engine.settle())
    for key in engine.store.keys("Gateway"):
        gateway_plan = gateway.attempt(engine.graph, key)
        if gateway_plan is None or isinstance(gateway_plan, Crash):
            continue
        for address in gateway_plan.addresses:
            for listener in gateway_plan.listeners:
                BIND_RESULT.set(engine.graph, BindResult(), key, address, listener.port, listener.transport)
        PROXY.set(engine.graph, ProxyState.serving(gateway_plan.listeners), key)
    snapshot.take(engine.settle())


def settled(
    objects: Mapping[Key, Object | None],
    *,
    settings: Settings | None = None,
    now: float = NOW.timestamp(),
    store: SystemStore | None = None,
) -> tuple[Engine, Snapshot]:
    """A fresh engine that has worked these objects out."""
    engine, snapshot = Engine(settings, now=now), Snapshot()
    if store:
        SYSTEM_STORE.set(engine.graph, store)
    engine.apply(objects)
    settle(engine, snapshot)
    return engine, snapshot


class Prepared:
    """A world that is worked out once, because that takes longer than most edits. Each call returns a copy to edit."""

    def __init__(self, objects: Mapping[Key, Object | None], store: SystemStore) -> None:
        self.objects = objects
        self._store = store
        self._settled: tuple[Engine, Snapshot] | None = None

    def __call__(self) -> tuple[Engine, Snapshot]:
        self._settled = self._settled or settled(self.objects, store=self._store)
        engine, snapshot = self._settled
        made = Snapshot()
        made.xds, made.status = dict(snapshot.xds), dict(snapshot.status)
        return _copied(engine), made

    def edited(self, objects: Mapping[Key, Object | None]) -> tuple[Engine, Snapshot]:
        """Returns a copy that has become the world of these objects."""
        engine, snapshot = self()
        engine.apply({**dict.fromkeys(self.objects), **objects})
        settle(engine, snapshot)
        return engine, snapshot


def _copied(engine: Engine) -> Engine:
    """Copies everything that changes. Values are frozen, and keys of dicts are values."""
    nodes = engine.graph.nodes.values()
    memo: dict[int, Any] = {id(node): Node.__new__(Node) for node in nodes}

    def copy(value: Any) -> Any:
        made: Any
        kind = value.__class__
        if kind is tuple:
            return tuple([copy(item) for item in value]) if any([_changes(item.__class__) for item in value]) else value
        if not _changes(kind):
            return value
        if (known := memo.get(id(value))) is not None:
            return known
        if kind is dict:
            made = memo[id(value)] = {}
            made.update({key: copy(held) for key, held in value.items()})
        elif kind is defaultdict:
            made = memo[id(value)] = defaultdict(value.default_factory, {key: copy(held) for key, held in value.items()})
        elif kind is list:
            made = memo[id(value)] = [copy(item) for item in value]
        elif kind is set:
            made = memo[id(value)] = set(value)
        else:
            made = memo[id(value)] = kind.__new__(kind)
            for name in getattr(kind, "__slots__", None) or vars(value):
                setattr(made, name, copy(getattr(value, name)))
        return made

    copied: Engine = copy(engine)
    for node in nodes:
        made = memo[id(node)]
        made.id, made.value, made.state, made.marked = node.id, node.value, node.state, node.marked
        made.changed, made.verified = node.changed, node.verified
        made.deps = tuple([memo[id(dep)] for dep in node.deps])
        made.readers = node.readers.__class__([memo[id(reader)] for reader in node.readers])
        made.pinned = tuple([memo[id(pinned)] for pinned in node.pinned])
    return copied


@functools.cache
def _changes(kind: type) -> bool:
    """Returns whether objects of this class are containers, or have parts that change. A tuple of tuples is a value."""
    if kind.__module__ in ("builtins", sources.__name__):
        return kind in (dict, list, set)
    return not issubclass(kind, msgspec.Struct | tuple | Enum | Query | Exception)


def said(statuses: Mapping[Key, Status]) -> dict[Key, str]:
    """Omits lost verification, which a later process cannot know."""
    return {key: "\n".join(_lines(msgspec.to_builtins(status))) for key, status in statuses.items()}


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        if value.get("reason") == NO_LONGER_VERIFIED:
            return []
        return [f"{name} {line}" for name, held in value.items() if name != "lastTransitionTime" for line in _lines(held)]
    return [line for held in value for line in _lines(held)] if isinstance(value, list | tuple) else [repr(value)]


def told(findings: Iterable[Finding]) -> set[Finding]:
    return {finding for finding in findings if finding.reason != NO_LONGER_VERIFIED}

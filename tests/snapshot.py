"""What Envoy would hold: the engine's updates, applied in order and decoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from lasthop.engine.resolve.gateways.ports import PROBE, Probe
from lasthop.engine.resolve.settings import PROXY, SYSTEM_STORE, Settings
from lasthop.engine.store.node import Crash
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
    """Lets the engine work, on a host whose ports are free and with proxies that take what they are given."""
    snapshot.take(engine.settle())
    for key in engine.store.keys("Gateway"):
        found = gateway.attempt(engine.graph, key)
        if found is None or isinstance(found, Crash):
            continue
        for address in found.addresses:
            for listener in found.listeners:
                PROBE.set(engine.graph, Probe(), key, address, listener.port, listener.transport)
        PROXY.set(engine.graph, ProxyState.serving(found.listeners), key)
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


def said(statuses: Mapping[Key, Status]) -> dict[Key, str]:
    """Without what a backend has lost, which nobody who comes later can know."""
    return {key: "\n".join(_lines(msgspec.to_builtins(status))) for key, status in statuses.items()}


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        if value.get("reason") == NO_LONGER_VERIFIED:
            return []
        return [f"{name} {line}" for name, held in value.items() if name != "lastTransitionTime" for line in _lines(held)]
    return [line for held in value for line in _lines(held)] if isinstance(value, list | tuple) else [repr(value)]


def told(findings: Iterable[Finding]) -> set[Finding]:
    return {finding for finding in findings if finding.reason != NO_LONGER_VERIFIED}

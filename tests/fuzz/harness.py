"""A controller in this process, a real Envoy, a neighbour whose objects never change, and the checks after every edit."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2

from lasthop.base.api.kinds import decode
from lasthop.base.api.meta import Key, Object
from lasthop.edge.proxy.binary import find_envoy
from lasthop.edge.sources.source import Batch, ObjectSource
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, SECRET, Resource
from lasthop.run.host import HostRuntime
from tests.fuzz import certificates
from tests.fuzz.objects import PORTS, SHARED, Document
from tests.ports import free_port
from tests.world import (
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_route,
    mk_secret,
    mk_service,
    mk_slice,
    mk_stream_route,
)

GATEWAY = Key("Gateway", "edge", "web")
PATIENCE = 60.0
"""Seconds until an edit that has not reached Envoy counts as a failure, on a machine that has much else to do."""
OWN = "own.shop.example"


class Failed(Exception):
    """A violation of an expectation."""


class _Feed(ObjectSource):
    def __init__(self) -> None:
        self.queue: asyncio.Queue[Batch] = asyncio.Queue()

    async def batches(self) -> AsyncIterator[Batch]:
        while True:
            yield await self.queue.get()


class Harness:
    def __init__(self, run_dir: Path) -> None:
        self.ports = {name: free_port() for name in PORTS}
        self._feed = _Feed()
        self.runtime = HostRuntime(self._feed, find_envoy(), run_dir, concurrency=1)
        self.controller = self.runtime.controller
        self._tenant: set[Key] = set()
        self._before: dict[str, Any] = {}

    async def start(self) -> None:
        self._feed.queue.put_nowait(Batch(self._neighbour()))
        await self._settled()
        self._before = self._neighbours_share()

    def _neighbour(self) -> dict[Key, Object | None]:
        every = {"allowedRoutes": {"namespaces": {"from": "All"}}}
        der, private = certificates.pair("shop.example")
        tls = {"tls": {"certificateRefs": [{"name": "tls"}]}}
        listeners = [
            {"name": "http", "port": self.ports["http"], "protocol": "HTTP", **every},
            {"name": "https", "port": self.ports["https"], "protocol": "HTTPS", "hostname": "*.shop.example", **tls, **every},
            {
                "name": "tls",
                "port": self.ports["tls"],
                "protocol": "TLS",
                "tls": {"mode": "Passthrough"},
                "hostname": "*.example",
                **every,
            },
            {"name": "ends", "port": self.ports["tls"], "protocol": "TLS", "hostname": "ends.team.example", **tls, **every},
            {"name": "tcp", "port": self.ports["tcp"], "protocol": "TCP", **every},
            {"name": "udp", "port": self.ports["udp"], "protocol": "UDP", **every},
        ]
        more: dict[str, Any] = {"addresses": [{"value": "127.0.0.1"}], "allowedListeners": {"namespaces": {"from": "All"}}}
        to, old = [{"name": "api", "port": 443}], "2020-01-01T00:00:00Z"
        return keyed(
            mk_class(),
            mk_gateway("edge/web", listeners, **more),
            mk_secret("edge/tls", certificates.pem(der), certificates.pem(private, "PRIVATE KEY")),
            mk_service("shop/api"),
            mk_slice("shop/api", "api", ["127.0.0.1"]),
            mk_config_map("shop/ca", certificates.pem(der)),
            mk_policy("shop/api", "api", "shop.example", ["ca"]),
            mk_route("shop/own", "edge/web", to, [SHARED, OWN], created=old),
            mk_stream_route("TLSRoute", "shop/pass", "edge/web", to, ["pass.example"], "tls", created=old),
        )

    async def show(self, documents: list[Document]) -> None:
        """Lets the tenant have exactly these objects; raises `Failed` for what comes of it."""
        objects: dict[Key, Object | None] = dict.fromkeys(self._tenant)
        for document in documents:
            # Admission has already refused objects that cannot be decoded.
            with contextlib.suppress(msgspec.ValidationError):
                obj = decode(document["kind"], self._here(document))
                objects[Key(document["kind"], obj.metadata.namespace, obj.metadata.name)] = obj
        self._tenant = {key for key, obj in objects.items() if obj is not None}
        self._feed.queue.put_nowait(Batch(objects))
        await self._settled()
        self._look()

    def _here(self, document: Document) -> Document:
        """With the ports of this run."""
        if document["kind"] != "ListenerSet":
            return document
        real = {PORTS[name]: port for name, port in self.ports.items()}
        spec = document["spec"]
        listeners = [{**listener, "port": real.get(listener["port"], listener["port"])} for listener in spec["listeners"]]
        return {**document, "spec": {**spec, "listeners": listeners}}

    async def _settled(self) -> None:
        controller = self.controller
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    await asyncio.sleep(0.002)
                    settled = self._feed.queue.empty() and controller.settled
                    if controller.loaded.is_set() and settled and controller.server.state(GATEWAY).synced:
                        return
                    if self._refusals():
                        return
        raise Failed(f"not confirmed by Envoy within {PATIENCE:g} s")

    def _refusals(self) -> list[str]:
        """Once Envoy has refused anything: what, as far as that is known."""
        known = self.controller.fleet.gateways.get(GATEWAY)
        if known is None or not any(traffic.nacks for traffic in self.controller.server.traffic.values()):
            return []
        return [known.problem, *(known.quarantine.detail(part) for part in known.withheld)]

    def _look(self) -> None:
        controller = self.controller
        if crashes := controller.engine.graph.crashes:
            raise Failed("raised: " + "; ".join(f"{where}: {what}" for where, what in list(crashes.items())[:3]))
        if refusals := self._refusals():
            raise Failed("refused by Envoy: " + "; ".join(refusals))
        if internal := [f for f in controller.engine.findings() if f.reason in ("InternalError", "RefusedByProxy")]:
            raise Failed(f"found: {internal[0]}")
        now = self._neighbours_share()
        for what, before in self._before.items():
            if now.get(what) != before:
                raise Failed(f"the neighbour's {what} is another")

    def _neighbours_share(self) -> dict[str, Any]:
        """Returns the configuration that belongs to the neighbour alone, and its part of shared resources."""
        cache = self.controller.fleet.gateways[GATEWAY].cache
        parts: dict[str, Any] = {}
        for type_url in (CLUSTER, SECRET, LISTENER, ROUTES):
            for name in cache.names(type_url):
                resource = cache.get(type_url, name)
                if not isinstance(resource, Resource):
                    continue
                if type_url in (CLUSTER, SECRET) and "/team/" not in f"/{name}":
                    parts[f"{type_url.rsplit('.')[-1]} {name}"] = resource.body
                elif type_url == LISTENER:
                    parts |= _own_chains(name, resource.body)
                elif type_url == ROUTES:
                    parts |= _own_hosts(name, resource.body)
        parts["status"] = self._statuses()
        return parts

    def _statuses(self) -> list[Any]:
        keys = (Key("HTTPRoute", "shop", "own"), Key("TLSRoute", "shop", "pass"), Key("BackendTLSPolicy", "shop", "api"))
        return [[(c.type, c.status, c.reason) for c in _conditions(self.controller.statuses.get(key))] for key in keys]


def _conditions(status: Any) -> list[Any]:
    entries = (*getattr(status, "parents", ()), *getattr(status, "ancestors", ()))
    return [condition for entry in entries for condition in entry.conditions]


def _own_chains(name: str, body: bytes) -> dict[str, Any]:
    """The chains of the Gateway's own HTTP listeners, and the neighbour's of connections."""
    listener = listener_pb2.Listener.FromString(body)
    chains = {chain.name: chain.SerializeToString(deterministic=True) for chain in listener.filter_chains}
    port = name.split("/")[2]
    own = {
        f"chain {name} {key}": value
        for key, value in chains.items()
        if key in (port, f"{port}/https") or "/pass.example@" in key
    }
    return {f"listener {name}": True, **own}


def _own_hosts(name: str, body: bytes) -> dict[str, Any]:
    table = route_pb2.RouteConfiguration.FromString(body)
    hosts: dict[str, Any] = {}
    for host in table.virtual_hosts:
        content = host.SerializeToString(deterministic=True)
        if host.name == OWN:
            hosts[f"host {name} {OWN}"] = content
        elif host.name == SHARED:
            hosts[f"host {name} {SHARED}"] = b"HTTPRoute shop/own" in content
    return hosts


@contextlib.asynccontextmanager
async def harness() -> AsyncIterator[Harness]:
    with tempfile.TemporaryDirectory(prefix="lf-") as folder:
        fuzzed = Harness(Path(folder))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(fuzzed.runtime.run())
            try:
                await fuzzed.start()
                yield fuzzed
            finally:
                fuzzed.runtime.stop()
                fuzzed.runtime.stop()
                await running

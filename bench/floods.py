"""Floods a controller from peers, for the rows of `python -m bench.neighbour --floods`, and measures others' edits meanwhile.

`lasthop controller` on the API server of the tests, with two Gateways. The flooding peer has the credentials of one Gateway's
proxies, reaches the webhook, or is another user of the machine; it runs in a separate process at full speed. Meanwhile the
bench edits HTTPRoutes of another owner, and waits for the status after each edit. No root and no cluster.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import multiprocessing
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import msgspec
import yaml
from envoy.service.discovery.v3 import discovery_pb2

from bench.processes import STOP_WITHIN, environment, free_port, resident
from conformance import lasthop
from lasthop.base.api.meta import Key
from lasthop.edge.xds.observing import METHOD, SERVICE
from lasthop.engine.outputs.envoy.resource import CLUSTER
from lasthop.engine.plan.observation import HopSeen, ProxyReport
from lasthop.engine.plan.upstream import Hop, Protocol
from tests.fake_api import KINDS, FakeApi, serving, until
from tests.proxy import documents as docs

NAME = "lasthop-xds.lasthop-system.svc"
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
REPORT = f"/{SERVICE}/{METHOD}"
MADE = (("", "v1", "serviceaccounts"), ("apps", "v1", "deployments"), ("policy", "v1", "poddisruptionbudgets"))
PLURALS = {kind: plural for plural, kind in KINDS.items()}
HOSTILE = Key("Gateway", "hostile", "web")
ROUTES = 300
"""Of everybody else."""
OTHERWISE = 3.0
"""Seconds within which any edit of others is judged."""


class Target(msgspec.Struct, frozen=True):
    """The controller, and the credentials of the hostile Gateway's proxies."""

    xds: int
    webhook: int
    admin: int
    credentials: dict[str, bytes]

    @contextlib.asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        shown = self.credentials
        credentials = grpc.ssl_channel_credentials(shown["ca.crt"], shown["tls.key"], shown["tls.crt"])
        options = (("grpc.ssl_target_name_override", NAME), ("grpc.use_local_subchannel_pool", 1))
        async with grpc.aio.secure_channel(f"127.0.0.1:{self.xds}", credentials, options) as channel:
            yield channel


# --- floods: each is repeated until the process is ended ---------------------------------------------------------------------


async def names(target: Target, count: int = 1_500_000) -> None:
    """A subscription to names that do not exist; 1.5 million of them are 16 MB."""
    request = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER)
    request.resource_names_subscribe.extend(f"n{number}" for number in range(count))
    content = request.SerializeToString()
    async with target.channel() as channel:
        stream: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(ADS)()
        await stream.write(content)
        await stream.read()
        stream.cancel()


async def names_within_the_allowance(target: Target) -> None:
    await names(target, 10_000)


async def reports(target: Target, hops: int = 18_000) -> None:
    """Reports of made-up hops under made-up names."""
    seen = {Hop(HOSTILE, Key("Service", "hostile", f"s{n}"), 443, Protocol.AUTO): HopSeen(n) for n in range(hops)}
    async with target.channel() as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(REPORT)
        for number in range(100):
            report = ProxyReport(HOSTILE, f"p{time.monotonic_ns()}-{number}", 1.0, time.time(), seen)
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call(msgspec.msgpack.encode(report), timeout=60)


async def small_reports(target: Target) -> None:
    await reports(target, 100)


async def reviews(target: Target) -> None:
    """24 connections with reviews of 4.1 MB."""
    padding = {"metadata": {"name": "r", "namespace": "quiet", "annotations": {"x": "y" * 2_000_000}}}
    kind = {"group": "gateway.networking.k8s.io", "version": "v1", "kind": "HTTPRoute"}
    request = {"uid": "u", "kind": kind, "operation": "UPDATE", "name": "r", "namespace": "quiet"}
    body = json.dumps({"request": {**request, "object": padding, "oldObject": padding}}).encode()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=24, ssl=False)) as session:

        async def one() -> None:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.post(f"https://127.0.0.1:{target.webhook}/validate", data=body) as response:
                    await response.read()

        await asyncio.gather(*(one() for _ in range(24)))


async def questions(target: Target) -> None:
    """12 askers of the admin API's most expensive answers."""
    paths = ("/api/explain?kind=Gateway&namespace=quiet&name=web", "/api/objects", "/api/audit")
    async with aiohttp.ClientSession() as session:

        async def one(number: int) -> None:
            async with session.get(f"http://127.0.0.1:{target.admin}{paths[number % len(paths)]}") as response:
                await response.read()

        await asyncio.gather(*map(one, range(12)))


Flood = Callable[[Target], Awaitable[None]]
FLOODS: dict[str, Flood | None] = {
    "at rest": None,
    "xDS: 1.5 million names": names,
    "xDS: 10,000 names": names_within_the_allowance,
    "reports: 18,000 hops": reports,
    "reports: made-up proxies": small_reports,
    "webhook: 24 x 4.1 MB": reviews,
    "admin API: 12 askers": questions,
}


def _repeat(flood: Flood, target: Target) -> None:
    async def run() -> None:
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, aiohttp.ClientError, TimeoutError):
                await flood(target)

    asyncio.run(run())


@contextlib.contextmanager
def flooding(flood: Flood | None, target: Target) -> Iterator[None]:
    if flood is None:
        yield
        return
    process = multiprocessing.get_context("spawn").Process(target=_repeat, args=(flood, target), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


# --- measurement -------------------------------------------------------------------------------------------------------------


class Seen(msgspec.Struct, frozen=True):
    edits: tuple[float, ...]
    """Seconds until each was judged."""
    health: float
    """The longest that /healthz took."""
    resident: float
    """MiB."""
    lost: int
    """Number of losses of the Lease."""

    @property
    def kept(self) -> bool:
        return max(self.edits) <= OTHERWISE and not self.lost


class World:
    def __init__(self, api: FakeApi) -> None:
        self.api, self._edition = api, 0
        api.served |= set(MADE)
        spec = {
            "gatewayClassName": docs.CLASS,
            "listeners": [{**docs.http(80), "allowedRoutes": {"namespaces": {"from": "All"}}}],
        }
        documents = [docs.gateway_class(), docs.namespace("quiet"), docs.namespace("hostile")]
        documents += [_placed(docs.obj(docs.GATEWAY_API, "Gateway", "web", spec=spec), name) for name in ("quiet", "hostile")]
        for document in documents:
            api.put(PLURALS[document["kind"]], document)
        for number in range(ROUTES):
            self.edit(number)

    def edit(self, number: int) -> int:
        """Edits a route, and returns its generation."""
        self._edition += 1
        rules = [{"matches": [{"path": {"type": "PathPrefix", "value": f"/{self._edition}"}}]}]
        spec = {"parentRefs": [{"name": "web"}], "hostnames": [f"h{number}.example"], "rules": rules}
        route = _placed(docs.obj(docs.GATEWAY_API, "HTTPRoute", f"r{number}", spec=spec), "quiet")
        generation: int = self.api.put("httproutes", route)["metadata"]["generation"]
        return generation

    def judged(self, number: int, generation: int) -> bool:
        status = self.api.get("httproutes", f"r{number}", "quiet").get("status") or {}
        parents = status.get("parents") or ()
        return any(condition["observedGeneration"] == generation for parent in parents for condition in parent["conditions"])

    def credentials(self) -> dict[str, bytes]:
        data = self.api.get("secrets", "lasthop-web-xds", "hostile")["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}


def _placed(document: Any, namespace: str) -> Any:
    return {**document, "metadata": {**document["metadata"], "namespace": namespace, "uid": f"uid-of-{namespace}"}}


async def _healthy(admin: int, stop: asyncio.Event) -> float:
    worst = 0.0
    while not stop.is_set():
        began = time.perf_counter()
        await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://127.0.0.1:{admin}/healthz", timeout=60).read())
        worst = max(worst, time.perf_counter() - began)
        await asyncio.sleep(0.02)
    return worst


async def _measured(world: World, target: Target, process: subprocess.Popen[bytes], log: Path, edits: int) -> Seen:
    lost, stop, edit_times = log.read_text().count("no longer leading"), asyncio.Event(), []
    async with asyncio.TaskGroup() as tasks:
        health = tasks.create_task(_healthy(target.admin, stop))
        for number in range(edits):
            await asyncio.sleep(1.0)
            began, generation = time.perf_counter(), world.edit(number)
            await until(lambda number=number, generation=generation: world.judged(number, generation), 120.0)
            edit_times.append(time.perf_counter() - began)
        stop.set()
    return Seen(tuple(edit_times), health.result(), resident(process.pid), log.read_text().count("no longer leading") - lost)


def _started(command: list[str | Path], log: Path, home: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment(home))


async def run(edits: int) -> dict[str, Seen]:
    """Returns the measurements of each flood."""
    floods: dict[str, Seen] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home, (xds, webhook, admin) = Path(folder), (free_port(), free_port(), free_port())
        async with serving(FakeApi()) as api:
            world = World(api)
            cluster = {"clusters": [{"name": "c", "cluster": {"server": api.url}}], "users": [{"name": "u", "user": {}}]}
            context = {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
            (home / "kubeconfig").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **cluster, **context}))
            command: list[str | Path] = [
                *(lasthop.program(), "controller", f"--kubeconfig={home / 'kubeconfig'}", f"--xds-address={NAME}:{xds}"),
                *(f"--xds-listen=127.0.0.1:{xds}", f"--webhook=127.0.0.1:{webhook}", f"--admin=127.0.0.1:{admin}"),
            ]
            log = home / "log"
            process = await asyncio.to_thread(_started, command, log, home)
            try:
                await until(lambda: ("hostile", "lasthop-web-xds") in api.objects.get("secrets", {}), 120.0)
                await until(lambda: all(world.judged(number, 1) for number in range(ROUTES)), 120.0)
                target = Target(xds, webhook, admin, world.credentials())
                for name, flood in FLOODS.items():
                    with flooding(flood, target):
                        floods[name] = await _measured(world, target, process, log, edits)
                process.terminate()
                process.wait(STOP_WITHIN)
            finally:
                process.kill()
                process.wait()
    return floods


def show(floods: dict[str, Seen]) -> None:
    columns = ("edit judged, slowest", "/healthz, slowest", "RSS", "Lease lost")
    print(f"{'others, while one peer floods':30} {columns[0]:>22} {columns[1]:>20} {columns[2]:>10} {columns[3]:>12}")
    for name, seen in floods.items():
        slowest, health = max(seen.edits) * 1e3, seen.health * 1e3
        print(f"{name:30} {slowest:19.0f} ms {health:17.0f} ms {seen.resident:6.0f} MiB {seen.lost:12}")

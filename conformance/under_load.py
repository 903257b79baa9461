"""Sends requests to a Gateway continuously while Lasthop is replaced."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from types import TracebackType

from bench import objects
from conformance.checks import eventually
from conformance.children import say
from conformance.cluster import Cluster, has_condition
from conformance.lasthop import CONTROLLER, NAMESPACE
from conformance.network import NODE_IP
from examples.quickstart.certificates import Issued

HOST, CLIENTS, PORT, COUNTS = "chart.bench.example", 4, 8443, 8444
_OBJECTS = f"/apis/{objects.API}/namespaces/{objects.NAMESPACE}"
GATEWAY, POLICY = f"{_OBJECTS}/gateways/{objects.GATEWAY}", f"{_OBJECTS}/backendtlspolicies/erp"


class UnderLoad:
    """A backend over verified TLS, its Gateway and its clients; afterwards `failed` has their failed requests."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.failed: list[object] = []

    async def __aenter__(self) -> UnderLoad:
        cluster, ca = self.cluster, Issued("chart CA")
        Issued("*.bench.example", ca).write(cluster.scratch, "backend")
        pair = (cluster.scratch / "backend.crt", cluster.scratch / "backend.key")
        self._backend = await _start("bench.tls_only_backend", *pair, f"{NODE_IP}:{PORT}", COUNTS)
        assert self._backend.stdout is not None
        await self._backend.stdout.readline()
        await cluster.apply(objects.gateway())
        await cluster.apply([objects.ca(ca.pem.decode()), *objects.backend("erp", HOST, NODE_IP, PORT, "v0.bench.example")])
        await eventually(self._programmed, 60)
        address = (await cluster.api.get(GATEWAY))["status"]["addresses"][0]["value"]
        await eventually(functools.partial(_answered, address), 60)
        self._clients = await _start("bench.clients", f"{address}:80", HOST, CLIENTS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        output, _ = await self._clients.communicate(b"")
        self._backend.kill()
        await self._backend.wait()
        seen = json.loads(output)
        self.failed = [*seen["lost"], *seen["wrong"]]
        say(f"requests answered with 200    {seen['ok']:,}, the slowest in {1000 * seen['slowest']:.0f} ms")
        say(f"connections refused, repeated {len(seen['refused'])}")
        say(f"requests that failed          {len(self.failed)} (promised: 0) {self.failed[:5] or ''}")

    async def until_all_run(self, image: str) -> None:
        """Waits until every Pod, the proxies' too, is ready and of this image, and none of another is left."""
        await self.cluster.deployment_ready(NAMESPACE, CONTROLLER)
        await eventually(functools.partial(self._all_run, image), 120)
        await asyncio.sleep(3)  # of traffic to the new ones alone

    async def _programmed(self) -> bool:
        return has_condition(await self.cluster.api.get(GATEWAY), "Programmed")

    async def _all_run(self, image: str) -> bool:
        pods = [
            pod
            for namespace in (NAMESPACE, objects.NAMESPACE)
            for pod in (await self.cluster.api.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]
        ]
        return all(pod["spec"]["containers"][0]["image"] == image and has_condition(pod, "Ready") for pod in pods)


async def _start(module: str, *arguments: object) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-m", module, *map(str, arguments), stdin=pipe, stdout=pipe)


async def _answered(address: str) -> bool:
    try:
        reader, writer = await asyncio.open_connection(address, 80)
    except OSError:
        return False
    writer.write(f"GET / HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n".encode())
    head = await reader.read()
    writer.close()
    return head.startswith(b"HTTP/1.1 200")

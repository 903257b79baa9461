"""Kills controllers, Envoy and kube-apiserver with kill -9 in turn, under load, on a real cluster: `python -m bench.failover`.

Lasthop runs as users install it: two replicas of the controller, two proxies, a TLS backend under a BackendTLSPolicy. After
each kill an edit of the policy must reach the backend. Promises: only requests in flight on a killed Envoy fail; no
byte of plaintext reaches the backend; another replica leads within 15 s; the Gateway's status does not flip.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench import objects
from conformance import lasthop, sandbox
from conformance.build import build
from conformance.children import say
from conformance.cluster import Cluster
from conformance.network import NODE_IP
from examples.quickstart.certificates import Issued

HOST = "failover.bench.example"
CLIENTS = 8
PROXIES = 2
AWAY = 12.0
"""Seconds that the API server stays away: longer than a Lease lasts."""
TAKE_OVER = 15.0
SETTLE = 3.0
PORT, COUNTS = 8443, 8444
IN_FLIGHT_FOR = 1.0
"""Seconds around the kill of an Envoy in which what is lost was in flight on it."""


async def scenario(cluster: Cluster, arguments: dict[str, Any]) -> int:
    begin = time.monotonic()
    await lasthop.install(cluster, "deployment")
    say(f"Lasthop installed after {time.monotonic() - begin:.1f} s")
    async with asyncio.TaskGroup() as tasks:
        run = _Run(cluster)
        await run.prepare()
        watching = tasks.create_task(run.watch_status())
        try:
            for name, kill in run.kills():
                await run.kill(name, kill)
            good = await run.verdict()
        finally:
            watching.cancel()
    return 0 if good else 1


class _Run:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._edition = 0
        self._kills: list[tuple[str, float]] = []
        self._flips: list[str] = []
        self._took_over = 0.0
        self._processes: list[asyncio.subprocess.Process] = []

    # --- the world ---------------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        cluster, folder = self._cluster, self._cluster.scratch
        ca = Issued("bench CA")
        Issued("*.bench.example", ca).write(folder, "backend")
        place = f"{NODE_IP}:{PORT}"
        await self._start("bench.tls_only_backend", folder / "backend.crt", folder / "backend.key", place, COUNTS)
        await cluster.apply(objects.gateway())
        await cluster.apply([objects.ca(ca.pem.decode()), *objects.backend("erp", HOST, NODE_IP, PORT, self._sni)])
        address = await self._programmed()
        # As an autoscaler would: Lasthop leaves the number alone where none is requested.
        await cluster.api.patch(await self._deployment(), {"spec": {"replicas": PROXIES}})
        await cluster.deployment_ready(objects.NAMESPACE, (await self._deployment()).rpartition("/")[2])
        await self._effective()
        self._clients = await self._start("bench.clients", f"{address}:80", HOST, CLIENTS)
        await asyncio.sleep(SETTLE)

    async def _start(self, module: str, *arguments: object) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", module, *map(str, arguments))
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        self._processes.append(process)
        assert process.stdout is not None
        if module == "bench.tls_only_backend":
            await process.stdout.readline()
        return process

    @property
    def _sni(self) -> str:
        return f"v{self._edition}.bench.example"

    @property
    def _gateway(self) -> str:
        return f"/apis/{objects.API}/namespaces/{objects.NAMESPACE}/gateways/{objects.GATEWAY}"

    async def _deployment(self) -> str:
        path = f"/apis/apps/v1/namespaces/{objects.NAMESPACE}/deployments"
        return f"{path}/{(await self._cluster.api.get(path))['items'][0]['metadata']['name']}"

    async def _programmed(self) -> str:
        """Its address, once it is."""
        for _ in range(600):
            status = (await self._cluster.api.get(self._gateway)).get("status", {})
            if _conditions(status).get("Programmed") == "True":
                address: str = status["addresses"][0]["value"]
                return address
            await asyncio.sleep(0.1)
        raise RuntimeError("the Gateway is not programmed after 60 s")

    async def watch_status(self) -> None:
        """Every status that the Gateway ever has."""
        last = "True"
        while True:
            try:
                status = (await self._cluster.api.get(self._gateway)).get("status", {})
            except Exception:  # the API server is being killed
                await asyncio.sleep(0.2)
                continue
            now = _conditions(status).get("Programmed", "")
            if now != last:
                self._flips.append(
                    f"{last} -> {now} at {time.monotonic() - self._kills[-1][1]:.1f} s after {self._kills[-1][0]}"
                )
                last = now
            await asyncio.sleep(0.1)

    # --- killing -----------------------------------------------------------------------------------------------------

    def kills(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        return [
            ("controller that leads", self._leader),
            ("Envoy", self._envoy),
            ("kube-apiserver", self._apiserver),
            ("all controllers at once", self._controllers),
            ("Envoy, again", self._envoy),
        ]

    async def kill(self, name: str, kill: Callable[[], Awaitable[str]]) -> None:
        self._kills.append((name, time.monotonic()))
        killed = await kill()
        began = time.monotonic()
        await self._effective()
        say(f"killed  {name}{killed}; an edit made after that took {1000 * (time.monotonic() - began):.0f} ms")
        await asyncio.sleep(SETTLE)

    async def _effective(self) -> None:
        """An edit of the policy: the backend must see the new name."""
        self._edition += 1
        for _ in range(600):
            try:
                await self._cluster.api.apply(objects.policy("erp", self._sni))
                break
            except Exception:  # the API server is only just back
                await asyncio.sleep(0.1)
        for _ in range(3000):
            if self._edition == 1 or (await _counts())["sni"] == self._sni:
                return
            await asyncio.sleep(0.01)
        raise RuntimeError("the edit did not reach the backend within 30 s")

    async def _leader(self) -> str:
        """As if its node had died: it is not let up again, or it would simply go on with its own Lease."""
        holder = await self._holder()
        began = time.monotonic()
        while await self._holder() in (holder, ""):
            if first := self._first_process(holder):
                _kill(first)
            if time.monotonic() - began > 2 * TAKE_OVER:
                raise RuntimeError("no replica has taken over")
            await asyncio.sleep(0.05)
        self._took_over = time.monotonic() - began
        return f": another leads after {self._took_over:.1f} s"

    async def _controllers(self) -> str:
        pods = [pod for pod in self._cluster.node.pods.values() if pod.pod["metadata"]["namespace"] == lasthop.NAMESPACE]
        killed = {first for pod in pods if (first := pod.containers[0].first_process)}
        for first in killed:
            _kill(first)
        began = time.monotonic()
        while any(pod.containers[0].first_process in (None, *killed) for pod in pods):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await self._cluster.deployment_ready(lasthop.NAMESPACE, "lasthop-controller")
        return f" ({len(killed)}): ready again after {time.monotonic() - began:.1f} s"

    async def _envoy(self) -> str:
        pod = next(pod for pod in self._cluster.node.pods.values() if pod.pod["metadata"]["namespace"] == objects.NAMESPACE)
        first = pod.containers[0].first_process
        (envoy,) = (pid for pid in _children(first) if "envoy" in Path(f"/proc/{pid}/comm").read_text())
        _kill(envoy)
        await asyncio.sleep(IN_FLIGHT_FOR)
        await self._cluster.deployment_ready(objects.NAMESPACE, (await self._deployment()).rpartition("/")[2])
        return ""

    async def _apiserver(self) -> str:
        before = await self._versions()
        await self._cluster.apiserver.kill()
        await asyncio.sleep(AWAY)
        await self._cluster.apiserver.start()
        await self._cluster.apiserver_ready()
        await asyncio.sleep(TAKE_OVER)
        after = await self._versions()
        rewritten = sum(after[name] != version for name, version in before.items())
        return f": away for {AWAY:.0f} s, {rewritten} of {len(before)} statuses rewritten"

    async def _versions(self) -> dict[str, str]:
        versions: dict[str, str] = {}
        for plural in ("gateways", "httproutes", "backendtlspolicies"):
            listed = await self._cluster.api.get(f"/apis/{objects.API}/{plural}")
            versions |= {
                f"{plural}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in listed["items"]
            }
        return versions

    async def _holder(self) -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{lasthop.NAMESPACE}/leases/lasthop"
        holder: str = (await self._cluster.api.get(path))["spec"].get("holderIdentity") or ""
        return holder

    def _first_process(self, name: str) -> int | None:
        """Of a pod; none while it starts."""
        pod = next(pod for pod in self._cluster.node.pods.values() if pod.pod["metadata"]["name"] == name)
        return pod.containers[0].first_process

    # --- what came of it ---------------------------------------------------------------------------------------------

    async def verdict(self) -> bool:
        output, _ = await self._clients.communicate(b"")
        seen, counts = json.loads(output), await _counts()
        for process in self._processes:
            if process.returncode is None:
                process.kill()
        envoys = [at for name, at in self._kills if name.startswith("Envoy")]
        in_flight = [entry for entry in seen["lost"] if any(-0.1 <= entry[0] - at <= IN_FLIGHT_FOR for at in envoys)]
        failed = [entry for entry in seen["lost"] if entry not in in_flight] + seen["wrong"]
        say("")
        say(f"requests answered with 200        {seen['ok']:,}   (slowest {1000 * seen['slowest']:.0f} ms)")
        say(f"requests lost on a killed Envoy   {len(in_flight)}   (were in flight; {len(envoys)} kills, {CLIENTS} clients)")
        say(f"connections refused and repeated  {len(seen['refused'])}   (until the Service knew that its proxy was gone)")
        say(f"requests that failed otherwise    {len(failed)}   (promised: 0)")
        for at, what in failed[:20]:
            name, since = max((kill for kill in self._kills if kill[1] <= at), key=lambda kill: kill[1], default=("start", at))
            say(f"    {what} at {at - since:.2f} s after {name}")
        by_tls = f"{counts['requests']:,} requests by TLS"
        say(f"plaintext bytes at the backend    {counts['plaintext_bytes']}   (promised: 0; {by_tls})")
        say(f"another replica led after         {self._took_over:.1f} s   (promised: {TAKE_OVER:.0f})")
        say(f"changes of Programmed             {len(self._flips)}   (promised: 0) {'; '.join(self._flips)}")
        return not failed and not counts["plaintext_bytes"] and self._took_over <= TAKE_OVER and not self._flips


async def _counts() -> dict[str, Any]:
    reader, writer = await asyncio.open_connection(NODE_IP, COUNTS)
    report: dict[str, Any] = json.loads(await reader.read())
    writer.close()
    return report


def _conditions(status: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}


def _children(pid: int | None) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    build()
    sys.exit(sandbox.run("bench.failover:scenario", {}))

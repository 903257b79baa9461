"""Tests on a real cluster that observations of proxies reach the status: `python -m conformance observe`.

Two replicas of the controller and two proxies of one Gateway, which report to whichever replica they reach. One of the proxies
then loses the backend: the policy's status names the proxy and its failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from conformance import lasthop
from conformance.api import ApiError, Object
from conformance.checks import eventually, failed, mk_object
from conformance.cluster import Cluster, has_condition
from conformance.network import NODE_IP
from examples.quickstart.certificates import Issued
from lasthop.base.api.meta import Key
from lasthop.engine.memory.codec import Memory
from lasthop.run.infra.kubernetes.verification_memory import config_map, content

NAMESPACE, HOST = "shop", "erp.shop.example"
PORT, COUNTS = 8443, 8444
API = "gateway.networking.k8s.io/v1"
BASE = f"/apis/{API}/namespaces/{NAMESPACE}"
PATIENCE = 75.0
"""Seconds: what was seen is written every 30 s at most, on machines that do much else."""


async def check_observed(cluster: Cluster, arguments: dict[str, Any]) -> int:
    await lasthop.install(cluster, "deployment")
    async with _backend(cluster) as ca:
        await cluster.apply(_objects(ca))
        await eventually(lambda: _programmed(cluster), 60)
        bad = await failed(cluster, (untried, succeeds, recorded, fails_from_one, works_again))
    return 1 if bad else 0


async def untried(cluster: Cluster) -> None:
    """Before traffic, the status reports that nothing has been tried."""
    await eventually(lambda: _says(cluster, "Unknown", "NotTried"), PATIENCE)


async def succeeds(cluster: Cluster) -> None:
    """After traffic through both proxies, the status reports that handshakes succeed."""
    for address in await _proxies(cluster):
        assert await _ask(address) == 200
    await eventually(lambda: _says(cluster, "True", "HandshakesSucceed"), PATIENCE)


async def recorded(cluster: Cluster) -> None:
    """The record stores the verification of the backend for later controllers."""

    async def held() -> bool:
        with contextlib.suppress(ApiError):  # nothing is written yet
            memory = content(await cluster.api.get(config_map(lasthop.NAMESPACE)))
            return isinstance(memory, Memory) and (Key("Service", NAMESPACE, "erp"), 443) in memory.ports
        return False

    await eventually(held, PATIENCE)


async def fails_from_one(cluster: Cluster) -> None:
    """If one proxy of two cannot reach the backend, the status names it, and the other one serves on."""
    (cut_off, pod), (other, _) = (await _proxies(cluster)).items()
    rule = f"ip saddr {cut_off} tcp dport {PORT} reject with tcp reset"
    await _nft("add table ip observed; add chain ip observed input { type filter hook input priority -10; }")
    await _nft(f"add rule ip observed input {rule}")

    async def told() -> bool:
        assert await _ask(other) == 200
        assert await _ask(cut_off) == 503
        return await _says(cluster, "False", "ConnectionFailed", pod)

    await eventually(told, PATIENCE)
    events = (await cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"))["items"]
    assert any(event["reason"] == "BackendFailing" for event in events), [event["reason"] for event in events]


async def works_again(cluster: Cluster) -> None:
    """The status reports when it reaches the backend again."""
    await _nft("delete table ip observed")

    async def told() -> bool:
        for address in await _proxies(cluster):
            await _ask(address)
        return await _says(cluster, "True", "HandshakesSucceed")

    await eventually(told, PATIENCE)


@contextlib.asynccontextmanager
async def _backend(cluster: Cluster) -> AsyncIterator[str]:
    """Runs a TLS backend on the node; yields its CA."""
    ca = Issued("observed CA")
    Issued(HOST, ca).write(cluster.scratch, "backend")
    files = (cluster.scratch / "backend.crt", cluster.scratch / "backend.key")
    command = ("-m", "bench.tls_only_backend", *map(str, files), f"{NODE_IP}:{PORT}", str(COUNTS))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    await process.stdout.readline()
    try:
        yield ca.pem.decode()
    finally:
        process.kill()
        await process.wait()


async def _nft(commands: str) -> None:
    process = await asyncio.create_subprocess_exec("nft", commands)
    assert await process.wait() == 0, f"nft {commands}"


async def _proxies(cluster: Cluster) -> dict[str, str]:
    """Returns the addresses of the proxies, and their names."""
    pods = (await cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"]
    ready = {pod["status"]["podIP"]: pod["metadata"]["name"] for pod in pods if has_condition(pod, "Ready")}
    assert len(ready) == 2, ready
    return ready


async def _ask(address: str) -> int:
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.request("GET", f"http://{address}/", headers={"Host": HOST}, timeout=timeout) as response:
        return response.status


async def _says(cluster: Cluster, status: str, reason: str, text: str = "") -> bool:
    policy = await cluster.api.get(f"{BASE}/backendtlspolicies/erp")
    entries = policy.get("status", {}).get("ancestors", ())
    conditions = [c for entry in entries for c in entry["conditions"] if c["type"] == "BackendConnected"]
    return any((c["status"], c["reason"]) == (status, reason) and text in c["message"] for c in conditions)


async def _programmed(cluster: Cluster) -> bool:
    if not has_condition(await cluster.api.get(f"{BASE}/gateways/web"), "Programmed"):
        return False
    pods = (await cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"]
    return len([pod for pod in pods if has_condition(pod, "Ready")]) == 2


def _objects(ca: str) -> list[Object]:
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    parameters = {"group": "lasthop.dev", "kind": "GatewayProfile", "name": "two"}
    gateway = {
        "gatewayClassName": lasthop.GATEWAY_CLASS,
        "listeners": [listener],
        "infrastructure": {"parametersRef": parameters},
    }
    trust = {"hostname": HOST, "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}
    target = {"group": "", "kind": "Service", "name": "erp"}
    slice = mk_object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        NAMESPACE,
        "erp",
        addressType="IPv4",
        ports=[{"name": "https", "port": PORT, "protocol": "TCP"}],
        endpoints=[{"addresses": [NODE_IP], "conditions": {"ready": True}}],
    )
    slice["metadata"]["labels"] = {"kubernetes.io/service-name": "erp"}
    ports = [{"name": "https", "port": 443, "targetPort": PORT}]
    rules = [{"backendRefs": [{"name": "erp", "port": 443}]}]
    return [
        mk_object("v1", "Namespace", "", NAMESPACE),
        mk_object("lasthop.dev/v1alpha1", "GatewayProfile", NAMESPACE, "two", spec={"proxy": {"replicas": 2}}),
        mk_object(API, "Gateway", NAMESPACE, "web", spec=gateway),
        mk_object("v1", "ConfigMap", NAMESPACE, "ca", data={"ca.crt": ca}),
        mk_object("v1", "Service", NAMESPACE, "erp", spec={"clusterIP": "None", "ports": ports}),
        slice,
        mk_object(API, "HTTPRoute", NAMESPACE, "erp", spec={"parentRefs": [{"name": "web"}], "rules": rules}),
        mk_object(API, "BackendTLSPolicy", NAMESPACE, "erp", spec={"targetRefs": [target], "validation": trust}),
    ]

"""Starts and stops the two controllers under test, each with its Envoy, and measures their CPU and memory."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from bench.control import envoy_gateway, objects
from bench.processes import children, cpu, environment, resident
from conformance import lasthop
from conformance.api import documents
from conformance.children import Server
from conformance.cluster import Cluster

ADMIN = "127.0.0.1:29000"
"""Lasthop's; Envoy Gateway has 19000 to 19002."""
STOP_WITHIN = 20.0


class System:
    """One controller. The fields contain all differences between the two systems; other code treats both alike."""

    def __init__(
        self,
        name: str,
        namespace: str,
        port: int,
        gateway: objects.Object,
        server: Server,
        ready: Callable[[], bool] | None = None,
    ) -> None:
        """`ready` returns whether it serves proxies, if the system reports that."""
        self.name, self.namespace, self.port, self.gateway, self.ready = name, namespace, port, gateway, ready
        self._server = server
        self._proxies: list[int] = []
        self.started = 0.0

    async def start(self) -> None:
        self.started = time.perf_counter()
        await self._server.start()

    async def stop(self) -> None:
        """Stops the controller and its remaining proxies."""
        self.find_proxies()
        await self._server.stop(STOP_WITHIN)
        for pid in self._proxies:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._proxies = []

    @property
    def pid(self) -> int:
        assert self._server.pid is not None
        return self._server.pid

    @property
    def running(self) -> bool:
        return self._server.running

    def find_proxies(self) -> list[int]:
        self._proxies = children(self.pid) or self._proxies
        return self._proxies

    def cpu(self) -> float:
        return cpu(self.pid)

    def memory(self) -> float:
        """MiB."""
        return resident(self.pid)

    def envoy_memory(self) -> float:
        return sum(resident(pid) for pid in self.find_proxies())

    def log_tail(self) -> str:
        return self._server.log_tail()


async def make_lasthop(cluster: Cluster, home: Path, namespace: str, port: int) -> System:
    """`home` has a short path: unix sockets live in it."""
    await cluster.apply([lasthop.gateway_class(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}])
    await cluster.apply(document for document in documents(lasthop.MANIFESTS) if document["kind"] != "Deployment")
    kubeconfig = await cluster.service_account_kubeconfig(lasthop.NAMESPACE, lasthop.CONTROLLER)
    flags = [f"--kubeconfig={kubeconfig}", "--infrastructure=process", "--address=127.0.0.1", f"--admin={ADMIN}"]
    flags += [f"--namespace={lasthop.NAMESPACE}", f"--namespaces={namespace}", "--log-level=warning"]
    command = [str(lasthop.program()), "controller", *flags]
    server = Server("lasthop", command, cluster.logs / "lasthop.log", environment(home))
    gateway = objects.gateway(namespace, objects.GATEWAY, lasthop.GATEWAY_CLASS, port)
    return System("Lasthop", namespace, port, gateway, server, lambda: lasthop_get("/readyz")[0] == 200)


async def make_envoy_gateway(cluster: Cluster, namespace: str, port: int) -> System:
    await cluster.install_crds(envoy_gateway.crds())
    namespaces = (envoy_gateway.NAMESPACE, namespace)
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces)
    await cluster.apply([envoy_gateway.gateway_class(), envoy_gateway.envoy_proxy(namespace)])
    home = cluster.scratch / "envoy-gateway"
    home.mkdir()
    command = envoy_gateway.command(home, envoy_gateway.configure(home, [namespace]))
    variables = {"KUBECONFIG": str(cluster.kubeconfig), "ENVOY_GATEWAY_NAMESPACE": envoy_gateway.NAMESPACE}
    log = cluster.logs / "envoy-gateway.log"
    server = Server("envoy-gateway", command, log, os.environ | variables)
    parameters = {"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": "proxy"}
    infrastructure = {"parametersRef": parameters}
    gateway = objects.gateway(namespace, objects.GATEWAY, "envoy-gateway", port, infrastructure=infrastructure)
    return System(f"Envoy Gateway {envoy_gateway.VERSION}", namespace, port, gateway, server)


def lasthop_get(path: str) -> tuple[int, bytes]:
    """Queries Lasthop's admin API; returns (0, b"") without a response."""
    try:
        with urllib.request.urlopen(f"http://{ADMIN}{path}", timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""

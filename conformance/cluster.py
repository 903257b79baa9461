"""Runs a real etcd, kube-apiserver and kube-controller-manager, the Gateway API's CRDs and one node (node/README.md).

Runs inside the namespaces that conformance.sandbox makes. Its interface: `api` (as administrator), `apply`,
`start` (a program in the cluster's network), `service_account_kubeconfig`, `deployment_ready`, and the servers themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

from conformance import build, certificates, kubeconfig, network, port_forward
from conformance.api import Api, ApiError, Object, documents
from conformance.children import ChildError, Server, check, say
from conformance.network import NODE_IP
from conformance.node.images import Images
from conformance.node.node import Node
from conformance.releases import Release
from conformance.servers import API_SERVER, apiserver, controller_manager, etcd

REPOSITORY = Path(__file__).parent.parent


class Cluster:
    def __init__(
        self,
        folder: Path,
        programs: Mapping[str, Path],
        host_socket: socket.socket,
        release: Release,
        channel: str = "experimental",
        apiserver_flags: Sequence[str] = (),
        node: bool = True,
        shipped: str = "",
        before: str = "",
    ) -> None:
        """Without a node nothing runs Pods, and nothing looks at Services: for benches with thousands of them.

        `shipped`: the file system that Lasthop's pods have, instead of this repository's. `before`: the virtual environment
        of the image `lasthop:before`.
        """
        self.folder, self.programs, self.release, self.channel = folder, programs, release, channel
        self.logs, self.scratch = folder / "logs", folder / "scratch"
        self.authority = certificates.Authority()
        token = secrets.token_urlsafe(32)
        self.api = Api(API_SERVER, self.authority.pem, token)
        # The same administrator from two places: from the host by way of a loopback port, and from inside.
        self.host_socket = host_socket
        host_server = f"https://127.0.0.1:{host_socket.getsockname()[1]}"
        self.kubeconfig_host = kubeconfig.write(folder / "kubeconfig", host_server, self.authority.pem, token)
        self.kubeconfig = kubeconfig.write(folder / "inside.kubeconfig", API_SERVER, self.authority.pem, token)
        self.started: list[Server] = []
        self._token, self._apiserver_flags, self._with_node = token, apiserver_flags, node
        self._shipped, self._before = (Path(path) if path else None for path in (shipped, before))
        self._exits = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Cluster:
        try:
            await self._up()
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    async def _up(self) -> None:
        begin = time.monotonic()
        await check("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(self.scratch))
        await network.setup()
        self.etcd = await self._server(etcd(self.programs["etcd"], self.scratch, self.logs))
        self.apiserver = await self._server(
            apiserver(
                self.programs["kube-apiserver"], self.scratch, self.logs, self.authority, self._token, self._apiserver_flags
            )
        )
        await self._exits.enter_async_context(self.api)
        await self.apiserver_ready()
        self.controller_manager = await self._server(
            controller_manager(
                self.programs["kube-controller-manager"], self.scratch, self.logs, self.kubeconfig, self.authority
            )
        )
        await self.install_crds(build.crds_of(self.release) / self.channel)
        tasks = await self._exits.enter_async_context(asyncio.TaskGroup())
        for work in (port_forward.serve(self.host_socket, NODE_IP, 6443), self._watch_servers()):
            self._exits.callback(tasks.create_task(work).cancel)
        if self._with_node:
            images = Images(self.programs, shipped=self._shipped, before=self._before)
            self.node = Node(self.api, self.scratch / "pods", self.logs / "pods", images)
            await self._exits.enter_async_context(self.node)
        versions = f"Kubernetes {build.KUBERNETES_VERSION}, Gateway API {self.release.version} ({self.channel} channel)"
        say(f"Cluster up in {time.monotonic() - begin:.1f} s: {versions}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Process 1 is about to end and takes everything with it; only what we await ourselves is ended here.
        await self._exits.__aexit__(kind, error, trace)

    async def apiserver_ready(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(ApiError, aiohttp.ClientError, OSError):
                if await self.api.text("/readyz") == "ok":
                    return
            if not self.apiserver.running or time.monotonic() > deadline:
                raise ChildError(f"kube-apiserver is not ready; its log ends:\n{self.apiserver.log_tail()}")
            await asyncio.sleep(0.05)

    async def install_crds(self, folder: Path) -> None:
        """Apply CRDs (and the admission policy that comes with them) and wait until they are served."""
        applied = documents(folder)
        await asyncio.gather(*(self.api.apply(document) for document in applied))
        names = [document["metadata"]["name"] for document in applied if document["kind"] == "CustomResourceDefinition"]
        for name in names:
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
            while not has_condition(await self.api.get(path), "Established"):  # noqa: ASYNC110 - the event is elsewhere
                await asyncio.sleep(0.05)

    async def apply(self, manifests: Iterable[Object]) -> None:
        await self.api.apply_all(manifests)

    async def start(self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Server:
        """Start a program in the cluster's network, outside any pod; its output goes to logs/<name>.log."""
        return await self._server(Server(name, command, self.logs / f"{name}.log", {**os.environ, **(env or {})}))

    async def service_account_token(self, namespace: str, name: str, seconds: int = 24 * 3600) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}}
        answer = await self.api.create(path, request)
        token: str = answer["status"]["token"]
        return token

    async def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig with the rights of a ServiceAccount (for programs in the cluster's network): RBAC is on."""
        token = await self.service_account_token(namespace, name)
        path = self.folder / f"{namespace}.{name}.kubeconfig"
        return kubeconfig.write(path, API_SERVER, self.authority.pem, token, user=name, namespace=namespace)

    async def deployment_ready(self, namespace: str, name: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        while True:
            deployment = await self.api.get(path)
            status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
            current = status.get("observedGeneration") == deployment["metadata"]["generation"]
            if current and status.get("updatedReplicas", 0) == status.get("readyReplicas", 0) == wanted:
                return
            if time.monotonic() > deadline:
                raise ChildError(
                    f"Deployment {namespace}/{name} is not ready within {seconds:.0f} s; see {self.logs / 'pods'}"
                )
            await asyncio.sleep(0.1)

    async def _server(self, server: Server) -> Server:
        await server.start()
        self.started.append(server)
        return server

    async def _watch_servers(self) -> None:
        """Reports once that a program has ended by itself, because later errors would be hard to understand otherwise."""
        reported: set[int] = set()
        while True:
            for server in self.started:
                if not server.running and server.pid is not None and server.pid not in reported and not server.asked_to_end:
                    reported.add(server.pid)
                    say(f"{server.name} has ended by itself; its log ends:\n{server.log_tail(5)}")
            await asyncio.sleep(0.5)


def has_condition(item: Object, kind: str) -> bool:
    conditions: list[dict[str, Any]] = item.get("status", {}).get("conditions") or []
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)

"""Implements the node: registers itself, watches the cluster, and passes each object to the responsible module."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

from conformance import certificates
from conformance.api import STRATEGIC, Api, ApiError, Object
from conformance.children import ChildError, check
from conformance.network import NODE_IP
from conformance.node import logs
from conformance.node.addresses import Addresses
from conformance.node.dns import Dns
from conformance.node.images import Images
from conformance.node.pod import Pod
from conformance.node.services import endpoints_of, ruleset
from conformance.watch import Name, Watched

NAME = "node"
log = logging.getLogger(__name__)


class Node:
    def __init__(self, api: Api, folder: Path, log_folder: Path, images: Images) -> None:
        self.api, self.folder, self.log_folder, self.images = api, folder, log_folder, images
        self.pods: dict[str, Pod] = {}  # by uid
        self._uids: dict[Name, str] = {}
        self._addresses = Addresses()
        self._services_due = asyncio.Event()
        self._watched = {
            "Pod": Watched(api, "/api/v1/pods", self._pod_changed),
            "Service": Watched(api, "/api/v1/services", self._service_changed),
            "EndpointSlice": Watched(api, "/apis/discovery.k8s.io/v1/endpointslices", self._slice_changed),
            "Secret": Watched(api, "/api/v1/secrets", lambda name, _: self._input_changed("Secret", name)),
            "ConfigMap": Watched(api, "/api/v1/configmaps", lambda name, _: self._input_changed("ConfigMap", name)),
        }
        self._exits = contextlib.AsyncExitStack()

    def __repr__(self) -> str:
        return f"<Node {len(self.pods)} pods>"

    async def __aenter__(self) -> Node:
        self.folder.mkdir()
        self.log_folder.mkdir()
        logging.basicConfig(filename=self.log_folder.parent / "node.log", level=logging.INFO, format="%(asctime)s %(message)s")
        authority = certificates.Authority("node")
        certificate, key = authority.server(NODE_IP)
        files = [certificates.write(self.folder / name, content) for name, content in (("crt", certificate), ("key", key))]
        server = await logs.serve(self.log_folder, NODE_IP, *files)
        self._exits.push_async_callback(server.cleanup)
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: Dns(self.lookup), local_addr=(NODE_IP, 53))
        await self._register()
        self._tasks = await self._exits.enter_async_context(asyncio.TaskGroup())
        self._running: set[asyncio.Task[None]] = set()
        self._exits.callback(lambda: [task.cancel() for task in self._running])
        for watched in self._watched.values():
            self._start(watched.run())
        self._start(self._translate())
        await asyncio.gather(*(watched.synced.wait() for watched in self._watched.values()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exits.__aexit__(kind, error, trace)

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        return self._watched[kind].objects.get((namespace, name))

    def lookup(self, service: str, namespace: str) -> list[str] | None:
        """For DNS: the ClusterIP, or the ready pods of a headless Service."""
        document = self.find("Service", namespace, service)
        if document is None:
            return None
        if document["spec"].get("clusterIP") != "None":
            return [address for address in document["spec"].get("clusterIPs") or () if ":" not in address]
        slices = [
            item
            for item in self._watched["EndpointSlice"].objects.values()
            if (item["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == service
            and item["metadata"]["namespace"] == namespace
        ]
        ports = document["spec"].get("ports") or ()
        return sorted({address for port in ports for address, _ in endpoints_of(slices, port)})

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _register(self) -> None:
        await self.api.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME, "labels": {"kubernetes.io/hostname": NAME}}}
        )
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
        capacity = {"cpu": "8", "memory": "16Gi", "pods": "1000"}
        status = {
            "addresses": [{"type": "InternalIP", "address": NODE_IP}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": logs.PORT}},
            "conditions": [ready],
            "capacity": capacity,
            "allocatable": capacity,
        }
        await self.api.patch(f"/api/v1/nodes/{NAME}/status", {"status": status}, STRATEGIC)
        await self.api.patch(f"/api/v1/nodes/{NAME}", {"spec": {"taints": None}})

    def _pod_changed(self, name: Name, pod: Object | None) -> None:
        known = self.pods.get(self._uids.get(name, ""))
        if known is not None and (pod is None or pod["metadata"]["uid"] != known.uid):
            known.update(None)
            del self._uids[name]
        if pod is None:
            return
        if not pod["spec"].get("nodeName"):
            if not pod["spec"].get("schedulingGates") and "deletionTimestamp" not in pod["metadata"]:
                self._start(self._bind(name))
            return
        uid = pod["metadata"]["uid"]
        if uid in self.pods:
            self.pods[uid].update(pod)
        elif pod["spec"]["nodeName"] == NAME and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            self.pods[uid] = Pod(self.api, pod, self.images, self.find, self.folder / uid, self.log_folder)
            self.pods[uid].update(pod)
            self._uids[name] = uid
            self._start(self._run_pod(self.pods[uid]))

    async def _run_pod(self, pod: Pod) -> None:
        try:
            await pod.run()
        except* Exception as group:  # one pod's trouble must not end the node
            log.error("%s", pod, exc_info=group)
        finally:
            self.pods.pop(pod.uid, None)

    async def _bind(self, name: Name) -> None:
        """The scheduler's job, on a cluster with one node."""
        namespace, pod = name
        target = {"apiVersion": "v1", "kind": "Node", "name": NAME}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        for _ in range(20):
            try:
                await self.api.create(f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", body)
                return
            except ApiError as error:
                if error.status in (404, 409):  # gone, or bound already
                    return
            except (aiohttp.ClientError, OSError):
                pass
            await asyncio.sleep(0.3)

    def _input_changed(self, kind: str, name: Name) -> None:
        for pod in self.pods.values():
            if pod.pod["metadata"]["namespace"] == name[0]:
                pod.input_changed(kind, name[1])

    def _slice_changed(self, name: Name, item: Object | None) -> None:
        self._services_due.set()

    def _service_changed(self, name: Name, service: Object | None) -> None:
        self._services_due.set()
        for assigned, address in self._addresses.assign(self._watched["Service"].objects.values()):
            self._start(self._give_address(assigned["metadata"], address))

    async def _give_address(self, service: dict[str, Any], address: str) -> None:
        path = f"/api/v1/namespaces/{service['namespace']}/services/{service['name']}/status"
        for _ in range(20):
            try:
                await self.api.patch(path, {"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}})
                return
            except ApiError as error:
                if error.status == 404:
                    return
            except (aiohttp.ClientError, OSError):
                pass
            await asyncio.sleep(0.3)

    async def _translate(self) -> None:
        current = ""
        while True:
            await self._services_due.wait()
            await asyncio.sleep(0.03)  # changes come in groups
            self._services_due.clear()
            wanted = ruleset(self._watched["Service"].objects.values(), self._watched["EndpointSlice"].objects.values())
            if wanted == current:
                continue
            try:
                await check("nft", "-f", "-", stdin=wanted)
                current = wanted
            except ChildError as error:
                log.error("%s", error)

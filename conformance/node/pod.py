"""Runs one pod: waits for its dependencies, creates network namespace, volumes and containers, and reports status."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path

import aiohttp

from conformance.api import Api, ApiError, Object
from conformance.children import ChildError
from conformance.node.container import Container, Surroundings
from conformance.node.environment import Find, Waiting
from conformance.node.images import Images
from conformance.node.netns import PodNetwork
from conformance.node.payload import references
from conformance.node.status import PodState, now, status
from conformance.node.unsupported import unsupported
from conformance.node.volumes import Volumes

# The suite waits 30 s for a deleted Namespace, and a pod that drains for as long would fail it.
LONGEST_GRACE = 10.0
TOKENS_CHECKED_EVERY = 30.0


class Pod:
    def __init__(self, api: Api, pod: Object, images: Images, find: Find, folder: Path, logs: Path) -> None:
        self.api, self.pod, self.images, self.folder = api, pod, images, folder
        self.uid: str = pod["metadata"]["uid"]
        self.network = PodNetwork()
        self.volumes = Volumes(api, pod, folder / "volumes", find)
        self.references = references(pod)
        self.state = PodState(start_time=now())
        self._due = asyncio.Event()  # a status write
        self._inputs = asyncio.Event()  # a Secret or ConfigMap has changed
        self._ended = asyncio.Event()
        self._gone = False  # the object no longer exists
        around = Surroundings(pod, folder, logs, self.network, self.volumes, find, self._due.set)
        self.problems = unsupported(pod, images)
        known = [] if self.problems else [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
        made = [Container(spec, image, around) for spec in known if (image := images.find(spec["image"]))]
        inits = len(pod["spec"].get("initContainers") or ())
        self.init, self.containers = made[:inits], made[inits:]

    def __repr__(self) -> str:
        return f"<Pod {self.path} {self.network} {self.containers}>"

    @property
    def path(self) -> str:
        metadata = self.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    def update(self, pod: Object | None) -> None:
        """The object has changed or (None) is gone."""
        if pod is None:
            self._gone = True
            self._ended.set()
        else:
            self.pod = self.volumes.pod = pod
            if "deletionTimestamp" in pod["metadata"]:
                self._ended.set()

    def input_changed(self, kind: str, name: str) -> None:
        if (kind, name) in self.references:
            self._inputs.set()

    async def run(self) -> None:
        self.folder.mkdir(parents=True)
        try:
            async with asyncio.TaskGroup() as tasks:
                work = [tasks.create_task(self._write_status()), tasks.create_task(self._live())]
                await self._ended.wait()
                await self._end_containers()
                for task in work:
                    task.cancel()
        finally:
            await self.network.stop()
            shutil.rmtree(self.folder, ignore_errors=True)
        await self._delete()

    async def _live(self) -> None:
        if self.problems:
            self.state.message = "not supported by this node: " + "; ".join(self.problems)
            self._due.set()
            return
        await self._prepare_volumes()
        context = self.pod["spec"].get("securityContext") or {}
        await self.network.start({entry["name"]: entry["value"] for entry in context.get("sysctls") or ()})
        self.state.ip = self.network.ip
        for container in self.init:
            await container.run("OnFailure")
        self.state.initialized = True
        self._due.set()
        async with asyncio.TaskGroup() as tasks:
            for container in self.containers:
                tasks.create_task(container.run(self.pod["spec"].get("restartPolicy", "Always")))
            tasks.create_task(self._refresh_volumes())

    async def _prepare_volumes(self) -> None:
        """Secrets often come after the pods that need them, and so may a ServiceAccount: try until all is there."""
        while True:
            try:
                await self.volumes.prepare(self.network.ip)
                self.state.message = ""
                return
            except (Waiting, ApiError, aiohttp.ClientError, OSError) as problem:
                if self.state.message != str(problem):
                    self.state.message = str(problem)
                    self._due.set()
            await self._inputs_or(0.3)

    async def _refresh_volumes(self) -> None:
        while True:
            await self._inputs_or(TOKENS_CHECKED_EVERY)
            await self.volumes.refresh(self.network.ip)

    async def _inputs_or(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._inputs.wait(), seconds)
        self._inputs.clear()

    async def _end_containers(self) -> None:
        metadata = self.pod["metadata"]
        grace = 0.0 if self._gone else min(float(metadata.get("deletionGracePeriodSeconds") or 0), LONGEST_GRACE)
        await asyncio.gather(*(container.end(grace) for container in (*self.init, *self.containers)))

    async def _write_status(self) -> None:
        """The only writer of this pod's status, and it computes the content itself: two writers can overtake each other, and
        the pod stays unready for ever."""
        sent: Object = self.pod.get("status", {})
        while True:
            await self._due.wait()
            self._due.clear()
            states = [[container.state for container in group] for group in (self.init, self.containers)]
            content = status({**self.pod, "status": sent}, self.state, *states)
            if content == sent:
                continue
            try:
                # Not a strategic merge: that would keep an old address in podIPs. The uid is a precondition.
                await self.api.patch(f"{self.path}/status", {"metadata": {"uid": self.uid}, "status": content})
                sent = content
            except (ApiError, aiohttp.ClientError, OSError) as error:
                if isinstance(error, ApiError) and error.status in (404, 409):
                    continue  # gone, or another pod of that name
                self._due.set()
                await asyncio.sleep(0.3)

    async def _delete(self) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        while not self._gone:
            try:
                await self.api.delete(self.path, body)
                return
            except ApiError as error:
                if error.status in (404, 409):
                    return
            except (aiohttp.ClientError, OSError, ChildError):
                pass
            await asyncio.sleep(0.3)

"""Runs one container: start, probes, restarts, end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.api import Object
from conformance.children import die_with_parent
from conformance.network import NODE_IP
from conformance.node import logs, probes
from conformance.node.environment import Find, Waiting, command, environment
from conformance.node.images import Image
from conformance.node.netns import PodNetwork
from conformance.node.security import NotAllowed, security
from conformance.node.status import ContainerState, now
from conformance.node.volumes import Volumes

LAUNCHER = Path(__file__).parent / "launch.py"
SECONDS_WITHOUT_PROBE = 5.0  # the longest time a container without a readinessProbe may take to listen
LONGEST_BACKOFF = 10.0  # a kubelet goes up to 5 minutes: too long for a test


@dataclass(frozen=True)
class Surroundings:
    """The resources of the pod for its containers."""

    pod: Object
    folder: Path
    logs: Path
    network: PodNetwork
    volumes: Volumes
    find: Find
    changed: Callable[[], None]  # the pod's status is due


class Container:
    def __init__(self, spec: dict[str, Any], image: Image, around: Surroundings) -> None:
        self.spec, self.image, self.around = spec, image, around
        self.state = ContainerState(spec["name"], spec["image"])
        self.process: asyncio.subprocess.Process | None = None
        self.ending = False

    def __repr__(self) -> str:
        return f"<Container {self.spec['name']} {self.state.state} first_process={self.first_process}>"

    @property
    def first_process(self) -> int | None:
        """Its process 1, by the number it has here: the only child of the `unshare` that we started."""
        if self.process is None or self.process.returncode is not None:
            return None
        with contextlib.suppress(OSError, IndexError):
            return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])
        return None

    async def run(self, restart_policy: str) -> int:
        backoff = 1.0
        while True:
            code = await self._run_once()
            if self.ending or restart_policy == "Never" or (restart_policy == "OnFailure" and code == 0):
                return code
            self.state.restarts += 1
            self._set("waiting", reason="CrashLoopBackOff", message=f"ended with {code}; {self.state.message}".rstrip("; "))
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF)

    async def end(self, seconds: float) -> None:
        """SIGTERM to process 1; after the grace period SIGKILL, which takes all processes of the container."""
        self.ending = True
        await self._terminate(seconds)

    async def _terminate(self, seconds: float) -> None:
        process, first = self.process, self.first_process
        if process is None or process.returncode is not None:
            return
        if first is not None and seconds > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), seconds)
        if process.returncode is None:
            process.kill()
            await process.wait()

    async def _run_once(self) -> int:
        launch = await self._launch_spec()
        process, problem = await self._start(launch)
        recording = logs.record(_stdout(process), self._log)
        if problem:
            self._set("waiting", reason="CreateContainerError", message=problem)
            await recording
            return await process.wait()
        self._set("running")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(recording)
            watching = tasks.create_task(self._probe())
            try:
                code = await process.wait()
            finally:
                watching.cancel()
        self.state.exit_code = code
        self._set("terminated")
        return code

    async def _launch_spec(self) -> Path:
        around, pod = self.around, self.around.pod
        while True:
            try:
                rights = security(pod, self.spec, self.image.user)
                env = environment(pod, self.spec, {"PATH": _PATH, **self.image.env}, around.network.ip, around.find)
                break
            except (Waiting, NotAllowed) as problem:
                self._set("waiting", reason="CreateContainerConfigError", message=str(problem))
                await asyncio.sleep(0.2)
        root = around.folder / f"root-{self.spec['name']}"
        root.mkdir(exist_ok=True)
        image_files = [(str(source), target, True) for source, target in self.image.files.items()]
        content = {
            "root": str(root),
            "image": str(self.image.root or ""),
            "hostname": pod["spec"].get("hostname") or pod["metadata"]["name"],
            "etc": _etc(pod, around.network.ip),
            "mounts": image_files + around.volumes.mounts(self.spec),
            "command": command(self.spec, self.image.entrypoint, env),
            "env": env,
            "workingDir": self.spec.get("workingDir") or self.image.working_dir,
            "uid": rights.uid,
            "gid": rights.gid,
            "groups": rights.groups,
            "capabilities": sorted(rights.capabilities),
            "noNewPrivileges": rights.no_new_privileges,
            "readOnlyRootFilesystem": rights.read_only_root,
        }
        path = around.folder / f"{self.spec['name']}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))
        return path

    async def _start(self, launch: Path) -> tuple[asyncio.subprocess.Process, str]:
        """The process, and why it could not become the container (empty if it did)."""
        report, report_end = os.pipe()
        namespaces = ["--mount", "--pid", "--uts", "--fork", "--kill-child=SIGKILL", "--propagation", "private"]
        self.process = process = await asyncio.create_subprocess_exec(
            *("nsenter", f"--net={self.around.network.path}", "--", "unshare", *namespaces, "--"),
            *(sys.executable, "-I", "-S", str(LAUNCHER), str(launch), str(report_end)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=[report_end],
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        os.close(report_end)
        try:
            message = (await asyncio.to_thread(os.read, report, 4096)).decode()
        finally:
            os.close(report)
        return process, "" if message == "ok" else message or "the launcher ended without output; see the container's log"

    async def _probe(self) -> None:
        """Startup first, then readiness and liveness side by side."""
        startup, readiness, liveness = (self.spec.get(f"{kind}Probe") for kind in ("startup", "readiness", "liveness"))
        if startup and not await self._started(startup):
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._readiness(readiness))
            if liveness:
                tasks.create_task(self._liveness(liveness))

    async def _started(self, probe: dict[str, Any]) -> bool:
        tries = 0
        endless = {**probe, "failureThreshold": sys.maxsize}
        async for healthy in probes.verdicts(endless, self.spec, self.around.network.ip, healthy=False):
            tries += 1
            if healthy:
                return True
            if tries >= probe.get("failureThreshold", 3):
                await self._terminate(self._grace)
                return False
        return False

    async def _readiness(self, probe: dict[str, Any] | None) -> None:
        if probe is None:
            # A kubelet calls it ready at once. Waiting until it listens spares tests a race, and a declared containerPort
            # proves nothing: the suite has a pod that declares 3000 and listens on 3333.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECONDS_WITHOUT_PROBE):
                    while not self.around.network.listens():  # noqa: ASYNC110 - the event is in another process
                        await asyncio.sleep(0.05)
            self._ready(True)
            return
        async for healthy in probes.verdicts(probe, self.spec, self.around.network.ip, healthy=False):
            self._ready(healthy)

    async def _liveness(self, probe: dict[str, Any]) -> None:
        async for healthy in probes.verdicts(probe, self.spec, self.around.network.ip, healthy=True):
            if not healthy:
                await self._terminate(self._grace)

    @property
    def _grace(self) -> float:
        return float(self.around.pod["spec"].get("terminationGracePeriodSeconds", 30))

    @property
    def _log(self) -> Path:
        metadata = self.around.pod["metadata"]
        return logs.log_path(self.around.logs, metadata["namespace"], metadata["name"], self.spec["name"])

    def _ready(self, ready: bool) -> None:
        if ready != self.state.ready:
            self.state.ready = ready
            self.around.changed()

    def _set(self, state: str, reason: str = "", message: str = "") -> None:
        now_at = (state, reason, message)
        if (self.state.state, self.state.reason, self.state.message) == now_at:
            return
        self.state.state, self.state.reason, self.state.message = now_at
        self.state.ready = False
        if state == "running":
            self.state.started_at = now()
        self.around.changed()


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _stdout(process: asyncio.subprocess.Process) -> asyncio.StreamReader:
    assert process.stdout is not None
    return process.stdout


def _etc(pod: Object, ip: str) -> dict[str, str]:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    search = f"{namespace}.svc.cluster.local svc.cluster.local cluster.local"
    return {
        "hosts": f"127.0.0.1 localhost\n::1 localhost\n{ip} {name}\n",
        "hostname": f"{name}\n",
        "resolv.conf": f"nameserver {NODE_IP}\nsearch {search}\noptions ndots:5\n",
        "passwd": "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n",
        "group": "root:x:0:\nnonroot:x:65532:\n",
    }

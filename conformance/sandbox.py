"""Starts the cluster from the host: everything is in one set of namespaces (network, mount, process ids) behind one process.

    python -m conformance ──> unshare --net --mount --pid ──> python -m conformance.init   (process 1 of the namespaces)
                                                                ├─ etcd, kube-apiserver, …
                                                                └─ pods

When process 1 ends, for any reason, the kernel kills all the others and removes interfaces, bridges, nft tables and mounts
with their namespaces. Process 1 dies with `unshare`, which dies with this process. So nothing is left behind, not even after
kill -9.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from conformance import preflight
from conformance.build import cache_folder
from conformance.children import die_with_parent, say

GRACE_SECONDS = 15.0
STOPPED = 130  # exit code, as of a shell command ended by Ctrl-C
KEPT_RUNS = 5  # folders with the logs of ended runs


@dataclass(frozen=True)
class Run:
    """A cluster that is up, as seen from the host."""

    folder: Path
    pid: int  # of `unshare`

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def first_process(self) -> int | None:
        with contextlib.suppress(OSError, IndexError):
            return int(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()[0])
        return None

    def stop(self) -> None:
        """Signals process 1 to end, which ends all others; kills it after a while."""
        first = self.first_process
        with contextlib.suppress(ProcessLookupError):
            if first is not None:
                os.kill(first, signal.SIGTERM)
            deadline = time.monotonic() + GRACE_SECONDS
            while _alive(self.pid):
                if time.monotonic() > deadline:
                    os.kill(self.pid, signal.SIGKILL)
                time.sleep(0.05)


def run(target: str, arguments: dict[str, Any]) -> int:
    """Run the coroutine function `module:function`(cluster, arguments) in a new cluster. Its result is the exit code."""
    preflight.check()
    folder = _new_folder()
    # Made in the host's network, used from inside: the only way in, and nothing is added to the host's interfaces.
    with socket.create_server(("127.0.0.1", 0)) as forwarded:
        order = {"target": target, "arguments": arguments, "folder": str(folder), "forwarded": forwarded.fileno()}
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
        command += ["--propagation", "private", sys.executable, "-m", "conformance.init", json.dumps(order)]
        process = subprocess.Popen(
            command,
            pass_fds=[forwarded.fileno()],
            start_new_session=True,  # Ctrl-C reaches only us; we pass it on, once
            preexec_fn=die_with_parent,
        )
    (folder / "pid").write_text(f"{process.pid} {_start_time(process.pid)}")
    try:
        return _wait(process, Run(folder, process.pid))
    finally:
        (folder / "pid").unlink(missing_ok=True)
        say(f"Stopped. Logs: {folder / 'logs'}")


def _wait(process: subprocess.Popen[bytes], run: Run) -> int:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    try:
        return process.wait()
    except KeyboardInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        say("\nStopping …")
        run.stop()
        return STOPPED
    finally:
        process.kill()
        process.wait()


def running() -> list[Run]:
    """Clusters that are up, the newest last."""
    runs = []
    for file in sorted(_runs().glob("*/pid")):
        with contextlib.suppress(OSError, ValueError):
            pid, started = file.read_text().split()
            if _start_time(int(pid)) == started:  # else the number is another process by now
                runs.append(Run(file.parent, int(pid)))
    return runs


def _runs() -> Path:
    return cache_folder() / "runs"


def _new_folder() -> Path:
    alive = {run.folder for run in running()}
    ended = [folder for folder in sorted(_runs().glob("*")) if folder not in alive]
    for folder in ended[: -KEPT_RUNS + 1]:
        shutil.rmtree(folder, ignore_errors=True)
    folder = _runs() / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    (folder / "logs").mkdir(parents=True)
    (folder / "scratch").mkdir()
    return folder


def _start_time(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

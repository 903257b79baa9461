"""Start one Envoy so that it outlives its parent."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lasthop.outputs.envoy.bootstrap import MAX_CONNECTIONS, bootstrap
from lasthop.outputs.envoy.xds_cluster import LocalXds
from lasthop.proxy.find import Envoy
from lasthop.proxy.folder import Folder
from lasthop.proxy.memory import max_heap
from lasthop.proxy.running import Running

DRAIN_SECONDS: Final = 30
"""How long a removed listener or filter chain may finish its connections (Envoy's own default: 600)."""
FILE_SIZE: Final = 64 * 1024 * 1024
"""Bytes of any file that Envoy writes: far more than Lasthop leaves it, and no full disk."""


def command(envoy: Envoy, bootstrap_path: Path, concurrency: int) -> list[str]:
    return [
        str(envoy.path),
        "-c",
        str(bootstrap_path),
        "--concurrency",
        str(concurrency),
        "--disable-hot-restart",
        "--drain-time-s",
        str(DRAIN_SECONDS),
        "--drain-strategy",
        "immediate",
        # Access log lines are wanted now, not after Envoy's 10 s.
        "--file-flush-interval-msec",
        "200",
        "--log-level",
        "warning",
        # Or a line for every second in which no Lasthop runs, with nobody there to keep the file small. What it says of
        # refused configuration reaches Lasthop as a NACK.
        "--component-log-level",
        "config:error",
    ]


def make_bootstrap(gateway: str, folder: Folder, xds_socket: Path) -> bytes:
    return bootstrap(
        node_id=gateway,
        xds=LocalXds(xds_socket),
        admin_socket=folder.admin_socket,
        # A connection takes two descriptors, one to each side; an Envoy that has none left spins.
        max_connections=min(MAX_CONNECTIONS, descriptors() * 2 // 5),
        max_heap=max_heap(),
    )


def start(args: list[str], folder: Folder) -> Running:
    """Raises OSError if the binary cannot be run."""
    with _appending(folder.log) as log:
        process = subprocess.Popen(
            args,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder.path,  # the access log is named by a relative path, the same on every host
            start_new_session=True,  # Ctrl-C in our terminal, and our own death, are not Envoy's
            restore_signals=False,  # see `set_limits`
        )
    pidfd = os.pidfd_open(process.pid)
    # From here on the pidfd is how it is watched and waited for: Popen shall neither wait nor warn.
    process.returncode = 0
    set_limits(process.pid)
    running = Running(process.pid, pidfd, tuple(args[1:]))
    running.until_visible()
    return running


@contextlib.contextmanager
def _appending(path: Path) -> Iterator[int]:
    # O_APPEND, so that the file can be cut short while Envoy writes.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def set_limits(pid: int) -> None:
    """As many descriptors as `descriptors` says, no file beyond `FILE_SIZE`, and no core dumps: Envoy's memory holds private
    keys, and what clients send.

    Envoy writes on while no Lasthop is there to cut its access log. At the limit the kernel refuses its writes, and Envoy
    counts them and goes on, because it inherits from Python that SIGXFSZ is ignored (which `restore_signals` would undo)."""
    limits = ((resource.RLIMIT_NOFILE, descriptors()), (resource.RLIMIT_FSIZE, FILE_SIZE), (resource.RLIMIT_CORE, 0))
    for limit, value in limits:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            resource.prlimit(pid, limit, (value, value))


def descriptors() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1_048_576 if hard == resource.RLIM_INFINITY else hard

"""Starts one Envoy within the limits of its cgroup. On a host Envoy outlives its parent process; in a Pod it dies with it."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from lasthop.edge.proxy.admin import COMPONENT_LEVELS, LOG_LEVEL
from lasthop.edge.proxy.binary import Envoy
from lasthop.edge.proxy.directory import ProxyDirectory
from lasthop.edge.proxy.handle import EnvoyHandle
from lasthop.engine.outputs.envoy.bootstrap import MAX_CONNECTIONS, bootstrap
from lasthop.engine.outputs.envoy.xds_cluster import LocalXds, RemoteXds

DRAIN_SECONDS: Final = 30
"""Seconds in which connections of a removed listener or filter chain can finish (Envoy's default: 600)."""
FILE_SIZE: Final = 64 * 1024 * 1024
"""Limit in bytes for files that Envoy writes. It is above the size at which Lasthop truncates logs, and too small to fill a
disk."""
_PR_SET_PDEATHSIG: Final = 1


def command(envoy: Envoy, bootstrap_path: Path, concurrency: int) -> list[str]:
    return [
        str(envoy.path),
        "-c",
        str(bootstrap_path),
        "--concurrency",
        str(concurrency),
        # docs/measurements.md#replacing-an-envoy
        "--disable-hot-restart",
        "--drain-time-s",
        str(DRAIN_SECONDS),
        "--drain-strategy",
        "immediate",
        # Access log lines are read as requests fail, not after Envoy's 10 s.
        "--file-flush-interval-msec",
        "200",
        "--log-level",
        LOG_LEVEL,
        # Otherwise Envoy logs a line for every second without a controller, while no Lasthop truncates the file. Rejected
        # configuration reaches Lasthop as a NACK anyway.
        "--component-log-level",
        ",".join(f"{name}:{level}" for name, level in COMPONENT_LEVELS.items()),
        # Otherwise Envoy checks every field of every update for unknown and deprecated fields, which takes a third of its time
        # for a route table, and logs each one. It accepts them, except deprecated ones that a release has disabled; tests
        # prove that there are none. Other validation is not affected.
        "--ignore-unknown-dynamic-fields",
    ]


def make_bootstrap(gateway: str, directory: ProxyDirectory, xds: LocalXds | RemoteXds) -> bytes:
    return bootstrap(
        node_id=gateway,
        xds=xds,
        admin_socket=directory.admin_socket,
        # A connection takes two descriptors, one per side. An Envoy without free descriptors spins.
        max_connections=min(MAX_CONNECTIONS, descriptors() * 2 // 5),
        max_heap=max_heap(),
    )


def start(args: list[str], directory: ProxyDirectory) -> EnvoyHandle:
    """Starts an Envoy that logs to a file in its directory and survives Lasthop. Raises OSError if it cannot be run."""
    # O_APPEND, so that the file can be truncated while Envoy writes.
    log = os.open(directory.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        # In a separate session, neither Ctrl-C in our terminal nor our own death reaches Envoy.
        process = subprocess.Popen(
            args,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory.path,  # the access log is named by a relative path, the same on every host
            start_new_session=True,
            restore_signals=False,  # see `set_limits`
        )
    finally:
        os.close(log)
    handle = _handle(process, args)
    handle.until_visible()
    return handle


def start_child(args: list[str], directory: ProxyDirectory) -> EnvoyHandle:
    """Starts an Envoy that dies with this process and logs to its standard error. Raises OSError if the binary cannot be
    run."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    # No other thread runs here, so a function between fork and exec is safe.
    process = subprocess.Popen(
        args,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        cwd=directory.path,
        start_new_session=True,
        preexec_fn=die_with_parent,
        restore_signals=False,
    )
    return _handle(process, args)


def _handle(process: subprocess.Popen[bytes], args: list[str]) -> EnvoyHandle:
    pidfd = os.pidfd_open(process.pid)
    process.returncode = 0  # from here on the pidfd is watched: Popen must neither wait nor warn
    set_limits(process.pid)
    return EnvoyHandle(process.pid, pidfd, tuple(args[1:]))


def set_limits(pid: int) -> None:
    """Limits descriptors and file sizes, and forbids core dumps, because Envoy's memory contains private keys and clients'
    data.

    Envoy keeps writing its access log while no Lasthop runs to truncate it. At the limit the kernel refuses its writes. Envoy
    counts them and continues, because it inherits from Python that SIGXFSZ is ignored (`restore_signals` would undo it).
    """
    limits = ((resource.RLIMIT_NOFILE, descriptors()), (resource.RLIMIT_FSIZE, FILE_SIZE), (resource.RLIMIT_CORE, 0))
    for limit, value in limits:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            resource.prlimit(pid, limit, (value, value))


def descriptors() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1_048_576 if hard == resource.RLIM_INFINITY else hard


_CGROUP: Final = Path("/sys/fs/cgroup")
MIN_HEAP: Final = 64 << 20
"""Minimum heap in bytes. With less memory than it needs when idle, Envoy would refuse every request."""


def cpus() -> int:
    """Returns the number of Envoy's worker threads. One thread for each of a node's 64 CPUs would only compete for a
    container's two."""
    return limited_cpus(_read("cpu.max"), len(os.sched_getaffinity(0)))


def limited_cpus(cpu_max: str, available: int) -> int:
    """Applies `cpu.max`: `max 100000`, or `150000 100000` for one and a half."""
    match cpu_max.split():
        case [quota, period] if quota.isdigit() and period.isdigit() and int(period):
            return max(1, min(available, math.ceil(int(quota) / int(period))))
    return max(1, available)


def max_heap() -> int:
    """Returns the bytes of memory that one Envoy may use."""
    return limited_heap(_read("memory.max"), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def limited_heap(memory_max: str, total: int) -> int:
    """Applies `memory.max`: a number of bytes, or `max`.

    A container reserves a fifth for its parent process, threads and uncounted memory. A machine reserves half for everything
    else that runs on it, including other Gateways' Envoys.
    """
    limit = int(memory_max) if memory_max.strip().isdigit() else total
    heap = limit * 0.8 if limit < total else total * 0.5
    # In whole megabytes, so that a slightly different page count after a kernel update does not change the bootstrap.
    return max(MIN_HEAP, int(heap) >> 20 << 20)


def _read(name: str) -> str:
    try:
        return (_CGROUP / name).read_text()
    except OSError:
        return ""

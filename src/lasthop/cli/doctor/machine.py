"""Checks the requirements on this machine: Envoy, ports, rights, folders, the CA bundle, the clock, limits."""

from __future__ import annotations

import ctypes
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from lasthop.base.api.addresses import with_port
from lasthop.cli.args import paths
from lasthop.cli.doctor.result import CheckResult, broken, ok, warning

DESCRIPTORS: Final = 4096
WATCHES: Final = 8192
INSTANCES: Final = 128
FREE_BYTES: Final = 256 * 1024 * 1024
FULL_BYTES: Final = 1024 * 1024
BUILT: Final = 1_767_225_600
"""The beginning of 2026: an earlier clock is wrong."""
SOCKET_PATH: Final = 107
"""Maximum bytes of the path of a unix socket (unix(7))."""
_STA_UNSYNC: Final = 0x40


def machine(folder: Path | None) -> Iterator[CheckResult]:
    """Yields the results; with a folder, also for its ports and the directories of a gateway on it."""
    yield _envoy()
    yield _ca_bundle()
    yield from _clock()
    yield _inotify()
    yield _descriptors()
    yield from _directories()
    yield _steering()
    if folder is not None:
        yield from _folder(folder)


def _envoy() -> CheckResult:
    from lasthop.edge.proxy.binary import EnvoyNotFound, find_envoy

    try:
        return ok("Envoy", str(find_envoy()))
    except EnvoyNotFound as error:
        return broken("Envoy", error.found, error.remedy)


def _ca_bundle() -> CheckResult:
    from lasthop.run.infra.system_store import CERTIFICATE, OVERRIDE, host_store

    store = host_store()
    if store is None:
        follows = "so policies with wellKnownCACertificates: System fail closed"
        if override := os.environ.get(OVERRIDE):
            remedy = f"Correct {OVERRIDE}, or unset it to use the bundle of the system."
            return warning("CA bundle", f"{OVERRIDE} names {override}, which is no readable PEM bundle, {follows}", remedy)
        remedy = f"Install the package ca-certificates, or set {OVERRIDE} to a PEM bundle."
        return warning("CA bundle", f"there is none, {follows}", remedy)
    count = Path(store.path).read_bytes().count(CERTIFICATE)
    return ok("CA bundle", f"{store.path}, {count} certificates")


def _clock() -> Iterator[CheckResult]:
    """Checks the clock, which decides whether certificates and waivers are valid."""
    if time.time() < BUILT:
        yield broken("clock", f"it says {time.strftime('%Y-%m-%d', time.gmtime())}", "Set it, and keep it right with NTP.")
        return
    buffer = ctypes.create_string_buffer(256)  # struct timex; a first field of 0 reads and sets nothing
    state = ctypes.CDLL(None).adjtimex(buffer)
    status = int.from_bytes(buffer.raw[40:44], "little") if ctypes.sizeof(ctypes.c_long) == 8 else 0
    if state < 0 or not status & _STA_UNSYNC:
        yield ok("clock", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    else:
        remedy = "Run an NTP client (chrony, systemd-timesyncd), unless a hypervisor keeps the clock right."
        yield warning(
            "clock", "the kernel does not report it as synchronised; it decides whether certificates are valid", remedy
        )


def _inotify() -> CheckResult:
    limits = {name: _number(f"/proc/sys/fs/inotify/{name}") for name in ("max_user_watches", "max_user_instances")}
    values = ", ".join(f"{name} {value}" for name, value in limits.items())
    used_up = not _can_watch()
    raised = {"max_user_watches": 65536} if limits["max_user_watches"] < WATCHES else {}
    if used_up or limits["max_user_instances"] < INSTANCES:
        raised["max_user_instances"] = max(INSTANCES, limits["max_user_instances"] * 2)
    if not raised:
        return ok("inotify", values)
    message = f"{values}{', all in use' if used_up else ''}: edits may be noticed only every 10 s"
    return warning("inotify", message, " ".join(["sysctl", *(f"fs.inotify.{name}={value}" for name, value in raised.items())]))


def _can_watch() -> bool:
    """Returns whether this user may have one more inotify instance."""
    descriptor = ctypes.CDLL(None).inotify_init1(os.O_CLOEXEC)
    if descriptor >= 0:
        os.close(descriptor)
    return bool(descriptor >= 0)


def _descriptors() -> CheckResult:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    number = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    if hard == resource.RLIM_INFINITY or hard >= DESCRIPTORS:
        return ok("open files", f"limit {number}")
    remedy = "Raise it: ulimit -Hn, or LimitNOFILE= of the unit."
    return warning("open files", f"limit {number}; a connection takes two", remedy)


def _directories() -> Iterator[CheckResult]:
    yield _directory("run directory", paths.runtime_root(), "LASTHOP_RUN_DIR")
    yield _directory("state directory", paths.state_root(), "LASTHOP_STATE_DIR")
    longest = len(os.fsencode(paths.runtime_root() / "0123456789" / "0123456789ab" / "admin.4194304.sock"))
    if longest > SOCKET_PATH:
        remedy = "Set LASTHOP_RUN_DIR to a shorter path."
        yield broken("run directory", f"{paths.runtime_root()} is too long for unix sockets", remedy)


def _directory(subject: str, place: Path, variable: str) -> CheckResult:
    existing = next(path for path in (place, *place.parents) if os.path.exists(path))
    if not os.access(existing, os.W_OK | os.X_OK) or not existing.is_dir():
        return broken(subject, f"{place} cannot be written", f"Set {variable} to a folder of your own.")
    if place == existing and place.lstat().st_uid not in (0, os.geteuid()):
        owner = paths.user_name(place.lstat().st_uid)
        return broken(subject, f"{place} is {owner}'s", f"Set {variable} to a folder of your own.")
    return _free_space(subject, place, existing, variable)


def _free_space(subject: str, place: Path, existing: Path, variable: str) -> CheckResult:
    disk = os.statvfs(existing)
    free = disk.f_bavail * disk.f_frsize
    if free < FULL_BYTES or (disk.f_files and not disk.f_favail):
        return broken(
            subject, f"the disk of {place} is full", f"Free disk space, or set {variable} to a folder on another disk."
        )
    if free < FREE_BYTES:
        return warning(subject, f"{place}: less than {FREE_BYTES >> 20} MB are free", "Free disk space; logs need it.")
    return ok(subject, str(place))


def _steering() -> CheckResult:
    """Checks whether a new Envoy can take over ports without a reset connection."""
    scope = _number("/proc/sys/kernel/yama/ptrace_scope")
    if scope <= 0 or os.geteuid() == 0 or _number("/proc/sys/net/ipv4/tcp_migrate_req") == 1:
        return ok("changing Envoys", "a new one takes over ports without a reset connection")
    message = f"kernel.yama.ptrace_scope is {scope}: when another Envoy takes over, single connections may be reset"
    return warning("changing Envoys", message, "sysctl net.ipv4.tcp_migrate_req=1")


def _folder(folder: Path) -> Iterator[CheckResult]:
    from lasthop.cli.views.folder import FolderView
    from lasthop.engine.outputs.topology import served_ports
    from lasthop.engine.plan.finding import Severity

    try:
        view = FolderView(folder)
    except click.ClickException as error:
        yield broken(f"folder {folder}", error.message, f"Create it: lasthop init {folder}")
        return
    errors = [finding for finding in view.source_findings if finding.severity is Severity.ERROR]
    if errors:
        yield broken(f"folder {folder}", f"some files are not applied: {errors[0].message}", f"lasthop check {folder}")
    else:
        yield ok(f"folder {folder}", "all files are valid")
    processes = dict(_serving(folder))
    for address, port, transport in sorted(served_ports(view.engine.graph, view.engine.store.keys("Gateway"))):
        yield _port(address, port, transport, processes)


def _port(address: str, port: int, transport: str, processes: dict[int, int]) -> CheckResult:
    """Checks whether a port is free, or held by a gateway on this folder. `processes`: the user of each of its pids."""
    from lasthop.run.infra import ports

    subject = f"port {with_port(address, port)}" + (" (UDP)" if transport == "UDP" else "")
    problem = ports.problem(address, port, transport)
    if not problem:
        return ok(subject, "free")
    if problem.in_use and (users := {processes[pid] for pid in ports.holders(port, transport) if pid in processes}):
        others = [paths.user_name(uid) for uid in users if uid != os.geteuid()]
        return ok(subject, f"served by the gateway of {others[0]}" if others else "served by this gateway")
    return broken(subject, problem.reason, problem.remedy)


def _serving(folder: Path) -> Iterator[tuple[int, int]]:
    """Yields the processes that serve a folder, each with its user: this one; for root, any."""
    from lasthop.cli.args import local

    name = paths.of_folder(paths.runtime_root(), folder).name
    for gateway in (gateway for gateway in local.gateways() if gateway.run_dir.name == name):
        yield from ((pid, gateway.uid) for pid in (*local.envoys(gateway), local.holder(gateway.run_dir)) if pid)


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return -1

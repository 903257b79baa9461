"""Tests whether an address and port of this host can be bound, and explains why not.

Envoy sets SO_REUSEPORT, so two Envoys of one user would silently share a port; a plain bind detects it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lasthop.base.api.addresses import with_port

USED_FOR = "folder"
"""The file of a run directory that contains the path of its folder."""
MAX_PATH = 4096
HeldPort = socket.socket
"""Holds a port until it is closed."""


class BindProblem(NamedTuple):
    reason: str
    remedy: str
    in_use: bool
    """A process has the port."""

    @property
    def message(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


def problem(address: str, port: int, transport: str = "TCP") -> BindProblem | None:
    """Returns why the port cannot be bound; None if it is free."""
    taken = _take(address, port, transport)
    if isinstance(taken, BindProblem):
        return taken
    taken.close()
    return None


def hold(address: str, port: int) -> HeldPort | BindProblem:
    """Returns a socket that holds a TCP port for the Envoys of this user until it is closed, or why it cannot be bound.

    Otherwise two Lasthops that start at the same time would both find the port free, and their Envoys would share it.
    """
    taken = _take(address, port, "TCP")
    if isinstance(taken, socket.socket):
        # While it listens no other process can bind the port. From here on sockets with SO_REUSEPORT can, which Envoy sets and
        # `_take` does not; and this socket only binds, so that it receives no connection.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.shutdown(socket.SHUT_RD)
    return taken


def covers(address: str, other: str) -> bool:
    """Returns whether a socket on `address` also occupies the port on `other`."""
    return address == other or address == ("::" if ":" in other else "0.0.0.0")


def _take(address: str, port: int, transport: str) -> socket.socket | BindProblem:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_DGRAM if transport == "UDP" else socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # like Envoy
        if transport == "TCP":
            # Ignores closed connections in TIME_WAIT. For UDP the same option would let two processes share the port.
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((address, port))
        if transport == "TCP":
            taken.listen(1)
    except OSError as error:
        taken.close()
        return BindProblem(*_explained(address, port, transport, error), error.errno == errno.EADDRINUSE)
    return taken


def _explained(address: str, port: int, transport: str, error: OSError) -> tuple[str, str]:
    """Returns the problem and the remedy."""
    place = f"{with_port(address, port)}{' (UDP)' if transport == 'UDP' else ''}"
    match error.errno:
        case errno.EADDRINUSE:
            holder, remedy = _holder(port, transport)
            return f"{place} is in use by {holder}", f"{remedy}, or give the listener another port"
        case errno.EADDRNOTAVAIL:
            return f"{address} is not an address of this machine", "correct the Gateway's addresses"
        case errno.EACCES:
            remedy = "use port 1024 or higher, or allow it: CAP_NET_BIND_SERVICE, or net.ipv4.ip_unprivileged_port_start"
            return f"{place} needs more privileges", remedy
        case _:
            return f"{place} cannot be bound: {error.strerror}", ""


def _holder(port: int, transport: str) -> tuple[str, str]:
    """Returns the holder of a port, and how to stop it."""
    for pid in holders(port, transport):
        with contextlib.suppress(OSError):
            if folder := _gateway_folder(pid):
                return f"the gateway on {folder}", f"stop it (lasthop stop {shlex.quote(folder)})"
            return f"{Path(f'/proc/{pid}/comm').read_text().strip()} (pid {pid})", "stop it"
    return "another process", "stop it"


def _gateway_folder(pid: int) -> str:
    """Returns the folder of the gateway that runs this Envoy; empty if it is not one. Its Lasthop would replace an Envoy that
    is killed."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    bootstrap = next((Path(os.fsdecode(word)) for word in words if b"/bootstrap-" in word), None)
    if bootstrap is None or len(bootstrap.parents) < 2:
        return ""
    record = bootstrap.parents[1] / USED_FOR
    if not record.is_file() or record.stat().st_size > MAX_PATH:
        return ""
    return os.fsdecode(record.read_bytes())


LISTENING = {"TCP": "0A", "UDP": "07"}
"""The state of listening sockets in the kernel's tables."""


def holders(port: int, transport: str = "TCP") -> Iterator[int]:
    """Yields the processes that listen on a port, as far as /proc shows them."""
    tables = (transport.lower(), f"{transport.lower()}6")
    inodes = {inode for table in tables for inode in _listening(Path("/proc/net") / table, port, LISTENING[transport])}
    for process in Path("/proc").glob("[0-9]*"):
        if not inodes.isdisjoint(_sockets(process)):
            yield int(process.name)


def _sockets(process: Path) -> Iterator[str]:
    """Yields the inodes of a process's sockets. A descriptor that is closed meanwhile does not hide the others."""
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]


def _listening(table: Path, port: int, state: str) -> list[str]:
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []
    return [row[9] for row in rows if row[3] == state and int(row[1].rpartition(":")[2], 16) == port]

"""Try whether an address and port of this host can be had, and say in a sentence why not.

Envoy sets SO_REUSEPORT, so two Envoys of one user would share a port in silence; a plain bind tells the truth.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path


def problem(address: str, port: int) -> str:
    """Empty if the port is free."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            probe.listen(1)
    except OSError as error:
        return _sentence(address, port, error)
    return ""


def in_use(problem: str) -> bool:
    return " is in use by " in problem


def _sentence(address: str, port: int, error: OSError) -> str:
    place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{place} is in use by {_holder(port)}; stop it, or give the listener another port"
        case errno.EADDRNOTAVAIL:
            return f"{address} is not an address of this machine; correct the Gateway's addresses"
        case errno.EACCES:
            return f"{place} needs more rights; run as root or use a port from 1024 on"
        case _:
            return f"{place} cannot be bound: {error.strerror}"


def _holder(port: int) -> str:
    for pid in holders(port):
        with contextlib.suppress(OSError):
            return f"{Path(f'/proc/{pid}/comm').read_text().strip()} (pid {pid})"
    return "another process"


def holders(port: int) -> Iterator[int]:
    """The processes that listen on a port, as far as /proc tells us."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening(Path("/proc/net") / table, port)}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            sockets = (str(fd.readlink()) for fd in (process / "fd").iterdir())
            if any(target.startswith("socket:[") and target[8:-1] in inodes for target in sockets):
                yield int(process.name)


def _listening(table: Path, port: int) -> list[str]:
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []
    listen = "0A"
    return [row[9] for row in rows if row[3] == listen and int(row[1].rpartition(":")[2], 16) == port]

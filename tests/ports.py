"""Ports for servers that the product starts, reserved so that nothing else on the machine takes them in between.

Any process may take a port that the kernel has just assigned and released: a backend that binds port 0, an outgoing
connection, another test run. So these ports lie below the kernel's ephemeral range. A lock file reserves each of them until
the test process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

_LOWEST = 10240
_held: list[int] = []
"""Locked files; they stay open, because closing one would give its port away."""


def _candidates() -> Iterator[int]:
    """Yields each port outside the kernel's own range once, starting anywhere, so that processes seldom meet."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [*range(_LOWEST, low), *range(high + 1, 65536)]
    start = random.SystemRandom().randrange(len(ports))
    yield from (*ports[start:], *ports[:start])


_ports = _candidates()
_turn = threading.Lock()
"""Threads may not share a generator otherwise."""


def free_port() -> int:
    """Reserves a port on which nothing listens, TCP or UDP, until this process ends."""
    with _turn:
        for port in _ports:
            if _locked(port) and _unused(port):
                return port
    raise RuntimeError("every port outside the kernel's own range is taken")


def _locked(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / f"lasthop-test-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    file = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    _held.append(file)
    return True


def _unused(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True

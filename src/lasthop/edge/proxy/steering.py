"""Steers new connections to the Envoy that replaces another one on the same ports.

Envoy sets SO_REUSEPORT, so both listen on each port, and the kernel distributes connections to both. When a socket is closed,
the connections in its queue are reset. Linux moves them to another socket only if net.ipv4.tcp_migrate_req is set. Therefore
a filter on the group of sockets first makes the kernel choose only sockets of the new Envoy. Then the queues of the old Envoy
drain, and closing its sockets resets no connection.

docs/measurements.md#replacing-an-envoy explains why Envoy's hot restart is not used.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from pathlib import Path
from typing import Final

HANDSHAKE_SECONDS: Final = 1.0
"""Seconds for TCP handshakes with the old Envoy that are in progress when new connections are steered away from it."""
_LISTEN: Final = "0A"
_SO_ATTACH_REUSEPORT_CBPF: Final = 51
_SO_DETACH_REUSEPORT_BPF: Final = 68
_SYS_PIDFD_GETFD: Final = 438
_RANDOM: Final = 0xFFFFF000 + 56
"""Classic BPF's ancillary load of a random number (SKF_AD_OFF + SKF_AD_RANDOM)."""

TableAddress = tuple[str, str]
"""Local address and port as in /proc/net/tcp, with the table's name before the address."""


def listening(pid: int) -> dict[TableAddress, tuple[int, ...]]:
    """Returns the descriptors of a process's listening TCP sockets by address, as far as /proc shows them."""
    sockets: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(entry)
                if target.startswith("socket:["):
                    sockets[target[8:-1]] = int(entry.name)
    by_address: dict[TableAddress, tuple[int, ...]] = {}
    for address, inodes in _groups().items():
        if descriptors := tuple(sockets[inode] for inode in inodes if inode in sockets):
            by_address[address] = descriptors
    return by_address


def has_all(new: int, old: int) -> bool:
    """Returns whether a process listens on every port of another one."""
    return listening(new).keys() >= listening(old).keys()


def steer(new: int, old: int, *, to_one: bool = False) -> bool:
    """Sends new connections, on ports that both processes listen on, to all sockets of the new process in turn, or to one.

    Returns whether any port was steered. If the kernel refuses (missing rights, an old kernel), nothing changes.

    While the old process closes its sockets, the target must be one socket. The kernel chooses by position, in the order in
    which the sockets began to listen, so the sockets of the old process come first. The last socket takes the position of each
    closed socket. Only the first socket of the new process keeps its position until the old sockets are gone. Then that
    position no longer exists, and the kernel spreads connections by their hash. If the new process has fewer sockets than the
    old process, the position disappears a moment too soon. A connection may then still go to a socket that is about to close.
    """
    before, after, groups = listening(old), listening(new), _groups()
    steered = False
    for address in before.keys() & after.keys():
        old_count, new_count = len(before[address]), len(after[address])
        if len(groups.get(address, ())) == old_count + new_count:
            steered |= _attach(new, after[address][0], old_count, 1 if to_one else new_count)
    return steered


def release(new: int) -> None:
    """Removes the filters: the kernel spreads connections by their hash again."""
    for descriptors in listening(new).values():
        with contextlib.suppress(OSError), _socket_of(new, descriptors[0]) as listener:
            listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_REUSEPORT_BPF, 0)


def _attach(pid: int, descriptor: int, skipped: int, count: int) -> bool:
    program = b"".join(
        struct.pack("HBBI", code, 0, 0, value)
        for code, value in (
            (0x20, _RANDOM),  # A = a random number
            (0x94, count),  # A %= sockets of the new Envoy
            (0x04, skipped),  # A += sockets of the old one
            (0x16, 0),  # return A
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    try:
        with _socket_of(pid, descriptor) as listener:
            instructions = struct.pack("HP", len(program) // 8, ctypes.addressof(buffer))
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, instructions)
    except OSError:
        return False
    return True


def _socket_of(pid: int, descriptor: int) -> socket.socket:
    """Returns a duplicate of another process's socket."""
    pidfd = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        copy = libc.syscall(_SYS_PIDFD_GETFD, pidfd, descriptor, 0)
    finally:
        os.close(pidfd)
    if copy < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return socket.socket(fileno=copy)


def _groups() -> dict[TableAddress, list[str]]:
    """Returns the inodes of all listening TCP sockets of this network namespace, by address and port."""
    inodes: dict[TableAddress, list[str]] = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for row in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:]):
                if row[3] == _LISTEN:
                    address, _, port = row[1].rpartition(":")
                    inodes.setdefault((f"{table} {address}", port), []).append(row[9])
    return inodes

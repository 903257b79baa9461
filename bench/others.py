"""Measures the CPU share of other processes during a measurement."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from bench.processes import busy


class Others:
    """Counts from when it is made; this process and all that it starts are not counted."""

    def __init__(self) -> None:
        self._began, self._busy, self._ours = time.perf_counter(), busy(), _ours()

    def cores(self) -> float:
        passed = time.perf_counter() - self._began
        return max(0.0, (busy() - self._busy - (_ours() - self._ours)) / passed)


def _ours() -> float:
    """Seconds of CPU of this process and all below it; those that have ended are in the account of their parent."""
    parents, seconds = {}, {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                parents[int(name)] = int(fields[1])
                seconds[int(name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return sum(spent for pid, spent in seconds.items() if _below(pid, parents))


def _below(pid: int, parents: dict[int, int]) -> bool:
    while pid and pid != os.getpid():
        pid = parents.get(pid, 0)
    return pid == os.getpid()

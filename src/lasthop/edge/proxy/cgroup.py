"""Reads how many CPUs and how much memory a container may use, from cgroup v2."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")
MIN_HEAP: Final = 64 << 20
"""With less memory than an idle Envoy needs, it would refuse every request."""


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

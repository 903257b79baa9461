"""How much memory an Envoy may use: of a container's limit, or of the machine's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
MIN_HEAP: Final = 64 << 20
"""Less than an idle Envoy needs would make it refuse everybody."""


def max_heap(of_container: float = 0.8, of_machine: float = 0.5) -> int:
    """The rest of a container is for its parent, for threads and what Envoy does not count; that of a machine is for whatever
    else runs on it, other Gateways' Envoys among it."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        text = LIMIT.read_text()
    except OSError:
        text = ""
    return limited(text, total, of_container, of_machine)


def limited(memory_max: str, total: int, of_container: float = 0.8, of_machine: float = 0.5) -> int:
    """`memory_max` is cgroup v2's: a number of bytes, or `max`."""
    limit = int(memory_max) if memory_max.strip().isdigit() else total
    heap = limit * of_container if limit < total else total * of_machine
    # In whole megabytes, so that a kernel that counts a few pages more after an update is no other bootstrap.
    return max(MIN_HEAP, int(heap) >> 20 << 20)

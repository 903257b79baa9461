"""How many CPUs a container may use: a worker thread for each of a node's 64 would only fight over the two it has."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


def cpus() -> int:
    try:
        text = QUOTA.read_text()
    except OSError:
        text = ""
    return limited(text, len(os.sched_getaffinity(0)))


def limited(cpu_max: str, available: int) -> int:
    """`cpu_max` is cgroup v2's: `max 100000`, or `150000 100000` for one and a half."""
    match cpu_max.split():
        case [quota, period] if quota.isdigit() and period.isdigit() and int(period):
            return max(1, min(available, math.ceil(int(quota) / int(period))))
    return max(1, available)

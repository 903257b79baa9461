"""Records the machine and time of a measurement."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from bench.rows import Run


def run(part: str, others: float) -> Run:
    """Returns the report's description of this run; `others` is in cores."""
    module = getattr(sys.modules["__main__"].__spec__, "name", "bench").removesuffix(".__main__")
    command = shlex.join(["python", "-m", module, *sys.argv[1:]])
    return Run(part, command, time.strftime("%Y-%m-%d %H:%M"), _machine(), _commit(), round(others, 2))


def _machine() -> str:
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    model = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    gib = int(memory[1]) / 2**20 if memory else 0
    return f"{os.cpu_count()} cores ({model[1] if model else platform.machine()}), {gib:.0f} GiB, Linux {platform.release()}"


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"

"""Notifies systemd of the process's state (sd_notify), and queries whether a unit is being stopped or restarted."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ANSWER_SECONDS: Final = 5.0
SYSTEM: Final = "/run/systemd/"
"""The directory of the system manager's socket; user managers have other ones."""
_CGROUP: Final = Path("/proc/self/cgroup")


def notify(*lines: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Sends lines such as `READY=1` to the service manager. Returns False without one, or if it does not listen."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        try:
            manager.settimeout(1)
            # An @ stands for the zero byte at the start of an abstract address.
            manager.sendto("\n".join(lines).encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
        except OSError:
            return False
    return True


def reloading() -> bool:
    """Announces a later READY=1. The protocol requires the time, so that an earlier READY=1 is not mistaken for it."""
    return notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def status(text: str) -> str:
    """Returns the line for `systemctl status`, from which untrusted text cannot break out."""
    return f"STATUS={' '.join(text.split())[:400]}"


def unit(cgroup: str) -> str:
    """Returns the unit of a process with this cgroup (the text of /proc/PID/cgroup); empty: none."""
    matches = (re.search(r"/([^/]+\.service)(?:/[^/]*)?$", line) for line in cgroup.splitlines())
    return next((match[1] for match in matches if match), "")


def job(jobs: str, name: str) -> str:
    """Returns the type of a unit's job in the output of `systemctl list-jobs`; empty: none."""
    rows = (line.split() for line in jobs.splitlines())
    return next((row[2] for row in rows if len(row) >= 3 and row[1] == name), "")


def is_stopped_for_good() -> bool:
    """Returns whether systemd stops this unit without starting it again. SIGTERM alone does not show that; the manager's job
    does. False if that is unknown."""
    socket = os.environ.get("NOTIFY_SOCKET", "")
    try:
        name = unit(_CGROUP.read_text())
        if not name or not socket:
            return False
        manager = [] if socket.startswith(SYSTEM) else ["--user"]
        command = ["systemctl", *manager, "list-jobs", "--no-legend", "--no-pager", "--plain"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return job(ran.stdout, name) == "stop"

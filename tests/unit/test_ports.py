"""The ports that tests reserve."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tests.ports import free_port


def test_reserved_ports_are_never_given_twice_even_to_another_process() -> None:
    ours = {free_port() for _ in range(50)}
    script = "from tests.ports import _locked; import sys; print([p for p in map(int, sys.argv[1:]) if _locked(p)])"
    command = [sys.executable, "-c", script, *map(str, ours)]
    other = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert (len(ours), other.stdout.strip()) == (50, "[]")


def test_the_kernel_never_assigns_a_reserved_port() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        assert low <= somebody.getsockname()[1] <= high
    assert not low <= free_port() <= high

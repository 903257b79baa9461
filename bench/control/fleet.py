"""Measures many proxies of one Gateway on one controller."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.control import objects
from bench.control.edits import Editor
from bench.control.side_by_side import Figures, Say, median_ms

PROXIES = 100
"""With the real one: a Gateway may have so many streams."""
EDITS = 10


def proxies(editor: Editor, socket: Path, figures: Figures, say: Say) -> None:
    """Connects simulated proxies beside the real one, and times policy edits until the last of them has each."""
    say(f"{PROXIES} proxies: connecting")
    system = editor.system
    memory, cpu, began = system.memory(), system.cpu(), time.perf_counter()
    with _fleet(socket, f"{system.namespace}/{objects.GATEWAY}") as fleet:
        assert fleet.stdout is not None
        if fleet.stdout.readline().strip() != "ready":
            raise RuntimeError("the simulated proxies have ended")
        figures.add(f"{PROXIES} proxies: all have everything after", "s", time.perf_counter() - began)
        editor.quiet(1)
        figures.add(f"{PROXIES} proxies: controller CPU to connect them", "s", system.cpu() - cpu)
        figures.add(f"{PROXIES} proxies: controller memory for each", "MiB", (system.memory() - memory) / (PROXIES - 1))
        editor.rest(2)
        times, cpus = [], []
        for count in range(EDITS):
            say(f"{PROXIES} proxies: edit {count + 1} of {EDITS}")
            cpu, began = system.cpu(), time.perf_counter()
            written = editor.write_policy(count)
            received = float(fleet.stdout.readline().split()[1])
            times.append(received - written)
            editor.quiet(0.5)
            cpus.append(system.cpu() - cpu - editor.idle * (time.perf_counter() - began))
    figures.add(f"{PROXIES} proxies: policy edit received by all", "ms", median_ms(times))
    figures.add(f"{PROXIES} proxies: policy edit, controller CPU", "ms", median_ms(cpus))


@contextlib.contextmanager
def _fleet(socket: Path, gateway: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.control.proxies", str(socket), gateway, str(PROXIES - 1)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()

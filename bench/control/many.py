"""Many of something on one controller: proxies of one Gateway, and changes of endpoints a second."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.control import objects
from bench.control.edits import Editor
from bench.control.side_by_side import Figures, Say, median_ms
from bench.control.writer import Writer
from conformance.cluster import Cluster

PROXIES = 100
EDITS = 10
STORM_WRITERS = 12


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
        figures.add(f"{PROXIES} proxies: controller memory for each", "MiB", (system.memory() - memory) / PROXIES)
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
    command = [sys.executable, "-m", "bench.control.proxies", str(socket), gateway, str(PROXIES)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class _Storm(threading.Thread):
    """Changes one endpoint after the other, at most so many a second in all, until it is stopped."""

    def __init__(self, cluster: Cluster, editor: Editor, place: int, rate: float) -> None:
        super().__init__(daemon=True)
        self._writer, self._editor, self._pause = Writer(cluster, editor.system.namespace), editor, STORM_WRITERS / rate
        self._numbers = range(EDITS + place, editor.size, STORM_WRITERS)
        self.stopped = threading.Event()
        self.changes = 0
        self.last = (0, 0)
        """The set that was changed last, and its port."""

    def run(self) -> None:
        due = time.perf_counter()
        while not self.stopped.is_set() and self._numbers:
            number = self._numbers[self.changes % len(self._numbers)]
            port = self._editor.ports[1 - self.changes // len(self._numbers) % 2]
            self._writer.endpoints(number, port)
            self.last = number, port
            self.changes += 1
            due += self._pause
            time.sleep(max(0.0, due - time.perf_counter()))


def storm(cluster: Cluster, editor: Editor, rate: float, seconds: float, figures: Figures, say: Say) -> None:
    """Endpoints of all Services change, as in a rolling restart of everything, while policies are edited."""
    say(f"endpoint storm: {rate:.0f} changes a second, as far as the API server takes them")
    threads = [_Storm(cluster, editor, place, rate) for place in range(STORM_WRITERS)]
    cpu, began = editor.system.cpu(), time.perf_counter()
    for thread in threads:
        thread.start()
    times: list[float] = []
    while time.perf_counter() - began < seconds:
        times.append(editor.policy(len(times) % EDITS))
        time.sleep(0.25)
    for thread in threads:
        thread.stopped.set()
    for thread in threads:
        thread.join()
    ended = time.perf_counter()
    last = dict(thread.last for thread in threads)
    behind = editor.all_show(last, lambda number, answer: answer.port == last[number]) - ended
    changes = sum(thread.changes for thread in threads)
    figures.add("endpoint storm: changes a second", "/s", changes / (ended - began))
    figures.add("endpoint storm: policy edit effective", "ms", median_ms(times))
    figures.add("endpoint storm: behind at its end", "s", behind)
    figures.add("endpoint storm: controller CPU for each", "ms", 1000 * (editor.system.cpu() - cpu) / changes)

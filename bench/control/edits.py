"""Edits objects through the API server, and waits until traffic through the system's Envoy shows each edit."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from bench.control import objects
from bench.control.systems import System
from bench.control.writer import Writer
from bench.probe import PAUSE, Answer, Probe
from conformance.cluster import Cluster

LIMIT = 120.0
"""Seconds that an edit may take: Envoy Gateway needs 30 for a burst."""
START_LIMIT = 240.0
QUIET, QUIET_FOR = 0.1, 3.0
"""A controller is done once it has taken less than this share of a core for so many seconds."""
WRITERS = 8
"""Connections that a burst is written over."""


class Edit(Protocol):
    def __call__(self, number: int) -> float:
        """Edits that set; returns the seconds until it was effective."""


@dataclasses.dataclass
class Seen:
    effective: list[float] = dataclasses.field(default_factory=list)
    cpu: list[float] = dataclasses.field(default_factory=list)
    """Of the controller, above idling."""


class Editor:
    """All edits of one system."""

    def __init__(
        self,
        cluster: Cluster,
        system: System,
        size: int,
        ports: tuple[int, int],
        fitting: Callable[[], str],
        other: str,
        listen: int = 0,
    ) -> None:
        """`ports` are the backend's; `fitting` makes a CA that fits, `other` does not; `listen` is the Gateway's port if not
        the system's."""
        self.system, self.size, self.ports = system, size, ports
        self.writers = [Writer(cluster, system.namespace) for _ in range(WRITERS)]
        self.probe = Probe(listen or system.port)
        self.fitting, self._other = fitting, other
        self._editions: dict[int, int] = {}
        self._port: dict[int, int] = {}
        self._shared: dict[int, str] = {}
        """The ConfigMap of those that do not have one of their own."""
        self._bad: set[int] = set()
        self.idle = 0.0
        """Share of a core that the controller takes with nothing to do."""

    # --- one object -------------------------------------------------------------------------------------------------

    def policy(self, number: int) -> float:
        """The SNI changes."""
        old, new = (objects.sni(number, self._editions.get(number, 0) + more) for more in (0, 1))
        self._until(number, lambda answer: answer.sni == old)
        began = self.write_policy(number)
        return self._until(number, lambda answer: answer.sni == new) - began

    def write_policy(self, number: int) -> float:
        """Changes the SNI, and returns when that began."""
        edition = self._editions[number] = self._editions.get(number, 0) + 1
        return self.writers[0].policy(number, edition, self._shared.get(number, ""))

    def ca(self, number: int) -> float:
        """The CA does not fit any more, or fits again; every request makes a handshake."""
        status, pem = (200, self.fitting()) if number in self._bad else (503, self._other)
        self._until(number, lambda answer: answer.status != status, "/close")
        self._bad ^= {number}
        began = self.writers[0].ca(objects.set_name(number), pem)
        return self._until(number, lambda answer: answer.status == status, "/close") - began

    def endpoint(self, number: int) -> float:
        port = self.ports[0] if self._port.get(number) == self.ports[1] else self.ports[1]
        self._port[number] = port
        self._until(number, lambda answer: answer.status == 200 and answer.port != port)
        began = self.writers[0].endpoints(number, port)
        return self._until(number, lambda answer: answer.port == port) - began

    def timed(self, edit: Edit, number: int, seen: Seen) -> None:
        """Makes the edit, and waits until the controller has done all that follows from it."""
        cpu, began = self.system.cpu(), time.perf_counter()
        seen.effective.append(edit(number))
        self.quiet(0.5)
        seen.cpu.append(self.system.cpu() - cpu - self.idle * (time.perf_counter() - began))

    # --- many objects -----------------------------------------------------------------------------------------------

    def burst(self, count: int) -> tuple[float, float]:
        """Edits the policies of so many sets at once; returns the seconds until all were written, and effective."""
        numbers = list(range(count))
        for number in numbers:
            self._editions[number] = self._editions.get(number, 0) + 1
        began = time.perf_counter()

        def write(writer: Writer, share: Iterable[int]) -> None:
            for number in share:
                writer.policy(number, self._editions[number], self._shared.get(number, ""))

        with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
            shares = [numbers[start::WRITERS] for start in range(WRITERS)]
            writing = [pool.submit(write, writer, share) for writer, share in zip(self.writers, shares, strict=True)]
            for future in writing:
                future.result()
            written = time.perf_counter() - began
        return written, self.all_show(numbers, lambda n, answer: answer.sni == objects.sni(n, self._editions[n])) - began

    def share_ca(self, numbers: range, name: str) -> None:
        """Makes the policies of these sets name one ConfigMap, and waits until the controller is done with it."""
        with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:

            def write(start: int) -> None:
                for number in numbers[start::WRITERS]:
                    self.writers[start].policy(number, self._editions.get(number, 0), name)
                    self._shared[number] = name

            list(pool.map(write, range(WRITERS)))
        self.quiet()

    def shared_ca(self, numbers: range, name: str) -> float:
        """Edits the ConfigMap that these sets share: it does not fit, then fits. Returns the seconds that the latter took
        to show. It requests one host after the other, because the proxy retries failures, which takes time."""
        self.writers[0].ca(name, self._other)
        self._until(numbers[-1], lambda answer: answer.status == 503, "/close")
        self.quiet()
        began = self.writers[0].ca(name, self.fitting())
        for number in numbers:
            self._until(number, lambda answer: answer.status == 200, "/close")
        return time.perf_counter() - began

    def all_show(self, numbers: Iterable[int], shown: Callable[[int, Answer], bool], path: str = "/") -> float:
        """Returns when the last of these hosts has shown it."""
        end, waiting = time.perf_counter() + LIMIT, list(numbers)
        while True:
            waiting = [number for number in waiting if not shown(number, self.probe.ask(objects.host(number), path))]
            now = time.perf_counter()
            if not waiting:
                return now
            if now > end:
                raise RuntimeError(f"{self.system.name}: {len(waiting)} hosts do not show the edit after {LIMIT:.0f} s")
            time.sleep(PAUSE)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def serves(self, numbers: Iterable[int]) -> float:
        """Waits until each of these hosts is served with the TLS of its policy; returns the time."""
        for number in numbers:
            wanted = objects.sni(number, self._editions.get(number, 0))
            while not self._served(number, wanted):
                if time.perf_counter() - self.system.started > START_LIMIT or not self.system.running:
                    raise RuntimeError(f"{self.system.name} does not serve {objects.host(number)}:\n{self.system.log_tail()}")
                time.sleep(0.02)
        return time.perf_counter()

    def _served(self, number: int, wanted: str) -> bool:
        try:
            return self.probe.ask(objects.host(number)).sni == wanted
        except OSError:
            return False

    def quiet(self, window: float = QUIET_FOR, limit: float = 240.0) -> None:
        """Waits until the controller has had nothing to do for a while."""
        end = time.perf_counter() + limit
        while time.perf_counter() < end:
            before = self.system.cpu()
            time.sleep(window)
            if self.system.cpu() - before < QUIET * window:
                return

    def rest(self, seconds: float) -> None:
        before = self.system.cpu()
        time.sleep(seconds)
        self.idle = (self.system.cpu() - before) / seconds

    def _until(self, number: int, shown: Callable[[Answer], bool], path: str = "/") -> float:
        return self.probe.until(objects.host(number), shown, path, LIMIT).at

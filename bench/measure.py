"""Runs all measurements at one size. Times are seconds here; the output is in milliseconds."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.folder import Folder, PolicySet, own_ca
from bench.probe import Answer, Probe
from bench.processes import Gateway, backend, busy, cpu, free_port, main_thread_cpu, resident
from bench.sampler import Sampler
from bench.xds_bytes import sent
from examples.quickstart.certificates import Issued

READY_WITHIN = 180.0
VERIFIED = 200
"""Number of hosts requested once after a start."""
SAMPLED = 24
"""Hosts watched while the CA of all is rotated."""
IDLE = 12.0
"""Seconds; a look at the whole folder, every 10 s, is in it."""
Step = Callable[[int], float]
"""Edits the set of that number; returns how long until traffic showed it."""


@dataclasses.dataclass
class Cost:
    """Of one edit, on average."""

    lasthop_cpu: float
    """Seconds, above idling."""
    envoy_cpu: float
    """The same, of Envoy's main thread."""
    sent: float
    """xDS bytes."""


@dataclasses.dataclass
class Start:
    ready: float
    first_200: float


@dataclasses.dataclass
class Rotation:
    """One CA of nearly all policies is changed once."""

    sampled: float
    """Until the last of the sampled hosts was served under it."""
    confirmed: float
    """Until Envoy had confirmed everything."""
    urgent: list[float]
    """Edits of other policies meanwhile: until effective."""


@dataclasses.dataclass
class Result:
    size: int
    load: float
    """Of the machine, before: 1-minute average."""
    others: float
    """Cores that other processes took while edits were measured."""
    cold: Start
    restart: Start
    round_trip: float
    """Of the probe, without any edit: the resolution."""
    idle_cpu: float
    """Lasthop's share of a core."""
    lasthop_mib: float
    envoy_mib: float
    effective: dict[str, list[float]]
    """By kind of edit."""
    costs: dict[str, Cost]
    """By kind of edit; those that undo each other are one."""
    rotations: list[Rotation]
    failed: dict[str, int]
    """Requests that failed during edits that should disturb none, by edit and status."""
    failures: list[str]
    """Lines of Lasthop's access log about some of them."""


Batch = tuple[dict[str, list[float]], Cost]


def measure(size: int, edits: int, home: Path, say: Callable[[str], None]) -> Result:
    load = os.getloadavg()[0]
    ca, other_ca = Issued("bench CA"), Issued("another CA")
    Issued("*.bench.example", ca).write(home, "backend")
    with backend(home / "backend.crt", home / "backend.key") as (backend_pid, ports):
        listen = free_port()
        folder = Folder(home / "folder", size, listen, ports[0], ca.pem.decode())
        gateway = Gateway(folder.path, home)
        try:
            say("cold start")
            cold = start(gateway, folder, listen)
            bench = Bench(folder, gateway, listen, ports, ca.pem.decode(), other_ca.pem.decode())
            memory = resident(gateway.pid), resident(gateway.envoy)
            say("idle")
            round_trip, idle_cpu = bench.round_trip(), bench.idle()
            effective: dict[str, list[float]] = {}
            costs: dict[str, Cost] = {}
            ours = (os.getpid(), gateway.pid, gateway.envoy, backend_pid)
            began, before = time.perf_counter(), busy() - sum(map(cpu, ours))
            for names, steps, disturbs in bench.kinds():
                say(", ".join(names))
                seen, costs[", ".join(names)] = bench.batch(names, steps, edits, disturbs)
                effective |= seen
            others = (busy() - sum(map(cpu, ours)) - before) / (time.perf_counter() - began)
            say("rotation of the shared CA")
            rotations = list(bench.rotations())
        finally:
            gateway.stop()
        say("restart")
        gateway = Gateway(folder.path, home)
        try:
            restart = start(gateway, folder, listen)
        finally:
            gateway.stop()
    return Result(
        size=size,
        load=load,
        others=others,
        cold=cold,
        restart=restart,
        round_trip=round_trip,
        idle_cpu=idle_cpu,
        lasthop_mib=memory[0],
        envoy_mib=memory[1],
        effective=effective,
        costs=costs,
        rotations=rotations,
        failed=dict(bench.failed),
        failures=bench.failures,
    )


def start(gateway: Gateway, folder: Folder, listen: int) -> Start:
    """Waits until it is ready and serves, then requests every host, or many of them, once."""
    probe, ready, first_200 = Probe(listen), 0.0, 0.0
    first = folder.sets[folder.targets[0]]
    while not (ready and first_200):
        if time.perf_counter() - gateway.started > READY_WITHIN:
            raise RuntimeError(f"not ready after {READY_WITHIN:.0f} s:\n{gateway.log_tail()}")
        ready = ready or (time.perf_counter() - gateway.started if gateway.ready else 0.0)
        with contextlib.suppress(OSError):
            answer = probe.ask(first.host, first.path)
            first_200 = first_200 or (answer.at - gateway.started if answer.status == 200 else 0.0)
        time.sleep(0.01)
    for policy_set in folder.sets[:: max(1, len(folder.sets) // VERIFIED)]:
        answer = probe.ask(policy_set.host, policy_set.path)
        if answer.sni != policy_set.sni:
            raise RuntimeError(f"ready, but {policy_set.host} answers {answer}")
    probe.close()
    return Start(ready, first_200)


class Bench:
    def __init__(self, folder: Folder, gateway: Gateway, listen: int, ports: tuple[int, int], ca: str, other_ca: str) -> None:
        self._folder, self._gateway, self._ports = folder, gateway, ports
        self._listen, self._ca, self._other_ca = listen, ca, other_ca
        self._probe = Probe(listen)
        self._idle_rates = (0.0, 0.0)
        self.failed: Counter[str] = Counter()
        self.failures: list[str] = []

    def round_trip(self) -> float:
        target = self._folder.sets[self._folder.targets[0]]
        times = []
        for _ in range(500):
            requested = time.perf_counter()
            times.append(self._probe.ask(target.host, target.path).at - requested)
        return sorted(times)[len(times) // 2]

    def idle(self) -> float:
        """Lasthop's CPU with nothing to do; the first seconds, before it looks at everything, are the edits' baseline."""
        time.sleep(1)
        began, (lasthop, envoy) = time.perf_counter(), self._cpu()
        time.sleep(IDLE / 4)
        passed, now = time.perf_counter() - began, self._cpu()
        self._idle_rates = (now[0] - lasthop) / passed, (now[1] - envoy) / passed
        time.sleep(IDLE * 3 / 4)
        return (self._cpu()[0] - lasthop) / (time.perf_counter() - began)

    def _cpu(self) -> tuple[float, float]:
        return cpu(self._gateway.pid), main_thread_cpu(self._gateway.envoy)

    # --- edits -------------------------------------------------------------------------------------------------------

    def kinds(self) -> Iterator[tuple[tuple[str, ...], tuple[Step, ...], bool]]:
        """Names, steps, and whether requests are meant to fail in between."""
        yield ("policy hostname",), (self._hostname,), False
        yield ("policy hostname, file written in place",), (self._hostname_in_place,), False
        yield ("CA does not fit: 503", "CA fits again: 200"), (self._ca_replaced, self._ca_back), True
        yield ("endpoint moved",), (self._endpoint,), False
        yield ("policy invalid: 500", "policy valid again: 200"), (self._invalid, self._valid), True
        yield ("route path",), (self._route,), True

    def batch(self, names: tuple[str, ...], steps: tuple[Step, ...], edits: int, disturbs: bool) -> Batch:
        """Runs each step so many times, in turn."""
        bytes_before, before = sum(sent(self._gateway.get, len(self._folder.sets)).values()), self._probe.seen.copy()
        time.sleep(0.5)
        effective: dict[str, list[float]] = {name: [] for name in names}
        began, (lasthop, envoy) = time.perf_counter(), self._cpu()
        for count in range(edits):
            number = self._folder.targets[count % len(self._folder.targets)]
            for name, step in zip(names, steps, strict=True):
                effective[name].append(step(number))
                # Wait for the work after an edit (acknowledgements, clean-up, the saved state), out of step with timers.
                time.sleep(random.uniform(0.1, 0.15))
        passed, now = time.perf_counter() - began, self._cpu()
        if not disturbs:
            self._count_failed(names[0], self._probe.seen - before)
        done = edits * len(names)
        lasthop_cpu = (now[0] - lasthop - passed * self._idle_rates[0]) / done
        envoy_cpu = (now[1] - envoy - passed * self._idle_rates[1]) / done
        bytes_each = (sum(sent(self._gateway.get, len(self._folder.sets)).values()) - bytes_before) / done
        return effective, Cost(lasthop_cpu, envoy_cpu, bytes_each)

    def _count_failed(self, what: str, seen: Counter[int]) -> None:
        failed = {f"{what}: {status}": count for status, count in seen.items() if status != 200}
        self.failed.update(failed)
        if failed:
            time.sleep(0.5)  # the access log is written a moment later
            self.failures += [line for line in self._gateway.failures() if line not in self.failures]

    def _until(self, target: PolicySet, shown: Callable[[Answer], bool]) -> Answer:
        return self._probe.until(target.host, shown, target.path)

    def _hostname(self, number: int, *, in_place: bool = False) -> float:
        old = self._folder.sets[number]
        new = dataclasses.replace(old, edition=old.edition + 1)
        self._until(old, lambda answer: answer.sni == old.sni)
        began = self._folder.edit(new, in_place=in_place)
        return self._until(new, lambda answer: answer.sni == new.sni).at - began

    def _hostname_in_place(self, number: int) -> float:
        return self._hostname(number, in_place=True)

    def _ca_replaced(self, number: int) -> float:
        return self._ca_edit(number, self._other_ca, 503)

    def _ca_back(self, number: int) -> float:
        return self._ca_edit(number, self._ca, 200)

    def _ca_edit(self, number: int, pem: str, status: int) -> float:
        target = self._folder.sets[number]
        self._until(target, lambda answer: answer.status != status)
        began = self._folder.edit_ca(number, pem)
        return self._until(target, lambda answer: answer.status == status).at - began

    def _endpoint(self, number: int) -> float:
        old = self._folder.sets[number]
        new = dataclasses.replace(old, port=self._ports[0] if old.port == self._ports[1] else self._ports[1])
        self._until(old, lambda answer: answer.port == old.port)
        began = self._folder.edit(new)
        return self._until(new, lambda answer: answer.port == new.port).at - began

    def _invalid(self, number: int) -> float:
        return self._policy_ca(number, "nowhere", 500)

    def _valid(self, number: int) -> float:
        return self._policy_ca(number, own_ca(number), 200)

    def _policy_ca(self, number: int, ca: str, status: int) -> float:
        new = dataclasses.replace(self._folder.sets[number], ca=ca)
        self._until(new, lambda answer: answer.status != status)
        began = self._folder.edit(new)
        return self._until(new, lambda answer: answer.status == status).at - began

    def _route(self, number: int) -> float:
        """A path prefix ends at a `/`, so `/ax` is not served by the route of `/a`."""
        old = self._folder.sets[number]
        new = dataclasses.replace(old, path=f"{old.path}x")
        self._until(new, lambda answer: answer.status == 404)
        began = self._folder.edit(new)
        return self._until(new, lambda answer: answer.status == 200).at - began

    # --- rotation ----------------------------------------------------------------------------------------------------

    def rotations(self) -> Iterator[Rotation]:
        began = time.perf_counter()
        for count in range(4):
            if count >= 2 and time.perf_counter() - began > 20:
                return
            yield self._rotate(self._ca if count % 2 else self._ca + self._other_ca)
            time.sleep(1)

    def _rotate(self, pem: str) -> Rotation:
        shared = [policy_set for policy_set in self._folder.sets if policy_set.number not in self._folder.targets]
        sample = shared[:: max(1, len(shared) // SAMPLED)]
        sampler = Sampler(Probe(self._listen), [policy_set.host for policy_set in sample])
        before = self._probe.seen.copy()
        began = self._folder.edit_shared_ca(pem)
        sampler.start()
        urgent: list[float] = []
        time.sleep(0.02)
        while sampler.is_alive() or not urgent:
            urgent.append(self._hostname(self._folder.targets[len(urgent) % len(self._folder.targets)]))
            time.sleep(random.uniform(0.1, 0.15))
        sampler.join()
        while not self._gateway.ready:
            time.sleep(0.01)
        confirmed = time.perf_counter() - began
        if sampler.error is not None:
            raise sampler.error
        self._count_failed("rotation, sampled hosts", sampler.seen)
        self._count_failed("rotation, edited hosts", self._probe.seen - before)
        return Rotation(sampler.last - began, confirmed, urgent)

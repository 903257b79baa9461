"""Measures how a flood of failing requests affects other requests: `python -m bench.failing`.

One gateway has a good backend and a failing one: nothing listens on its port, or (`--kind wrong-name`) a separate process
presents a certificate for another name, so each request costs a handshake. The bench measures good traffic alone, then for a
minute each beside 2,000 failing requests a second and, as the control, beside as many successful ones, in alternating rounds,
and alone again. With `--control direct` Envoy answers the control's requests itself, with `backend` another good backend does.
The client takes CPU from Envoy in both arms alike, so the ratio of the two p99s is the cost of failures. Promised: the ratio
is 1, memory of both processes stops growing, and the status of the failing policy changes only a few times for any number of
failing requests.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import click

from bench.folder import PolicySet, save
from bench.observe import gateway, load
from bench.processes import Gateway, backend, cpu, free_port, resident
from examples.quickstart.certificates import Issued

RATE = 2000
GOOD = 20.0
"""Good requests a second, on a connection of their own: few, so that what is measured is the gateway and not this client."""
LONGEST = 120.0
"""Seconds of failing traffic, at most."""
CHANGES = 5
"""Of the status of one object, at most: it settles."""
ROUND = 5.0
"""Seconds of one arm before the other's turn."""
SETTLING = 0.5
"""Seconds at the beginning of a round that do not count: connections are made, and the other arm's are closed."""
RESAMPLED = 2000
DIRECT = """\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: direct, namespace: bench}
spec:
  parentRefs: [{name: web}]
  hostnames: [direct.example]
  rules:
  - filters: [{type: RequestRedirect, requestRedirect: {statusCode: 302, hostname: elsewhere.example}}]
"""
GROWTH = 64.0
"""MiB that Lasthop, or Envoy, may grow by during the second half of the minute."""


class Good(threading.Thread):
    """Requests the good host at a fixed rate, and records the duration of each response."""

    def __init__(self, port: int, host: str) -> None:
        super().__init__(daemon=True)
        self._port, self._request = port, f"GET /x HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        self._stopped = threading.Event()
        self.took: list[float] = []
        self.began: list[float] = []
        self.wrong = 0

    def run(self) -> None:
        asyncio.run(self._ask())

    async def _ask(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        while not self._stopped.is_set():
            began = time.perf_counter()
            writer.write(self._request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(length)
            took = time.perf_counter() - began
            self.took.append(took)
            self.began.append(began)
            self.wrong += head[9:12] != b"200"
            await asyncio.sleep(max(0.0, 1 / GOOD - took))
        writer.close()

    def stop(self) -> Good:
        self._stopped.set()
        self.join()
        return self

    def within(self, times: list[tuple[float, float]]) -> list[float]:
        """Returns how long the answers took of requests that were made in these times."""
        return [took for began, took in zip(self.began, self.took, strict=True) if any(a <= began < b for a, b in times)]


def quantile(took: list[float], share: float) -> float:
    """Milliseconds."""
    return sorted(took)[min(len(took) - 1, int(share * len(took)))] * 1e3


def p99_ratio(one: list[float], other: list[float]) -> tuple[float, float, float]:
    """Returns the ratio of the p99s, and the ends of its 95 % confidence interval (bootstrap)."""
    chance = random.Random(0)
    drawn = sorted(
        quantile(chance.choices(one, k=len(one)), 0.99) / quantile(chance.choices(other, k=len(other)), 0.99)
        for _ in range(RESAMPLED)
    )
    ratio = quantile(one, 0.99) / quantile(other, 0.99)
    return ratio, drawn[int(0.025 * RESAMPLED)], drawn[int(0.975 * RESAMPLED)]


class Watch(threading.Thread):
    """Looks twice a second at the status of an object, and at the memory of both processes."""

    def __init__(self, running: Gateway, name: str) -> None:
        super().__init__(daemon=True)
        self._running, self._name, self._stopped = running, name, threading.Event()
        self.statuses: list[str] = []
        """Each that differs from the one before it."""
        self.memory: list[tuple[float, float]] = []

    def run(self) -> None:
        while not self._stopped.wait(0.5):
            self.memory.append((resident(self._running.pid), resident(self._running.envoy)))
            objects = json.loads(self._running.get("/api/objects?kind=BackendTLSPolicy")[1])
            status = next(json.dumps(d.get("status")) for d in objects if d["metadata"]["name"] == self._name)
            if not self.statuses or self.statuses[-1] != status:
                self.statuses.append(status)

    def stop(self) -> Watch:
        self._stopped.set()
        self.join()
        return self

    @property
    def changes(self) -> int:
        return len(self.statuses) - 1

    @property
    def growth(self) -> tuple[float, float]:
        """MiB by which each process grew during the second half."""
        half, last = self.memory[len(self.memory) // 2], self.memory[-1]
        return last[0] - half[0], last[1] - half[1]


def flood(port: int, host: str, seconds: float) -> int:
    """Sends requests from a separate process, and returns the number of responses."""
    command = [sys.executable, "-m", "bench.failing", "--flood", f"{port} {host} {seconds}"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


class Arm:
    """One kind of requests that good traffic is measured beside."""

    def __init__(self, name: str, host: str) -> None:
        self.name, self.host = name, host
        self.answered, self.seconds = 0, 0.0
        self.times: list[tuple[float, float]] = []
        """When it had its turns."""

    def turn(self, port: int, seconds: float) -> None:
        began = time.perf_counter()
        self.answered += flood(port, self.host, seconds)
        ended = time.perf_counter()
        self.times.append((ended - seconds + SETTLING, ended))  # the process takes some time to start
        self.seconds += min(seconds, ended - began)

    @property
    def rate(self) -> float:
        return self.answered / self.seconds


def good(port: int, host: str, seconds: float) -> Good:
    asking = Good(port, host)
    asking.start()
    time.sleep(seconds)
    return asking.stop()


def measure(home: Path, port: int, bad_port: int, pem: str, seconds: float, control: str) -> bool:
    """`bad_port`: where the failing backend is."""
    with gateway(home / "a", port, pem) as (running, folder, listen):
        right, wrong, other = folder.sets[0], folder.sets[1], folder.sets[2]
        save(folder.file(1), _other_name(wrong, bad_port).text())
        save(folder.path / "direct.yaml", DIRECT)
        time.sleep(3)
        good(listen, right.host, 3)
        before = good(listen, right.host, seconds)
        start = resident(running.pid), resident(running.envoy)
        watch, asking = Watch(running, wrong.name), Good(listen, right.host)
        failing = Arm("beside failing", wrong.host)
        successful = Arm("beside control", other.host if control == "backend" else "direct.example")
        used = cpu(running.pid), cpu(running.envoy)
        watch.start()
        asking.start()
        began = time.monotonic()
        for number in range(max(1, round(seconds / ROUND))):
            for arm in (failing, successful) if number % 2 else (successful, failing):
                arm.turn(listen, min(ROUND, seconds))
        took = time.monotonic() - began
        beside, watch = asking.stop(), watch.stop()
        used = cpu(running.pid) - used[0], cpu(running.envoy) - used[1]
        after = good(listen, right.host, seconds / 2)
        end = resident(running.pid), resident(running.envoy)
    for arm in (failing, successful):
        click.echo(f"{arm.name}: {arm.answered:,} requests, {arm.rate:,.0f} a second (wanted: {RATE:,})")
    click.echo("good traffic              p50       p99       max   requests")
    arms = {arm.name: beside.within(arm.times) for arm in (failing, successful)}
    for name, times in {"alone": before.took, **arms, "alone again": after.took}.items():
        shown = "".join(f"{quantile(times, share):7.1f} ms" for share in (0.5, 0.99, 1.0))
        click.echo(f"  {name:16}{shown} {len(times):10}")
    ratio, low, high = p99_ratio(*arms.values())
    click.echo(f"p99 beside failing / beside control: {ratio:.2f} (95 %: {low:.2f} to {high:.2f}); not 200: {beside.wrong}")
    for number, name in enumerate(("Lasthop", "Envoy")):
        most = max(sample[number] for sample in watch.memory)
        click.echo(
            f"{name}: {start[number]:.0f} MiB before, {most:.0f} at most, {end[number]:.0f} after, "
            f"{watch.growth[number]:+.0f} during the second half; {100 * used[number] / took:.0f} % of a core"
        )
    click.echo(f"the status of the failing policy changed {watch.changes} times")
    click.echo(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    return watch.changes <= CHANGES and max(watch.growth) <= GROWTH and not beside.wrong


def _other_name(policy_set: PolicySet, port: int) -> PolicySet:
    """A policy that wants a name that the certificate of all backends does not have."""

    class Other(PolicySet):
        @property
        def sni(self) -> str:
            return "other.example"

    return Other(**{**dataclasses.asdict(policy_set), "port": port})


@click.command()
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(1, LONGEST), help="Of failing traffic.")
@click.option("--kind", default="refused", show_default=True, type=click.Choice(["refused", "wrong-name"]))
@click.option(
    "--control",
    default="direct",
    show_default=True,
    type=click.Choice(["direct", "backend"]),
    help="The responder for the control's requests: Envoy, or another backend.",
)
@click.option("--flood", "asked", hidden=True)
def main(seconds: float, kind: str, control: str, asked: str | None) -> None:
    """Good traffic beside 2,000 failing requests a second, and beside as many that succeed."""
    if asked:
        listen, host, length = asked.split()
        click.echo(asyncio.run(load(int(listen), host, min(LONGEST, float(length)), RATE)))
        return
    with tempfile.TemporaryDirectory(prefix="lasthop-bench-", dir="/tmp") as name:
        home = Path(name)
        ca = Issued("bench CA")
        Issued("*.bench.example", ca).write(home, "backend")
        pair = home / "backend.crt", home / "backend.key"
        with backend(*pair) as (_, (port, _)), backend(*pair) as (_, (other, _)):
            kept = measure(home, port, other if kind == "wrong-name" else free_port(), ca.pem.decode(), seconds, control)
    sys.exit(not kept)


if __name__ == "__main__":
    main()

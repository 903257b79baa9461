"""Measures the cost of observing traffic: `python -m bench.observe`.

1. Compares Envoy's CPU for a request with and without samples and counters: two equal gateways, one of them without the log of
   samples and without reads of its counters. The two take turns in short rounds, so that the load of other processes affects
   both. Promised: less than 1 %. If the confidence interval is wider than that, only instructions are precise enough
   (`bench.instructions`).
2. CPU of Lasthop while 1, 100, 1,000 and 2,000 requests a second fail (nothing listens on the backend's port). Promised: it
   does not grow with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from bench.folder import Folder, save
from bench.measure import READY_WITHIN
from bench.processes import Gateway, backend, cpu, free_port, resident
from examples.quickstart.certificates import Issued

CLIENTS = 8
ROUND = 1.0
GOAL = 1.0
"""Percent of Envoy's CPU that observing may cost."""
WITHOUT = """
import lasthop.engine.outputs.envoy.listeners as listeners, lasthop.edge.proxy.observer as observer
whole = listeners._connection_manager
def fewer(*args):
    found = whole(*args)
    del found.access_log[1:]
    found.ClearField("access_log_options")
    return found
async def nothing(self):
    import asyncio
    await asyncio.Event().wait()
listeners._connection_manager, observer.Observer.run = fewer, nothing
from lasthop.cli.main import main
main()
"""


class Load(asyncio.Protocol):
    """Requests a host repeatedly over one connection, at full speed or at a fixed rate."""

    def __init__(self, host: str, pause: float = 0.0) -> None:
        self._request = f"GET /x HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        self._pause = pause
        self.answers = 0
        self.transport: asyncio.Transport | None = None
        self._unread = b""
        self._due = 0.0

    def path(self, path: bytes) -> None:
        """Requests another path than /x."""
        self._request = self._request.replace(b" /x ", b" %b " % path)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._due = time.monotonic()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        head, end, body = self._unread.partition(b"\r\n\r\n")
        if not end:
            return
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(body) >= length:
            self._unread = b""
            self.answers += 1
            self._due = max(time.monotonic() - 1, self._due + self._pause)
            asyncio.get_running_loop().call_later(max(0.0, self._due - time.monotonic()), self._again)

    def _again(self) -> None:
        if self.transport and not self.transport.is_closing():
            self.transport.write(self._request)


async def load(port: int, host: str, seconds: float, per_second: float = 0.0) -> int:
    """Returns how many requests were answered."""
    loop, pause = asyncio.get_running_loop(), CLIENTS / per_second if per_second else 0.0
    made = [await loop.create_connection(lambda: Load(host, pause), "127.0.0.1", port) for _ in range(CLIENTS)]
    await asyncio.sleep(seconds)
    for transport, _ in made:
        transport.close()
    return sum(client.answers for _, client in made)


@contextlib.contextmanager
def gateway(home: Path, backend_port: int, pem: str, *program: str) -> Iterator[tuple[Gateway, Folder, int]]:
    port = free_port()
    home.mkdir()
    folder = Folder(home / "folder", 5, port, backend_port, pem)
    running = Gateway(folder.path, home, program) if program else Gateway(folder.path, home)
    try:
        end = time.monotonic() + READY_WITHIN
        while not running.ready and time.monotonic() < end:
            time.sleep(0.05)
        yield running, folder, port
    finally:
        running.stop()


def envoys_cpu(home: Path, backend_port: int, pem: str, rounds: int) -> None:
    costs: dict[str, list[float]] = {"with": [], "without": []}
    with gateway(home / "a", backend_port, pem) as one, gateway(home / "b", backend_port, pem, "-c", WITHOUT) as other:
        sides = {"with": one, "without": other}
        for number in range(-2, rounds):
            order = ("with", "without") if number % 2 else ("without", "with")
            for side in order:
                running, folder, port = sides[side]
                before = cpu(running.envoy)
                answers = asyncio.run(load(port, folder.sets[0].host, ROUND))
                if number >= 0:
                    costs[side].append((cpu(running.envoy) - before) / max(1, answers) * 1e6)
        rate = 1e6 / statistics.median(costs["with"])
    ratios = [a / b for a, b in zip(costs["with"], costs["without"], strict=True)]
    half = 1.96 * statistics.stdev(ratios) / len(ratios) ** 0.5
    click.echo(f"Envoy's CPU for a request: {statistics.median(costs['with']):.1f} µs with, ", nl=False)
    click.echo(f"{statistics.median(costs['without']):.1f} µs without samples and counters ({rate:.0f} a second and core)")
    median, mean = (100 * (average(ratios) - 1) for average in (statistics.median, statistics.mean))
    click.echo(
        f"  {rounds} pairs: median {median:+.2f} %, mean {mean:+.2f} ± {100 * half:.2f} % (95 %; promised: less than {GOAL} %)"
    )
    if 100 * half > GOAL:
        click.echo("  the noise is larger than what is looked for: see python -m bench.instructions")


def lasthops_cpu(home: Path, backend_port: int, pem: str, seconds: float) -> None:
    with gateway(home / "c", backend_port, pem) as (running, folder, port):
        bad = folder.sets[0]
        save(folder.file(0), dataclasses.replace(bad, port=free_port()).text())
        time.sleep(2)
        click.echo("Lasthop's CPU while requests fail:")
        before = cpu(running.pid)
        time.sleep(seconds)
        click.echo(f"  none             {100 * (cpu(running.pid) - before) / seconds:5.1f} % of a core")
        for per_second in (1, 100, 1000, 2000):
            asyncio.run(load(port, bad.host, 4, per_second))
            before = cpu(running.pid)
            answers = asyncio.run(load(port, bad.host, seconds, per_second))
            share = 100 * (cpu(running.pid) - before) / seconds
            size = f"{resident(running.pid):.0f} MiB"
            click.echo(f"  {answers / seconds:6.0f} a second  {share:5.1f} % of a core, {size}")


@click.command()
@click.option("--rounds", default=40, show_default=True, help="Pairs of rounds of 1 s.")
@click.option("--seconds", default=15.0, show_default=True, help="For each rate of failures.")
def main(rounds: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="lasthop-bench-", dir="/tmp") as name:
        home = Path(name)
        ca = Issued("bench CA")
        Issued("*.bench.example", ca).write(home, "backend")
        with backend(home / "backend.crt", home / "backend.key") as (_, (first, _)):
            envoys_cpu(home, first, ca.pem.decode(), rounds)
            lasthops_cpu(home, first, ca.pem.decode(), seconds)


if __name__ == "__main__":
    main()

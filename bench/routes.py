"""`python -m bench.routes`: what a request costs Envoy with 1,000 routes on one hostname, beside one with a single route.

Both hosts are on one listener of one Envoy, have one backend and get requests for the same paths. They take turns in short
rounds, in changing order, so that the load of other processes affects all. Each turn gives a ratio; the result is the median
with its 95 % confidence interval. `--routes 1` shows what the bench makes of no difference at all.

It has two figures. A repeated request shows the cost of finding its route; requests spread over all routes also load 1,000
different routes into the CPU's caches. It fails if one of them is above the goal with 95 % confidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import click

from tests.proxy import documents as docs
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop

GOAL = 1.03
RULES = 16
"""Matches of one HTTPRoute: the maximum."""
CLIENTS = 8
"""Number of concurrent connections, so that Envoy does not wake up for each single request."""
PROCESS_CPU_CLOCK = 2
"""CPUCLOCK_SCHED of <linux/posix-timers.h>: another process's CPU time in nanoseconds, where /proc has ticks of 10 ms."""


def cpu(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | PROCESS_CPU_CLOCK)


# --- the backend -----------------------------------------------------------------------------------------------------


class Answering(asyncio.Protocol):
    ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(self.ANSWER * data.count(b"\r\n\r\n"))


def serve(told: Connection) -> None:
    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(forever())


@contextlib.contextmanager
def backend() -> Iterator[int]:
    told, telling = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=serve, args=(telling,), daemon=True)
    process.start()
    try:
        yield told.recv()
    finally:
        process.kill()
        process.join()


# --- the gateway -----------------------------------------------------------------------------------------------------


def path(number: int) -> str:
    return f"/team-{number:04}/api"


def routes(host: str, paths: list[str]) -> Iterator[Document]:
    for first in range(0, len(paths), RULES):
        document = docs.route(f"{host}-{first}", host=f"{host}.test")
        document["spec"]["rules"] = [
            {"matches": [{"path": {"type": "PathPrefix", "value": each}}], "backendRefs": [docs.to("api", 80)]}
            for each in paths[first : first + RULES]
        ]
        yield document


class Clients:
    def __init__(self, port: int) -> None:
        self._sockets = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(CLIENTS)]
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, host: str, numbers: list[int]) -> None:
        """One request on each connection at a time."""
        for start in range(0, len(numbers), CLIENTS):
            for client, number in zip(self._sockets, numbers[start : start + CLIENTS], strict=False):
                client.sendall(f"GET {path(number)}/x HTTP/1.1\r\nhost: {host}.test\r\n\r\n".encode())
            for client, _ in zip(self._sockets, numbers[start : start + CLIENTS], strict=False):
                answer = b""
                while not answer.endswith(b"\r\n\r\nok"):
                    assert b"\r\n\r\n" not in answer or b" 200 " in answer, answer
                    received = client.recv(65536)
                    assert received, "the connection was closed"
                    answer += received

    def close(self) -> None:
        for each in self._sockets:
            each.close()


def measure(envoy: int, clients: Clients, series: dict[str, tuple[str, list[int]]], rounds: int) -> dict[str, list[float]]:
    """Seconds of Envoy's CPU for each request, by series and round. A series is a host and the routes to request."""
    found: dict[str, list[float]] = {name: [] for name in series}
    for number in range(-1, rounds):
        for name in sorted(series, reverse=bool(number % 2)):
            host, numbers = series[name]
            before = cpu(envoy)
            clients.ask(host, numbers)
            if number >= 0:  # the first round warms up
                found[name].append((cpu(envoy) - before) / len(numbers))
    return found


def interval(values: list[float]) -> tuple[float, float]:
    """The bounds of the median with 95 % confidence, by order statistics, for any distribution."""
    ordered, half = sorted(values), 0.98 * len(values) ** 0.5
    middle = len(values) / 2
    return ordered[max(0, int(middle - half))], ordered[min(len(values) - 1, int(middle + half))]


class Figure(NamedTuple):
    cpu: float
    """Seconds for each request, the median of all rounds."""
    ratio: float
    """To one route in the same round, the median of all rounds."""
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float], base: list[float]) -> Figure:
        ratios = [value / one for value, one in zip(values, base, strict=True)]
        return cls(statistics.median(values), statistics.median(ratios), *interval(ratios))


@click.command()
@click.option("--routes", "count", default=1000, show_default=True)
@click.option("--requests", default=400, show_default=True, help="Of each host in each round.")
@click.option("--rounds", default=300, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(count: int, requests: int, rounds: int, as_json: bool) -> None:
    """CPU of Envoy per request: many routes on one hostname against one."""
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as root, backend() as port:
        lasthop = Lasthop(Path(root))
        lasthop.standard()
        lasthop.write(
            "api.yaml", docs.service("api", {"name": "http", "port": 80}), *docs.endpoints("api", port, port_name="http")
        )
        lasthop.write("many.yaml", *routes("many", [path(n) for n in range(count)] if count > 1 else ["/"]))
        lasthop.write("one.yaml", *routes("one", ["/"]))
        with contextlib.closing(lasthop):
            lasthop.start()
            lasthop.settle()
            with contextlib.closing(Clients(lasthop.port)) as clients:
                numbers = {"same": [count // 2] * requests, "spread": [n * 7919 % count for n in range(requests)]}
                series = {f"{name} {host}": (host, asked) for name, asked in numbers.items() for host in ("one", "many")}
                found = measure(lasthop.envoys()[0], clients, series, rounds)
    figures = {name: Figure.of(found[f"{name} many"], found[f"{name} one"]) for name in numbers}
    one = statistics.median(found["same one"])
    if as_json:
        print(json.dumps({"goal": GOAL, "load": os.getloadavg()[0], **{n: f._asdict() for n, f in figures.items()}}))
    else:
        print(f"one route                                  {one * 1e6:6.1f} us of Envoy's CPU for each request")
        for name, title in (("same", "the same request"), ("spread", "requests spread over all")):
            f = figures[name]
            within = f"95 % interval {f.low:.3f} to {f.high:.3f}"
            print(f"{count:,} routes, {title:28} {f.cpu * 1e6:6.1f} us: {f.ratio:.3f} times as much ({within})")
        print(f"goal for both: {GOAL}; load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs")
    sys.exit(any(figure.low > GOAL for figure in figures.values()))


if __name__ == "__main__":
    main()

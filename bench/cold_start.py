"""Measures the start of a controller with 5,000 policies on a real API server: `python -m bench.cold_start`.

Starts one `lasthop controller` twice, as a process beside the cluster. The first finds no status and writes all; the bench
kills it before the second, which finds all statuses written. It measures from the start of the process until it serves
proxies, until the proxy has confirmed everything, and until the last status is written.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import time
from typing import Any

import aiohttp
import click

from bench import objects
from bench.loading import create
from bench.processes import cpu, resident
from conformance import lasthop, sandbox
from conformance.build import build
from conformance.children import Server, say
from conformance.cluster import Cluster
from conformance.network import NODE_IP
from examples.quickstart.certificates import Issued

WRITES = "lasthop_status_writes_total"
ADMIN = "http://127.0.0.1:19000"
PATIENCE = 900.0
SECONDS = 30.0
"""Goal for a start with 5,000 policies, in seconds until it serves proxies."""


async def scenario(cluster: Cluster, arguments: dict[str, Any]) -> int:
    size: int = arguments["policies"]
    begin = time.monotonic()
    count = await _create(cluster, size)
    say(f"{count:,} objects created in {time.monotonic() - begin:.0f} s")
    await lasthop.install(cluster, "process")
    controller = next(server for server in cluster.started if server.name == "lasthop-controller")
    first = await _watch(controller, 2 * size, "first start, no status yet")
    await controller.kill()
    await controller.start()
    again = await _watch(controller, 0, "start after kill -9, every status written")
    good = max(first, again) <= SECONDS
    say(f"serves proxies within {SECONDS:.0f} s: {'yes' if good else 'no'}")
    return 0 if good else 1


async def _create(cluster: Cluster, size: int) -> int:
    ca = Issued("bench CA")
    await cluster.apply([*objects.gateway(), objects.ca(ca.pem.decode())])
    sets = (objects.backend(f"s{n}", f"h{n}.bench.example", NODE_IP, 8443, f"h{n}.bench.example") for n in range(size))
    return await create(cluster.api, itertools.chain.from_iterable(sets))


async def _watch(controller: Server, statuses: int, name: str) -> float:
    """Prints the durations; returns the seconds until it served proxies."""
    began, pid = time.monotonic(), controller.pid
    assert pid is not None
    serving = synced = written = 0.0
    metrics: dict[str, float] = {}
    async with aiohttp.ClientSession() as session:
        while not (serving and synced and written):
            passed = time.monotonic() - began
            if passed > PATIENCE or not controller.running:
                raise RuntimeError(f"not done after {passed:.0f} s: {metrics}\n{controller.log_tail()}")
            await asyncio.sleep(0.5 if synced else 0.1)
            if not (metrics := await _metrics(session)):
                continue
            passed = time.monotonic() - began
            serving = serving or (passed if metrics["lasthop_ready"] else 0.0)
            synced = synced or (passed if metrics.get("lasthop_xds_synced", 0) else 0.0)
            # An empty queue right after the start may only mean that no status has been computed yet.
            quiet = synced and not metrics["lasthop_status_pending"]
            written = written or (passed if quiet and metrics[f"{WRITES}_writes"] >= statuses else 0.0)
    writes = metrics[f"{WRITES}_writes"]
    say(f"\n{name}")
    say(f"  serves proxies after                  {serving:.1f} s")
    say(f"  the proxy has confirmed all after     {synced:.1f} s   (its Deployment included, at the first start)")
    rate = f", {writes / written:.0f} a second" if writes else ""
    say(f"  statuses written                      {writes:,.0f} after {written:.1f} s{rate}")
    say(f"  conflicts, errors                     {metrics[f'{WRITES}_conflicts']:.0f}, {metrics[f'{WRITES}_errors']:.0f}")
    say(f"  memory                                {resident(pid):.0f} MiB")
    say(f"  CPU                                   {cpu(pid):.1f} s")
    return serving


async def _metrics(session: aiohttp.ClientSession) -> dict[str, float]:
    """By name; those with a result also under the name of the result. Empty while nothing answers."""
    try:
        async with session.get(f"{ADMIN}/metrics") as response:
            text = await response.text()
    except aiohttp.ClientError:
        return {}
    metrics: dict[str, float] = {}
    for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
        result = re.search(r'result="(\w+)"', labels)
        metrics[f"{name}_{result[1]}" if result else name] = float(value)
    return metrics


@click.command("bench.cold_start")
@click.option("--policies", default=5000, show_default=True, type=click.IntRange(1))
def command(policies: int) -> None:
    build()
    sys.exit(sandbox.run("bench.cold_start:scenario", {"policies": policies}))


if __name__ == "__main__":
    command()

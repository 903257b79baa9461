"""Measures the cost of observing in Envoy, in instructions per request, which have little noise: `python -m
bench.instructions`.

Envoy runs under valgrind (callgrind), three times: without the log of samples, with it and no request taken, and with every
request taken. It counts the user-space instructions of the threads that handle requests, over open connections. No process
reads counters, because the main thread would do that. The three take turns, and the cost at a high rate is put together: the
filter for every request, a line for so many a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from bench.observe import CLIENTS, WITHOUT, Load, gateway
from bench.processes import backend
from examples.quickstart.certificates import Issued
from lasthop.edge.proxy.binary import OVERRIDE, find_envoy
from lasthop.edge.proxy.observer import SAMPLES

WARM, REQUESTS = 200, 800
"""Requests before any are counted, and those that are; by number, so that a busy machine takes longer and counts the same."""
PATIENCE = 120.0
"""Seconds for them."""
MAIN_THREAD = "-01"
RATE = 10_000
"""Requests a second for which the cost is put together."""
SHARE = """
import lasthop.engine.outputs.envoy.access_log as access_log, lasthop.edge.proxy.observer as observer
whole = access_log.share_of
def fixed(key):
    found = whole(key)
    found.runtime_filter.percent_sampled.numerator = {numerator}
    return found
async def nothing(self):
    import asyncio
    await asyncio.Event().wait()
access_log.share_of, observer.Observer.run = fixed, nothing
from lasthop.cli.main import main
main()
"""
PROGRAMS = {"without": WITHOUT, "none taken": SHARE.format(numerator=0), "all taken": SHARE.format(numerator=1_000_000)}
WRAPPER = """\
#!/bin/sh
if [ "$1" = --version ]; then exec "{envoy}" "$@"; fi
set -- --callgrind-out-file="{home}/counted.%p" "{envoy}" "$@"
exec valgrind --quiet --tool=callgrind --separate-threads=yes --instr-atstart=no "$@"
"""


@contextlib.contextmanager
def under_callgrind(home: Path) -> Iterator[None]:
    """Lets gateways that are started meanwhile run their Envoy under callgrind."""
    wrapper = home / "envoy"
    wrapper.write_text(WRAPPER.format(envoy=find_envoy().path, home=home))
    wrapper.chmod(0o755)
    before = os.environ.get(OVERRIDE)
    os.environ[OVERRIDE] = str(wrapper)
    try:
        yield
    finally:
        del os.environ[OVERRIDE]
        if before is not None:
            os.environ[OVERRIDE] = before


class Paused(Load):
    """Can be made to send nothing for a while."""

    waits = False
    held = False
    """It has been answered, and waits."""

    def _again(self) -> None:
        self.held = self.waits
        if not self.held:
            super()._again()

    def resume(self) -> None:
        self.waits = False
        self._again()


async def asked(pid: int, port: int, makers: Sequence[Callable[[], Paused]], warm: int, requests: int) -> int:
    """Has the instructions of a process counted that so many requests need; returns how many there were."""
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(maker, "127.0.0.1", port) for maker in makers]
    clients = [client for _, client in made]

    async def after(requests: int, *commands: str) -> int:
        """Once so many more have been answered, and none is under way; returns how many there were."""
        wanted = sum(client.answers for client in clients) + requests
        await _until(lambda: sum(client.answers for client in clients) >= wanted)
        for client in clients:
            client.waits = True
        await _until(lambda: all(client.held for client in clients))
        for command in commands:
            await asyncio.to_thread(control, pid, command)
        answers = sum(client.answers for client in clients)
        for client in clients:
            client.resume()
        return answers

    async with asyncio.timeout(PATIENCE):
        before = await after(warm, "--instr=on", "--zero")
        counted = await after(requests, "--dump", "--instr=off") - before
    for transport, _ in made:
        transport.close()
    return counted


async def _until(holds: Callable[[], bool]) -> None:
    for _ in itertools.count():
        if holds():
            return
        await asyncio.sleep(0.01)


def counted_instructions(
    pid: int, port: int, home: Path, makers: Sequence[Callable[[], Paused]], warm: int = WARM, requests: int = REQUESTS
) -> float:
    """Returns the instructions of a request in an Envoy whose callgrind writes `counted.*` to `home`."""
    answers = asyncio.run(asked(pid, port, makers, warm, requests))
    return dumped(pid, home) / answers


def dumped(pid: int, home: Path) -> int:
    """Returns the instructions of the threads that handle requests from the dumps, and deletes these."""
    dumps = list(home.glob(f"counted.{pid}.*-*"))
    total = sum(_total(dump) for dump in dumps if not dump.name.endswith(MAIN_THREAD))
    for dump in dumps:
        dump.unlink()
    return total


def _total(dump: Path) -> int:
    return sum(map(int, re.findall(r"^totals: (\d+)", dump.read_text(errors="replace"), re.MULTILINE)))


def control(pid: int, command: str) -> None:
    subprocess.run(["callgrind_control", command, str(pid)], check=True, capture_output=True)


@click.command()
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(2), help="Of 800 requests for each of the three.")
def main(rounds: int) -> None:
    """Measures the cost of observation for Envoy, in instructions of a request."""
    if not (shutil.which("valgrind") and shutil.which("callgrind_control")):
        sys.exit("valgrind is not installed; Debian and others have a package of that name")
    counted: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lasthop-bench-", dir="/tmp")))
        ca = Issued("bench CA")
        Issued("*.bench.example", ca).write(home, "backend")
        _, (port, _) = stack.enter_context(backend(home / "backend.crt", home / "backend.key"))
        stack.enter_context(under_callgrind(home))
        sides = {
            name: stack.enter_context(gateway(home / str(number), port, ca.pem.decode(), "-c", program))
            for number, (name, program) in enumerate(PROGRAMS.items())
        }
        for _ in range(rounds):
            for name, (running, folder, listen) in sides.items():
                makers = [functools.partial(Paused, folder.sets[0].host)] * CLIENTS
                counted[name].append(counted_instructions(running.envoy, listen, home, makers))
    base = statistics.mean(counted["without"])
    click.echo(f"instructions of a request without a log of samples: {base:,.0f}")
    taken_none = _difference(counted["none taken"], counted["without"], base)
    taken = _difference(counted["all taken"], counted["none taken"], base)
    click.echo(f"  the log, without a sampled request: {taken_none[0]:+.2f} ± {taken_none[1]:.2f} % (95 %)")
    click.echo(f"  a request that is taken: {taken[0]:+.2f} ± {taken[1]:.2f} %")
    share = SAMPLES / RATE
    cost, noise = (taken_none[n] + share * taken[n] for n in (0, 1))
    click.echo(
        f"  so at {RATE:,} requests a second, of which {SAMPLES:.0f} are taken: {cost:+.2f} ± {noise:.2f} %; promised: < 1 %"
    )


def _difference(one: list[float], other: list[float], base: float) -> tuple[float, float]:
    """Returns by how many percent of the base they differ, and half of its 95 % confidence interval."""
    pairs = [100 * (a - b) / base for a, b in zip(one, other, strict=True)]
    return statistics.mean(pairs), 1.96 * statistics.stdev(pairs) / len(pairs) ** 0.5


if __name__ == "__main__":
    main()

"""Measures edits of policies while endpoints change 1,000 times a second, as if every Pod restarted: `python -m bench.storm`.

`lasthop controller` with its Envoy on the API server of the tests: a real API server on the same cores would need all of them
for so many writes. Needs neither root nor a cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

from bench import machine
from bench.control import objects
from bench.others import Others
from bench.probe import Probe
from bench.processes import STOP_WITHIN, backend, children, cpu, environment, free_port
from bench.rows import Row, judged, verdict, write
from bench.table import show
from conformance import lasthop
from examples.quickstart.certificates import Issued
from tests.fake_api import FakeApi, serving

NAMESPACE = "bench"
EDITED = 10
"""Sets whose policies are edited; their endpoints stay as they are."""
PAUSE = 0.2
"""Seconds between an edit and the next."""
BATCH = 0.01
"""Seconds between two lots of changes."""
READY_WITHIN = 120.0
EDIT_WITHIN = 60.0


class World:
    """The objects on the API server."""

    def __init__(self, size: int, listen: int, ports: tuple[int, int], ca: Issued) -> None:
        self.api, self.size, self.ports = FakeApi(), size, ports
        self._editions = [0] * size
        self._changes = 0
        plurals = {kind: plural for plural, kind in self.api.kinds.items()}
        documents = [lasthop.gateway_class(), {"kind": "Namespace", "metadata": {"name": NAMESPACE}}]
        documents.append(objects.gateway(NAMESPACE, objects.GATEWAY, lasthop.GATEWAY_CLASS, listen))
        for number in range(size):
            documents += objects.policy_set(NAMESPACE, number, ports[0], ca, address="127.0.0.1")
        for document in documents:
            self.api.put(plurals[document["kind"]], document)

    def change_endpoints(self) -> None:
        """Moves the next endpoint to the other port of the backend; `settled` returns the last one."""
        self._put_endpoints(self._changes)
        self._changes += 1

    @property
    def settled(self) -> tuple[int, int]:
        """Returns the set that was changed last, and the port of its endpoint."""
        return self._place(self._changes - 1)

    def _place(self, change: int) -> tuple[int, int]:
        lap, place = divmod(change, self.size - EDITED)
        return EDITED + place, self.ports[1 - lap % 2]

    def _put_endpoints(self, change: int) -> None:
        number, port = self._place(change)
        old = self.api.get("endpointslices", objects.set_name(number), NAMESPACE)
        self.api.put("endpointslices", {**old, "metadata": dict(old["metadata"]), **objects.endpoints(port, "127.0.0.1")})

    def edit_policy(self, number: int) -> str:
        """Returns the new SNI."""
        self._editions[number] += 1
        policy = copy.deepcopy(self.api.get("backendtlspolicies", objects.set_name(number), NAMESPACE))
        policy["spec"]["validation"] = objects.validation(number, self._editions[number])
        self.api.put("backendtlspolicies", policy)
        return objects.sni(number, self._editions[number])


@contextlib.contextmanager
def controller(home: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    cluster = {"clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {}}]}
    context = {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
    (home / "kubeconfig").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **cluster, **context}))
    flags = ["--infrastructure=process", "--address=127.0.0.1", f"--admin=127.0.0.1:{free_port()}", "--log-level=warning"]
    command: list[str | Path] = [lasthop.program(), "controller", f"--kubeconfig={home / 'kubeconfig'}", *flags]
    variables = environment(home)
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, process_group=0)
    proxies: list[int] = []
    try:
        yield process
        proxies = children(process.pid)
        process.terminate()
        process.wait(STOP_WITHIN)
    finally:
        process.kill()
        process.wait()
        for pid in proxies:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)


def serves(probe: Probe, number: int) -> bool:
    try:
        return probe.ask(objects.host(number)).status == 200
    except OSError:
        return False


async def storm(world: World, rate: float, stop: asyncio.Event) -> int:
    """Changes endpoints at that rate until it is stopped; returns the number of changes."""
    began, done = time.perf_counter(), 0
    while not stop.is_set():
        for _ in range(int((time.perf_counter() - began) * rate) - done):
            world.change_endpoints()
            done += 1
        await asyncio.sleep(BATCH)
    return done


async def measure(world: World, process: subprocess.Popen[bytes], probe: Probe, rate: float, seconds: float) -> list[Row]:
    async def edit(number: int) -> float:
        began = time.perf_counter()
        wanted = world.edit_policy(number)
        shown = await asyncio.to_thread(
            probe.until, objects.host(number), lambda answer: answer.sni == wanted, "/", EDIT_WITHIN
        )
        return shown.at - began

    began = time.perf_counter()
    while not await asyncio.to_thread(serves, probe, world.size - 1):
        if time.perf_counter() - began > READY_WITHIN or process.poll() is not None:
            raise RuntimeError("the controller does not serve")
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)
    at_rest = [await edit(count % EDITED) for count in range(EDITED)]
    stop = asyncio.Event()
    spent, began = cpu(process.pid), time.perf_counter()
    during: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        changing = tasks.create_task(storm(world, rate, stop))
        while time.perf_counter() - began < seconds:
            during.append(await edit(len(during) % EDITED))
            await asyncio.sleep(PAUSE)
        stop.set()
    ended, (last, port) = time.perf_counter(), world.settled
    caught_up = await asyncio.to_thread(probe.until, objects.host(last), lambda answer: answer.port == port, "/", EDIT_WITHIN)
    changes = changing.result()

    def row(what: str, ours: float, unit: str) -> Row:
        return judged("storm", what, world.size, ours, unit)

    return [
        row("endpoint changes a second", changes / (ended - began), "/s"),
        row("controller CPU for each change", 1000 * (cpu(process.pid) - spent) / changes, "ms"),
        row("policy edit effective, at rest", 1000 * statistics.median(at_rest), "ms"),
        row("policy edit effective, meanwhile", 1000 * statistics.median(during), "ms"),
        row("policy edit effective, meanwhile, slowest", 1000 * max(during), "ms"),
        row("last change effective after", max(0.0, caught_up.at - ended), "s"),
    ]


async def run(size: int, rate: float, seconds: float) -> tuple[list[Row], float]:
    ca = Issued("bench CA")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home, listen = Path(folder), free_port()
        Issued("*.bench.example", ca).write(home, "backend")
        with backend(home / "backend.crt", home / "backend.key") as (_, ports):
            world, others = World(size, listen, ports, ca), Others()
            async with serving(world.api) as api:
                with controller(home, api.url) as process:
                    return await measure(world, process, Probe(listen), rate, seconds), others.cores()


@click.command("bench.storm")
@click.option("--policies", default=1000, show_default=True, type=click.IntRange(EDITED + 1))
@click.option("--rate", default=1000.0, show_default=True, help="Changes of endpoints a second.")
@click.option("--seconds", default=60.0, show_default=True)
def command(policies: int, rate: float, seconds: float) -> None:
    """Edits of policies while endpoints change all the time. The exit status is 1 if a figure misses its goal."""
    rows, others = asyncio.run(run(policies, rate, seconds))
    write("storm", machine.run("storm", others), rows)
    show(rows)
    sys.exit(verdict(rows))


if __name__ == "__main__":
    command()

"""Measures the edits of other tenants while one tenant floods a shared gateway: `python -m bench.neighbour`.

The noisy tenant has its own namespace and hostname, and the maximum of HTTPRoutes with 128 matches each (15), whose paths have
1,000 characters. It edits one of them five times a second. All other tenants edit as in `make bench`. The bench measures each
kind of edit at rest, beside the tenant's routes, and during its flood. A tightened policy (a wrong CA, an invalid policy) must
be in force within 1 s in all three cases, and any other edit within 3 s. With `--floods` the neighbour is a peer of a
cluster's controller instead (`bench/floods.py`): a proxy, a caller of the webhook, a user of the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import click
import msgspec

from bench import floods
from bench.folder import Folder, save
from bench.measure import Bench, start
from bench.probe import Probe
from bench.processes import Gateway, backend, free_port, resident
from examples.quickstart.certificates import Issued

RULES, MATCHES = 8, 16
"""Rules and matches of one HTTPRoute: the maximum."""
SERVED = 15
"""HTTPRoutes of that size that one namespace may have under a hostname by default; more are left out, and still read."""
PATH = 1_000
PER_SECOND = 5.0
TIGHTENED = 1.0
OTHERWISE = 3.0
HOST = "noisy.example"
TIGHTENING = ("CA does not fit: 503", "policy invalid: 500")


def path(route: int, number: int, edition: int) -> str:
    """Of exactly that many characters, and like no other from its first characters on."""
    return f"/{route:03}-{number:03}-{edition}-".ljust(PATH, "x")


def route(number: int, edition: int = 0) -> str:
    rules = [
        {
            "matches": [
                {"path": {"type": "PathPrefix", "value": path(number, rule * MATCHES + match, edition)}}
                for match in range(MATCHES)
            ],
            "backendRefs": [{"name": "noisy", "port": 80}],
        }
        for rule in range(RULES)
    ]
    spec = {"parentRefs": [{"name": "web", "namespace": "bench"}], "hostnames": [HOST], "rules": rules}
    metadata = {"name": f"r{number:03}", "namespace": "noisy"}
    document = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": spec}
    return json.dumps(document)


class Tenant(threading.Thread):
    """Edits one of its routes so many times a second, until it is stopped."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._stopped = threading.Event()
        self.edits = 0

    def move_in(self, routes: int) -> None:
        self._folder.mkdir()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "noisy"}}
        (self._folder / "namespace.yaml").write_text(json.dumps(namespace))
        for number in range(routes):
            (self._folder / f"{number:03}.yaml").write_text(route(number))

    def run(self) -> None:
        while not self._stopped.wait(1 / PER_SECOND):
            self.edits += 1
            save(self._folder / "000.yaml", route(0, self.edits))

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class Health(threading.Thread):
    """Polls `/healthz` to measure the longest block of the event loop."""

    def __init__(self, admin: int) -> None:
        super().__init__(daemon=True)
        self._url = f"http://127.0.0.1:{admin}/healthz"
        self._stopped = threading.Event()
        self.worst = 0.0

    def run(self) -> None:
        while not self._stopped.wait(0.02):
            began = time.perf_counter()
            with urllib.request.urlopen(self._url, timeout=60) as answer:
                answer.read()
            self.worst = max(self.worst, time.perf_counter() - began)

    def stop(self) -> float:
        self._stopped.set()
        self.join()
        return self.worst


def edits(bench: Bench, admin: int, count: int) -> tuple[dict[str, list[float]], float]:
    """Seconds until each was in effect, by kind; and the longest that `/healthz` took meanwhile."""
    health = Health(admin)
    health.start()
    times: dict[str, list[float]] = {}
    for names, steps, _ in bench.kinds():
        if "in place" in names[0]:
            continue
        effective, _ = bench.batch(names, steps, count, True)
        times |= effective
    return times, health.stop()


@click.command()
@click.option(
    "--routes",
    default=SERVED,
    show_default=True,
    help="HTTPRoutes of the noisy tenant; more than the default are left out by the limit of a hostname.",
)
@click.option("--policies", default=20, show_default=True, help="Of everybody else.")
@click.option("--edits", "count", default=5, show_default=True, help="Edits of each kind, in each of the three states.")
@click.option("--floods", "of_peers", is_flag=True, help="Floods of proxies, of the webhook and of the admin API instead.")
@click.option("--json", "as_json", is_flag=True)
def main(routes: int, policies: int, count: int, of_peers: bool, as_json: bool) -> None:
    """Edits of others at rest, beside a tenant with many routes, and while it floods."""
    if of_peers:
        seen_floods = asyncio.run(floods.run(count))
        print(
            json.dumps({name: msgspec.to_builtins(flood) for name, flood in seen_floods.items()})
        ) if as_json else floods.show(seen_floods)
        sys.exit(not all(flood.kept for flood in seen_floods.values()))
    ca, other_ca = Issued("bench CA"), Issued("another CA")
    seen: dict[str, tuple[dict[str, list[float]], float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as root:
        home = Path(root)
        Issued("*.bench.example", ca).write(home, "backend")
        with backend(home / "backend.crt", home / "backend.key") as (_, ports):
            listen = free_port()
            folder = Folder(home / "folder", policies, listen, ports[0], ca.pem.decode())
            gateway = Gateway(folder.path, home)
            try:
                start(gateway, folder, listen)
                bench = Bench(folder, gateway, listen, ports, ca.pem.decode(), other_ca.pem.decode())
                seen["at rest"] = edits(bench, gateway.admin, count)
                tenant = Tenant(folder.path / "noisy")
                began = time.perf_counter()
                tenant.move_in(routes)
                Probe(listen).until(HOST, lambda answer: answer.status != 404, path(min(routes, SERVED) - 1, 0, 0), limit=180)
                moved_in = time.perf_counter() - began
                while not gateway.ready:
                    time.sleep(0.05)
                seen["neighbour there"] = edits(bench, gateway.admin, count)
                tenant.start()
                seen["neighbour floods"] = edits(bench, gateway.admin, count)
                tenant.stop()
                memory = resident(gateway.pid), resident(gateway.envoy)
            finally:
                gateway.stop()
    if as_json:
        print(json.dumps({"moved_in": moved_in, "memory": memory, "edits": tenant.edits, "seen": seen}))
    else:
        show(seen)
        print(f"the tenant's {routes} routes were served after {moved_in:.2f} s; it made {tenant.edits} edits")
        print(f"RSS: Lasthop {memory[0]:.0f} MiB, Envoy {memory[1]:.0f} MiB")
        print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs")
    sys.exit(not kept(seen["neighbour floods"][0]))


def show(seen: dict[str, tuple[dict[str, list[float]], float]]) -> None:
    print(f"{'from save to traffic, median / max, ms':42}", *(f"{state:>22}" for state in seen), " floods : rest")
    for name in seen["at rest"][0]:
        values = [times[name] for times, _ in seen.values()]
        ratio = statistics.median(values[-1]) / statistics.median(values[0])
        cells = [f"{statistics.median(v) * 1e3:12.1f} / {max(v) * 1e3:7.1f}" for v in values]
        print(f"{name:42}", *cells, f"{ratio:14.1f}")
    print(f"{'/healthz, the slowest':42}", *(f"{worst * 1e3:22.1f}" for _, worst in seen.values()))


def kept(times_by_kind: dict[str, list[float]]) -> bool:
    """A policy that tightens is in force within 1 s, anything else within 3 s."""
    return all(max(times) <= (TIGHTENED if name in TIGHTENING else OTHERWISE) for name, times in times_by_kind.items())


if __name__ == "__main__":
    main()

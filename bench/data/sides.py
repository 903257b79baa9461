"""Runs the compared proxies: each is pinned to its own core, with one worker, and serves every row."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.data.emitted import Json, emitted
from bench.data.envoy_gateway import envoy_gateway
from bench.data.others import haproxy, nginx
from bench.data.places import BACKENDS, PROXY_CORE, Places, host, pinned
from bench.data.rows import ENVOY_GATEWAY, HAPROXY, LASTHOP, NGINX, ONE_ROUTE, TUNED, TUNED_SAFE
from bench.data.tuned import tuned
from bench.processes import free_port
from lasthop.edge.proxy.binary import find_envoy
from tests.proxy import documents as docs
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop

STARTED_WITHIN = 120.0
PORTS = ("http", "http2", "grpc", "stream")
"""Of each side: HTTP/1.1, HTTP/2 without TLS, gRPC, which may all be the same port, and TLS."""
RULES = 16
"""Matches of one HTTPRoute: the maximum."""


class Side(NamedTuple):
    pid: int
    ports: dict[str, int]


class Plan(NamedTuple):
    """The parameters of a side, for each of its starts."""

    config: str
    ports: dict[str, int]
    command: Callable[[Path], Sequence[str]]
    """By the file that has the configuration."""


Planned = Callable[[Places, int], Plan]


# --- Lasthop ---------------------------------------------------------------------------------------------------------


def _lasthop(places: Places, routes: int) -> Plan:
    """Plans to run the configuration of `lasthop run` without the control plane. That learns the rate of requests once a
    second, so in such short rounds it would sample all requests."""
    ports = _ports()
    config = configured(places, ports, routes, places.home / "admin.sock")
    return Plan(json.dumps(config), ports, _envoy_command)


def configured(places: Places, ports: dict[str, int], routes: int, admin: Path) -> Json:
    """Returns what Lasthop emits for these objects, taken from the Envoy of a real `lasthop run`."""
    root = Path(tempfile.mkdtemp(prefix="lh-", dir="/tmp"))
    running = Lasthop(root)
    running.port = ports["http"]
    running.write("bench.yaml", *objects(places, ports, routes))
    try:
        running.start()
        running.settle()
        return emitted(root / "r", admin, (places.certificate, places.key))
    finally:
        running.close()
        shutil.rmtree(root, ignore_errors=True)


def objects(places: Places, ports: dict[str, int], routes: int) -> list[Document]:
    """Returns the objects for all rows: a hostname for each kind of backend, and one with many routes."""
    pair = docs.secret("server", tls_crt=places.certificate.read_text(), tls_key=places.key.read_text())
    listeners = [docs.http(ports["http"]), docs.listener("tls", "TLS", ports["stream"], secret="server")]
    documents = [docs.gateway_class(), docs.namespace(docs.NAMESPACE), docs.gateway("web", *listeners), pair]
    documents.append(docs.config_map("ca", places.ca.read_text()))
    for label in BACKENDS:
        documents += [docs.service(label), *docs.endpoints(label, places.port(label)), docs.policy(label, host(label), "ca")]
    documents += [docs.route(label, docs.to(label), host=host(label)) for label in ("h1", "h2", "close")]
    documents.append({**docs.route("grpc", docs.to("grpc"), host=host("grpc")), "kind": "GRPCRoute"})
    documents.append(docs.stream_route("TLSRoute", "echo", docs.to("echo"), listener="tls", hosts=(host("echo"),)))
    return [*documents, *_many(routes), docs.route("one", docs.to("h1"), host=host("one"))]


def _many(routes: int) -> Iterator[Document]:
    """Returns routes of one hostname, each with its own path."""
    paths = [f"/team-{number:04}" for number in range(routes)]
    for first in range(0, routes, RULES):
        document = docs.route(f"many-{first}", host=host("many"))
        document["spec"]["rules"] = [
            {"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": [docs.to("h1")]}
            for path in paths[first : first + RULES]
        ]
        yield document


# --- the others ------------------------------------------------------------------------------------------------------


def _ports() -> dict[str, int]:
    port = free_port()
    return {"http": port, "http2": port, "grpc": port, "stream": free_port()}


def envoy_command(config: Path, base: Path) -> list[str]:
    options = ["--concurrency", "1", "--use-dynamic-base-id", "--base-id-path", str(base), "--log-level", "error"]
    return [str(find_envoy().path), "--config-path", str(config), *options]


def _envoy_command(config: Path) -> list[str]:
    return envoy_command(config, config.parent / "base")


def _envoy(build: Callable[[Places, dict[str, int]], Json], *apart: str) -> Planned:
    def plan(places: Places, routes: int) -> Plan:
        ports = {**_ports(), **{name: free_port() for name in apart}}
        return Plan(json.dumps(build(places, ports)), ports, _envoy_command)

    return plan


def _program(build: Callable[[Places, dict[str, int]], str], *command: str) -> Planned:
    def plan(places: Places, routes: int) -> Plan:
        ports = {name: free_port() for name in PORTS}
        ports["grpc"] = ports["http2"]
        return Plan(build(places, ports), ports, lambda config: [*command, str(config)])

    return plan


@contextlib.contextmanager
def started(plan: Plan, places: Places) -> Iterator[Side]:
    """Yields a new process of a side once it listens."""
    home = Path(tempfile.mkdtemp(dir=places.home))
    config, log = home / "config.json", home / "log"
    config.write_text(plan.config)
    command = plan.command(config)
    with log.open("wb") as file:
        process = subprocess.Popen([*pinned(PROXY_CORE), *command], stdout=file, stderr=file, cwd=home, process_group=0)
    try:
        end = time.monotonic() + STARTED_WITHIN
        while not all(map(_listens, plan.ports.values())):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} does not serve:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        yield Side(process.pid, plan.ports)
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


SIDES: dict[str, Planned] = {
    LASTHOP: _lasthop,
    TUNED: _envoy(lambda places, ports: tuned(places, ports, stats=False)),
    TUNED_SAFE: _envoy(lambda places, ports: tuned(places, ports, stats=True, protected=True)),
    ENVOY_GATEWAY: _envoy(envoy_gateway, "grpc"),
    NGINX: _program(nginx, "nginx", "-e", "stderr", "-c"),
    HAPROXY: _program(haproxy, "haproxy", "-db", "-f"),
}
SHARED = {ONE_ROUTE: LASTHOP}
"""Sides that are another host of a side that runs anyway."""

"""An Envoy with its own control plane, and a client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import VirtualHost

from bench.probe import Probe
from bench.processes import free_port, main_thread_cpu
from bench.route_delivery.ads import Ads
from bench.route_delivery.deliveries import Delivery, resource
from bench.route_delivery.emitted import Emitted
from lasthop.edge.proxy.admin import request
from lasthop.edge.proxy.binary import find_envoy
from lasthop.edge.proxy.launch import command
from lasthop.engine.outputs.envoy.bootstrap import bootstrap
from lasthop.engine.outputs.envoy.encode import encode
from lasthop.engine.outputs.envoy.resource import LISTENER, Resource
from lasthop.engine.outputs.envoy.xds_cluster import LocalXds

PATIENCE = 60.0
NO_WALK = "--ignore-unknown-dynamic-fields"
AFTERMATH = 0.15
"""Seconds in which Envoy gets rid of the old table."""


class Edit(NamedTuple):
    sent: int
    """Bytes."""
    effective: float
    """Seconds until an answer showed it, from before the bytes were put together."""
    cpu: float
    """Seconds of Envoy's main thread."""


class Proxy:
    def __init__(self, home: Path, delivery: Delivery, emitted: Emitted) -> None:
        home.mkdir()
        self.delivery, self._home = delivery, home
        self.port = free_port()
        self.ads, self.probe = Ads(home / "ads.sock"), Probe(self.port)
        self._admin = home / "admin.sock"
        listener = Listener.FromString(emitted.listener.SerializeToString())
        listener.address.socket_address.port_value = self.port
        delivery.listen(listener)
        self.ads.put([*emitted.upstreams, resource(LISTENER, listener.name, encode(listener)), *delivery.standing()])
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, walks: bool = False) -> None:
        config = self._home / "bootstrap.json"
        config.write_bytes(bootstrap(node_id="bench/web", xds=LocalXds(self._home / "ads.sock"), admin_socket=self._admin))
        arguments = [argument for argument in command(find_envoy(), config, 2) if not walks or argument != NO_WALK]
        with (self._home / "envoy.log").open("wb") as log:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._home, process_group=0,
            )  # fmt: skip

    def stop(self) -> None:
        self.probe.close()
        if self._process:
            self._process.kill()
            self._process.wait()
        self.ads.close()

    def status(self, host: str, path: str = "/") -> int:
        """Returns 0 without a listener."""
        try:
            return self.probe.ask(host, path).status
        except OSError:
            return 0

    def accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def until(self, host: str, path: str = "/") -> float:
        """Returns the time of the first 200."""
        end = time.perf_counter() + PATIENCE
        while self.status(host, path) != 200:
            if time.perf_counter() > end:
                raise RuntimeError(f"{host} is not served: {self.ads.refusals[-1:]}; {self.log_tail()}")
            time.sleep(0.001)
        return time.perf_counter()

    def log_tail(self) -> str:
        return (self._home / "envoy.log").read_text(errors="replace")[-1000:]

    def send(self, resources: list[Resource]) -> float:
        """Sends, waits until Envoy has confirmed it and is done, and returns the seconds of its main thread's CPU."""
        before = self.cpu()
        _, confirmed = self.ads.push(resources)
        confirmed.result(PATIENCE)
        time.sleep(AFTERMATH)
        return self.cpu() - before

    def edit(self, hosts: Iterable[VirtualHost], host: str, path: str) -> Edit:
        """Sends what these hosts change; the given request has to come to be answered with 200."""
        before, began = self.cpu(), time.perf_counter()
        sent, confirmed = self.ads.push(self.delivery.changed(hosts))
        answer = self.probe.until(host, lambda answer: answer.status == 200, path, PATIENCE)
        confirmed.result(PATIENCE)
        time.sleep(AFTERMATH)
        return Edit(sent, answer.at - began, self.cpu() - before)

    def cpu(self) -> float:
        assert self._process is not None
        return main_thread_cpu(self._process.pid)

    def allocated(self) -> int:
        """Bytes, by Envoy's own account."""
        _, body = asyncio.run(request(self._admin, "GET", "/memory"))
        return int(json.loads(body)["allocated"])

"""No port becomes plaintext while a text that may name it is unknown, and good texts lead to what a fresh start serves.

Over the final xDS, for histories of texts that are broken, moved and lost in every way `tests/hunt` knows, with restarts on a
state directory that may be lost. `make hunt` plays the same histories with a real Envoy.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import repeat
from pathlib import Path
from random import Random

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.edge.sinks.sink import Sink
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.files.state import StateDirectory
from lasthop.edge.sources.source import Batch, ObjectSource
from lasthop.engine.engine import Engine
from lasthop.engine.memory import codec
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, Resource
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from lasthop.run.controller import Controller
from lasthop.run.infra import memory
from tests.hunt.base import BASE, hop_file
from tests.hunt.folder import Folder
from tests.hunt.generator import Generator
from tests.hunt.history import ALL, Concerned, Edit, History, Odd, Step, dump
from tests.hunt.oracle import SERVICES, Oracle
from tests.hunt.texts import (
    FILLER,
    GOOD,
    HIDDEN,
    JSON_HIDDEN,
    JSON_NAMED,
    NAMED,
    WHOLE_HIDDEN,
    WHOLE_NAMED,
    Breakage,
    Policy,
    Text,
    listed,
)
from tests.proxy.certs import CA
from tests.world import STORE

PORTS = {service: 10001 + number for number, service in enumerate(SERVICES)}
TOKENS = {
    **{service.partition("/")[2].upper(): str(port) for service, port in PORTS.items()},
    "LISTENER": "8080",
    "CA": "".join(f"    {line}\n" for line in CA.pem.splitlines()),
}


LOST = {"all": "*", "memory": memory.FILE, "contents": "files.sqlite*"}


class NoSource(ObjectSource):
    async def batches(self) -> AsyncIterator[Batch]:
        raise NotImplementedError
        yield


class Running(Sink):
    """Lasthop on a folder, but for its event loop and its proxies. Every port is free."""

    def __init__(self, folder: Path, state: Path) -> None:
        self._loader = Loader(folder, StateDirectory(state))
        self._controller = Controller(NoSource(), Engine(now=time.time()), lambda: STORE, (self,))
        self._remembered, self._encode = state / memory.FILE, codec.Encoder()
        if isinstance(stored := memory.load(self._remembered), codec.Memory):
            self._controller.recall(stored)
        self.look()

    def want(self, gateways: Mapping[Key, GatewayPlan]) -> None:
        for name, plan in gateways.items():
            for address in plan.addresses:
                for listener in plan.listeners:
                    BIND_RESULT.set(
                        self._controller.engine.graph, BindResult(), name, address, listener.port, listener.transport
                    )

    def look(self) -> None:
        if (batch := self._loader.apply(self._loader.look())) is not None:
            self._controller.take(batch)
        for _ in range(3):
            self._controller.settle()
        self._loader.save()
        memory.save(self._remembered, self._controller.remembered(), self._encode)

    def resources(self, *type_urls: str) -> dict[tuple[str, str], bytes]:
        return {
            (type_url, resource.name): resource.body
            for proxies in self._controller.fleet.gateways.values()
            for type_url in type_urls
            for resource in map(proxies.cache.get, repeat(type_url), proxies.cache.names(type_url))
            if isinstance(resource, Resource)
        }

    @property
    def xds(self) -> dict[tuple[str, str], bytes]:
        return self.resources(CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET)

    def connections(self) -> dict[str, bool]:
        """Returns the Services that are connected to, by the port of their endpoint, and whether by TLS."""
        ports = {}
        for (_, name), body in self.resources(ENDPOINTS).items():
            assignment = endpoint_pb2.ClusterLoadAssignment.FromString(body)
            for locality in assignment.endpoints:
                for endpoint in locality.lb_endpoints:
                    ports[name] = endpoint.endpoint.address.socket_address.port_value
        services = {port: service for service, port in PORTS.items()}
        connected: dict[str, bool] = {}
        for body in self.resources(CLUSTER).values():
            cluster = cluster_pb2.Cluster.FromString(body)
            if service := services.get(ports.get(cluster.eds_cluster_config.service_name, 0)):
                connected[service] = cluster.HasField("transport_socket") and connected.get(service, True)
        return connected


class World:
    def __init__(self, root: Path, linked: bool) -> None:
        self._root = root
        self._folder = Folder(root, linked, TOKENS)
        self.oracle = Oracle()
        self.running: Running | None = None

    def play(self, step: Step) -> None:
        self.oracle.take(step)
        if step.lose:
            for path in (self._root / "state").glob(LOST[step.lose]):
                path.unlink()
        self._folder.play(step)
        if step.process or self.running is None:
            self.running = Running(self._folder.path, self._root / "state")
        else:
            self.running.look()
        plaintext = {service for service, tls in self.running.connections().items() if not tls}
        assert not plaintext & self.oracle.forbidden, step.why
        if step.whole:
            self.whole(plaintext)

    def whole(self, plaintext: set[str]) -> None:
        """Every text is good."""
        assert self.running is not None
        assert plaintext == self.oracle.reachable - self.oracle.verified
        assert {service for service, tls in self.running.connections().items() if tls} == self.oracle.verified
        with tempfile.TemporaryDirectory() as empty:
            assert self.running.xds == Running(self._folder.path, Path(empty)).xds


def play(r: Random, steps: int) -> None:
    generator = Generator(r, processes=False, huge=False)
    with tempfile.TemporaryDirectory() as name:
        coming = generator.steps()
        first = next(coming)
        world, played = World(Path(name), generator.linked), [first]
        while True:
            try:
                world.play(played[-1])
            except AssertionError:
                note(dump(History(tuple(played), generator.linked)))
                raise
            if len(played) >= steps and played[-1].whole:
                return
            played.append(next(coming))


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_no_port_becomes_plaintext_while_a_text_is_unknown_and_good_texts_end_as_a_fresh_start(r: Random) -> None:
    play(r, 12)


BRAVO = Policy("p-bravo", "shop", ("bravo",))


def hop(service: str) -> Edit:
    return Edit(hop_file(service), f"@HOP {service}:443@\n", hops=(f"{service}:443",))


def moved_into(edit: Edit) -> tuple[Step, ...]:
    """A policy is in force; it moves into this text; its route goes and comes; everything is forgotten; it is back."""
    good = Edit("bp.yaml", BRAVO.text, names=BRAVO.services)
    return (
        Step((*BASE, hop("shop/alpha"), hop("shop/bravo"), good), process="term", why="start"),
        Step((edit, Edit("bp.yaml")), why="moved"),
        Step((Edit(hop_file("shop/bravo")),), why="the route goes"),
        Step((hop("shop/bravo"),), why="the route comes"),
        Step(process="term", lose="all", why="everything is forgotten"),
        Step((good, Edit(edit.path)), whole=True, why="mended"),
    )


MISTAKES: dict[str, tuple[Breakage, Concerned]] = {
    **{name: (broken, BRAVO.services) for name, broken in NAMED.items()},
    **{name: (broken, ALL) for name, broken in HIDDEN.items()},
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_policy_that_moves_into_a_text_with_a_mistake_is_not_absent(name: str, tmp_path: Path) -> None:
    broken, unknown = MISTAKES[name]
    world = World(tmp_path, linked=False)
    for step in moved_into(Edit("new.yaml", broken(BRAVO.text, Random(name)), unknown=unknown, how=name)):
        world.play(step)


WHOLE: dict[str, tuple[Callable[[str], Text], Concerned]] = {
    **{name: (broken, BRAVO.services) for name, broken in WHOLE_NAMED.items()},
    **{name: (broken, ALL) for name, broken in WHOLE_HIDDEN.items()},
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_policy_that_moves_into_a_text_of_odd_bytes_is_not_absent(name: str, tmp_path: Path) -> None:
    broken, unknown = WHOLE[name]
    text = broken(BRAVO.text)
    world = World(tmp_path, linked=False)
    for step in moved_into(Edit("new.yaml", text.text, text.encoding, text.pad, unknown=unknown, how=name)):
        world.play(step)


JSON: dict[str, tuple[Callable[[str], str], Concerned]] = {
    **{name: (broken, BRAVO.services) for name, broken in JSON_NAMED.items()},
    **{name: (broken, ALL) for name, broken in JSON_HIDDEN.items()},
}


@pytest.mark.parametrize("name", JSON)
def test_a_policy_that_moves_into_json_with_a_mistake_is_not_absent(name: str, tmp_path: Path) -> None:
    broken, unknown = JSON[name]
    text = broken(GOOD["json list"]([BRAVO.text], Random(name)).text)
    world = World(tmp_path, linked=False)
    for step in moved_into(Edit("new.json", text, unknown=unknown, how=name)):
        world.play(step)


@pytest.mark.parametrize("name", GOOD)
def test_a_policy_in_a_good_text_is_in_force_however_it_is_spelt(name: str, tmp_path: Path) -> None:
    text = GOOD[name]([BRAVO.text], Random(name))
    world = World(tmp_path, linked=False)
    spelt = Edit("new.yaml", text.text, text.encoding, names=BRAVO.services, how=name)
    for step in (
        Step((*BASE, hop("shop/alpha"), hop("shop/bravo")), process="term", whole=True, why="start"),
        Step((spelt,), whole=True, why="it comes"),
        Step((Edit("new.yaml"),), whole=True, why="it goes"),
    ):
        world.play(step)


@pytest.mark.parametrize("odd", ["fifo", "socket", "dangling", "loop", "unreadable"])
def test_a_policy_whose_file_becomes_something_else_is_not_absent(odd: Odd, tmp_path: Path) -> None:
    world = World(tmp_path, linked=False)
    good = Edit("bp.yaml", BRAVO.text, names=BRAVO.services)
    for step in (
        Step((*BASE, hop("shop/bravo"), good), process="term", why="start"),
        Step((Edit("bp.yaml", odd=odd, unknown=BRAVO.services),), why=odd),
        Step(process="term", lose="all", why="everything is forgotten"),
        Step((good,), whole=True, why="mended"),
    ):
        world.play(step)


LINES = BRAVO.text.splitlines(keepends=True)
SWALLOWED = listed(FILLER.format("beside").replace("data: {}", "data:\n  note: 'oops"), BRAVO.text.rstrip() + "'\n")
LOST_IN = {
    **{f"cut in line {n}": "".join(LINES[:n])[:-2] for n in range(3, len(LINES) - 4)},
    "swallowed by a quote": SWALLOWED,
}


@pytest.mark.parametrize("name", LOST_IN)
def test_a_policy_whose_text_ends_early_or_is_inside_a_value_is_not_absent(name: str, tmp_path: Path) -> None:
    world = World(tmp_path, linked=False)
    for step in moved_into(Edit("new.yaml", LOST_IN[name], unknown=BRAVO.services, how=name)):
        world.play(step)

"""The cost of an edit does not depend on the number of other objects: reads, recomputations and bytes to Envoy, counted.

No clock: the counts are the same on every machine.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Callable
from types import FrameType
from typing import Any

import pytest

from lasthop.base.api import times
from lasthop.base.api.meta import Key, Object
from lasthop.edge.sinks.sink import Sink
from lasthop.edge.sources.source import Batch, ObjectSource
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy import encoded_routes, route_messages
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, ROUTES, Resource
from lasthop.engine.outputs.envoy.route_index import leaves
from lasthop.engine.resolve.backends import backends
from lasthop.run.controller import Controller
from tests.snapshot import Snapshot, settle
from tests.world import (
    NOW,
    STREAMS,
    ca_pem,
    key_pair,
    keyed,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_listener_set,
    mk_policy,
    mk_route,
    mk_secret,
    mk_service,
    mk_slice,
    mk_stream_route,
)

SMALL, LARGE = 20, 200
Edit = Callable[[], dict[Key, Object | None]]


def world(size: int) -> Engine:
    engine = Engine(now=NOW.timestamp())
    engine.apply(keyed(mk_class(), mk_gateway("a/gw"), mk_config_map("a/shared", ca_pem("shared"))))
    for number in range(size):
        name = f"s{number:04}"
        engine.apply(
            keyed(
                mk_service(f"a/{name}"),
                mk_slice(f"a/{name}", name, ["10.0.0.1"]),
                mk_route(f"a/{name}", "a/gw", [{"name": name, "port": 443}], [f"{name}.example"]),
                # One private CA and one shared CA: the edits below touch only the first.
                mk_config_map(f"a/{name}", ca_pem("own")),
                mk_policy(f"a/{name}", name, "api.example", [name, "shared"]),
            )
        )
    settle(engine, Snapshot())
    return engine


def cost(size: int, edit: Edit, made: Callable[[int], Engine] = world) -> tuple[int, int, dict[str, int]]:
    """(reads, recomputed queries, bytes to Envoy by type) of one edit."""
    engine = made(size)
    engine.graph.reads = engine.graph.recomputed = 0
    engine.apply(edit())
    update = engine.settle()
    sent = {
        type_url: sum(len(c.body) + len(c.name) if isinstance(c, Resource) else len(name) for name, c in changes.items())
        for by_type in update.xds.values()
        for type_url, changes in by_type.items()
    }
    return engine.graph.reads, engine.graph.recomputed, sent


NAME = "s0007"
EDITS: dict[str, tuple[Edit, set[str]]] = {
    "policy": (lambda: keyed(mk_policy(f"a/{NAME}", NAME, "new.example", [NAME, "shared"])), {CLUSTER, ENDPOINTS}),
    "policy becomes invalid": (lambda: keyed(mk_policy(f"a/{NAME}", NAME, "new.example", ["missing"])), {CLUSTER, ENDPOINTS}),
    "policy deleted": (lambda: {Key("BackendTLSPolicy", "a", NAME): None}, {CLUSTER, ENDPOINTS}),
    "CA ConfigMap": (lambda: keyed(mk_config_map(f"a/{NAME}", ca_pem("rotated"))), {CLUSTER, ENDPOINTS}),
    "endpoints": (lambda: keyed(mk_slice(f"a/{NAME}", NAME, ["10.0.0.2"])), {ENDPOINTS}),
    "an object without references": (lambda: keyed(mk_config_map("a/unrelated", "x")), set()),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_costs_the_same_in_a_world_ten_times_as_large(edit: str) -> None:
    change, types = EDITS[edit]
    small, large = cost(SMALL, change), cost(LARGE, change)
    assert small == large
    assert small[2].keys() == types


def test_a_policy_with_its_route_service_and_slice_is_kept_in_36_nodes() -> None:
    """Each node takes about 0.3 KiB (docs/performance.md#start). Its private CA adds two."""
    small, large = world(SMALL).graph, world(LARGE).graph
    assert len(large.nodes) - len(small.nodes) == (LARGE - SMALL) * (36 + 2)


def test_a_route_edit_recomputes_the_same_and_sends_its_route_table_and_nothing_else() -> None:
    """Its RouteConfiguration grows with its hosts (docs/measurements.md#route-edits), reads and queries do not."""

    def edit() -> dict[Key, Object | None]:
        rule = {"matches": [{"path": {"value": "/new"}}], "backendRefs": [{"name": NAME, "port": 443}]}
        return keyed(mk_route(f"a/{NAME}", "a/gw", [], [f"{NAME}.example"], rules=[rule]))

    small, large = cost(SMALL, edit), cost(LARGE, edit)
    assert small[:2] == large[:2]
    assert small[2].keys() == large[2].keys() == {ROUTES}


def shared_host(size: int) -> Engine:
    """As many routes, all under one hostname."""
    engine = Engine(now=NOW.timestamp())
    engine.apply(keyed(mk_class(), mk_gateway("a/gw"), mk_service("a/s")))
    engine.apply(keyed(*(under_shared_host(number) for number in range(size))))
    settle(engine, Snapshot())
    return engine


def under_shared_host(number: int, path: str = "") -> Object:
    rule = {"matches": [{"path": {"value": path or f"/{number}"}}], "backendRefs": [{"name": "s", "port": 443}]}
    return mk_route(f"a/r{number:04}", "a/gw", [], ["shared.example"], rules=[rule])


@pytest.mark.parametrize(
    "edited", [lambda: keyed(under_shared_host(7, "/new")), lambda: {Key("HTTPRoute", "a", "r0007"): None}]
)
def test_an_edit_of_one_of_many_routes_of_a_host_encodes_that_one_alone(edited: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host that joins them reads one value for each; nothing else is worked out again."""
    encoded: list[str] = []

    def counted(route: Any, listening: Any) -> Any:
        encoded.append(route.match.path)
        return route_messages.envoy_routes(route, listening)

    monkeypatch.setattr(encoded_routes, "envoy_routes", counted)
    small = cost(SMALL, edited, shared_host)
    encoded.clear()
    engine = shared_host(LARGE)
    assert len(encoded) == LARGE
    encoded.clear()
    engine.graph.reads = engine.graph.recomputed = 0
    engine.apply(edited())
    engine.settle()
    assert engine.graph.recomputed == small[1]
    assert engine.graph.reads - small[0] <= 3 * (LARGE - SMALL)
    assert encoded in (["/new"], [])


@pytest.mark.parametrize("nested", [False, True])
def test_the_index_of_paths_takes_no_more_steps_for_longer_paths(nested: bool) -> None:
    """Each path is compared with the one before it in sorted order, and with as many before that as it does not begin with."""

    class Path(str):
        compared = 0

        def startswith(self, *args: Any) -> bool:
            Path.compared += 1
            return super().startswith(*args)

    def steps(length: int, count: int) -> int:
        Path.compared = 0
        paths = [Path("/x" * (n + 1) if nested else f"/{n:05}".ljust(length, "x")) for n in range(count)]
        leaves(paths, most=8 * count)
        return Path.compared

    assert steps(10, 200) == steps(1_000, 200)
    assert steps(10, 400) <= 2.1 * steps(10, 200)


def test_a_route_that_comes_costs_the_same_in_a_world_ten_times_as_large() -> None:
    def edit() -> dict[Key, Object | None]:
        return keyed(mk_route("a/new", "a/gw", [{"name": NAME, "port": 443}], ["new.example"]))

    assert cost(SMALL, edit)[:2] == cost(LARGE, edit)[:2]


def stream_world(size: int) -> Engine:
    """Makes as many TLSRoutes on one listener, each with its own policy."""
    engine = Engine(now=NOW.timestamp())
    engine.apply(keyed(mk_class(), mk_gateway("a/gw", STREAMS[1:2]), mk_secret("a/k0", *key_pair("k0"))))
    for number in range(size):
        name = f"s{number:04}"
        engine.apply(
            keyed(
                mk_service(f"a/{name}"),
                mk_stream_route("TLSRoute", f"a/{name}", "a/gw", [{"name": name, "port": 443}], [f"{name}.example"]),
                mk_config_map(f"a/{name}", ca_pem("own")),
                mk_policy(f"a/{name}", name, "api.example", [name]),
            )
        )
    settle(engine, Snapshot())
    return engine


STREAM_EDITS: dict[str, Edit] = {
    "policy": lambda: keyed(mk_policy(f"a/{NAME}", NAME, "new.example", [NAME])),
    "route": lambda: keyed(mk_stream_route("TLSRoute", f"a/{NAME}", "a/gw", [{"name": "s0001", "port": 443}], ["x.example"])),
    "new route": lambda: keyed(mk_stream_route("TLSRoute", "a/new", "a/gw", [{"name": "s0001", "port": 443}], ["n.example"])),
}


@pytest.mark.parametrize("edit", STREAM_EDITS)
def test_an_edit_of_a_stream_costs_the_same_in_a_world_ten_times_as_large(edit: str) -> None:
    """But for the last join of its listener's bytes."""
    change = STREAM_EDITS[edit]
    assert cost(SMALL, change, stream_world)[:2] == cost(LARGE, change, stream_world)[:2]


def test_a_route_on_a_listener_set_costs_the_same_among_ten_times_as_many_sets() -> None:
    def cost_among(size: int) -> tuple[int, int]:
        engine = Engine(now=NOW.timestamp())
        engine.apply(
            keyed(mk_class(), mk_gateway("a/gw", allowedListeners={"namespaces": {"from": "All"}}), mk_service("a/s"))
        )
        for number in range(size):
            listener = {"name": "http", "port": 80, "protocol": "HTTP", "hostname": f"h{number}.example"}
            engine.apply(keyed(mk_listener_set(f"a/l{number}", "a/gw", [listener]), of_set(number)))
        settle(engine, Snapshot())
        engine.graph.reads = engine.graph.recomputed = 0
        engine.apply(keyed(of_set(7, path="/new")))
        engine.settle()
        return engine.graph.reads, engine.graph.recomputed

    assert cost_among(SMALL) == cost_among(LARGE)


def of_set(number: int, path: str = "/") -> Object:
    rule = {"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "s", "port": 443}]}
    return mk_route(f"a/r{number}", "", [], parents=[{"kind": "ListenerSet", "name": f"l{number}"}], rules=[rule])


def test_a_shared_ca_rebuilds_the_clusters_that_use_it_and_wakes_no_status() -> None:
    engine = world(SMALL)
    engine.apply(keyed(mk_config_map("a/shared", ca_pem("rotated"))))
    update = engine.settle()
    assert update.status == {}
    assert not update.findings
    assert {t: len(c) for by_type in update.xds.values() for t, c in by_type.items()} == {
        CLUSTER: SMALL,
        ENDPOINTS: 2 * SMALL,
    }


def test_an_edit_of_one_of_many_slices_of_a_service_judges_the_addresses_of_that_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(now=NOW.timestamp())
    slices = [mk_slice(f"a/s-{n}", "s", [f"10.0.{n}.{host}" for host in range(50)]) for n in range(20)]
    route = mk_route("a/r", "a/gw", [{"name": "s", "port": 443}])
    engine.apply(keyed(mk_class(), mk_gateway("a/gw"), mk_service("a/s"), route, *slices))
    settle(engine, Snapshot())
    judged: list[str] = []

    def judge(address: str) -> bool:
        judged.append(address)
        return True

    monkeypatch.setattr(backends, "is_ip", judge)
    engine.apply(keyed(mk_slice("a/s-7", "s", ["10.0.7.1", "10.0.7.2"])))
    changes = engine.settle().xds[Key("Gateway", "a", "gw")][ENDPOINTS]
    assert sorted(judged) == ["10.0.7.1", "10.0.7.2"]
    assert len(changes) == 1


class NoSource(ObjectSource):
    async def batches(self) -> AsyncIterator[Batch]:
        raise NotImplementedError
        yield


def expiring(size: int) -> Controller:
    """As many policies, each with a CA that expires within the month, which is a finding on each."""
    made = Controller(NoSource(), Engine(now=NOW.timestamp()), lambda: None, [Sink()])
    objects: list[Object] = [mk_class(), mk_gateway("a/gw")]
    for number in range(size):
        name = f"s{number:04}"
        objects += [
            mk_service(f"a/{name}"),
            mk_route(f"a/{name}", "a/gw", [{"name": name, "port": 443}], [f"{name}.example"]),
            mk_config_map(f"a/{name}", ca_pem("soon", days=9)),
            mk_policy(f"a/{name}", name, "api.example", [name]),
        ]
    made.take(Batch(keyed(*objects)))
    made.settle()  # everything has been compared once, so that the record has begun
    assert len(made.findings()) >= size
    return made


def steps(controller: Controller, edit: dict[Key, Object | None]) -> int:
    """Counts the function calls and resumed generators of one edit, from the batch to its reports."""
    count = 0
    cached = vars(times)["_of_second"].__wrapped__.__code__  # runs once in a second, whichever edit comes first in it

    def entered(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is not cached

    gc.disable()  # garbage of other tests and callbacks of collections would be counted
    sys.setprofile(entered)
    try:
        controller.take(Batch(edit))
        controller.settle()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_an_edit_among_many_objects_that_have_findings_takes_as_many_steps_as_among_few() -> None:
    edits = [keyed(mk_policy(f"a/{NAME}", NAME, f"{n}.example", [NAME])) for n in range(2)]
    small, large = expiring(SMALL), expiring(LARGE)
    for controller in (small, large):
        steps(controller, edits[0])
    assert steps(small, edits[1]) == steps(large, edits[1])


def test_a_finding_costs_equal_steps_among_many_and_among_few() -> None:
    edits = [keyed(mk_policy(f"a/{NAME}", NAME, "api.example", [ca])) for ca in ("missing", NAME)]
    small, large = expiring(SMALL), expiring(LARGE)
    for edit in edits:
        assert steps(small, edit) == steps(large, edit)

"""After any history, configuration and reports equal those of a fresh start on the same input.

State outside the graph (marks of plaintext ports, refusals, acknowledgements of proxies, reported problems) must not affect
the final result. Three things are remembered on purpose: while not every policy is known, which ports were plaintext before
(test_promises has that); for a few seconds, what a proxy that has gone had; and that a Service has lost its policy, which is a
finding and decides nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from itertools import repeat
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lasthop.base.api.bundle import CrdVersion, CrdVersions
from lasthop.base.api.meta import Key, Object
from lasthop.edge.sinks.sink import Sink
from lasthop.edge.sources.source import Batch, ObjectSource
from lasthop.edge.xds.cache import Cache
from lasthop.edge.xds.session import Acked, Nacked
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.quarantine import withhold
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, SECRET, Part, Resource
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.plan.tls import SystemStore
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from lasthop.engine.resolve.settings import CRD_VERSIONS, PROXY, SYSTEM_STORE
from lasthop.run.controller import Controller
from tests.examples import slow
from tests.random_world import BASE, EDIT
from tests.snapshot import Snapshot, said, settle, told
from tests.world import NOW, STORE, UNREAD, key

# --- the engine -------------------------------------------------------------------------------------------------------

STORES = (STORE, None, SystemStore("/other.pem", "other"))
STEPS = st.one_of(
    st.tuples(st.just("edit"), EDIT),
    st.tuples(st.just("edit"), EDIT),
    st.tuples(st.just("known"), st.booleans()),
    st.tuples(st.just("hours"), st.integers(1, 300)),
    st.tuples(st.just("versions"), st.sampled_from(["v1.7.0", "v1.4.1", ""])),
    st.tuples(st.just("store"), st.sampled_from(STORES)),
    st.tuples(st.just("quarantine"), st.tuples(st.integers(0, 1000), st.booleans())),
    st.tuples(st.just("proxy"), st.tuples(st.integers(0, 3), st.booleans())),
    st.tuples(st.just("settle"), st.sampled_from([None, 1, 5])),
)


def crds(release: str) -> CrdVersions:
    return (("httproutes.gateway.networking.k8s.io", CrdVersion(release)),) if release else ()


class Inputs:
    """The inputs of an engine, to replay them to another one."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object | None] = dict(BASE)
        self.now = NOW
        self.versions, self.store = "", STORES[0]
        self.quarantined: dict[tuple[str, str, str], str] = {}

    def tell(self, engine: Engine) -> Snapshot:
        """All at once."""
        snapshot = Snapshot()
        self.tell_rest(engine)
        for part, complaint in self.quarantined.items():
            withhold(engine.graph, Part(*part), complaint)
        engine.apply({key: obj for key, obj in self.objects.items() if obj is not None})
        settle(engine, snapshot)
        return snapshot

    def tell_rest(self, engine: Engine) -> None:
        engine.advance(self.now.timestamp())
        CRD_VERSIONS.set(engine.graph, crds(self.versions))
        SYSTEM_STORE.set(engine.graph, self.store)


@settings(slow(35), suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=5, max_size=25))
def test_an_engine_with_a_history_ends_as_a_fresh_one(steps: list[tuple[str, Any]]) -> None:
    inputs, engine, snapshot = Inputs(), Engine(now=NOW.timestamp()), Snapshot()
    inputs.tell_rest(engine)
    engine.apply(BASE)
    settle(engine, snapshot)
    for step, value in steps:
        take(inputs, engine, snapshot, step, value)
    engine.policies.set_unknown(())
    settle(engine, snapshot)
    other = Engine(now=inputs.now.timestamp())
    expected = inputs.tell(other)
    assert engine.graph.crashes == other.graph.crashes == {}
    assert snapshot.xds == expected.xds
    assert said(snapshot.status) == said(expected.status)
    assert told(engine.findings()) == told(other.findings())
    assert engine.policies.marks == {}


def take(inputs: Inputs, engine: Engine, snapshot: Snapshot, step: str, value: Any) -> None:
    match step:
        case "edit":
            obj, delete, look = value
            inputs.objects[key(obj)] = None if delete else obj
            engine.apply({key(obj): inputs.objects[key(obj)]})
            if look:
                settle(engine, snapshot)
        case "known":
            engine.policies.set_unknown(() if value else UNREAD)
        case "hours":
            inputs.now += timedelta(hours=value)
            inputs.tell_rest(engine)
        case "versions":
            inputs.versions = value
            inputs.tell_rest(engine)
        case "store":
            inputs.store = value
            inputs.tell_rest(engine)
        case "quarantine":
            number, release = value
            parts = {(r.type_url, part, hash) for r in snapshot.xds.values() for part, hash in r.parts.items()}
            choice = sorted(inputs.quarantined if release else parts)
            if choice:
                type_url, name, hash = part = choice[number % len(choice)]
                complaint = None if release else "no"
                withhold(engine.graph, Part(type_url, name, hash), complaint)
                inputs.quarantined.pop(part, None)
                inputs.quarantined |= {part: complaint} if complaint else {}
        case "proxy":
            number, here = value
            gateways = engine.store.keys("Gateway")
            if gateways:
                state = ProxyState.acknowledged({(80, "TCP")}, True, "") if here else ProxyState()
                PROXY.set(engine.graph, state, gateways[number % len(gateways)])
        case "settle":
            snapshot.take(engine.settle(value))


# --- the controller, with proxies -------------------------------------------------------------------------------------


class NoSource(ObjectSource):
    async def batches(self) -> AsyncIterator[Batch]:
        raise NotImplementedError
        yield


class Site(Sink):
    """A controller on a host where every port is free, with at most one proxy for each Gateway."""

    def __init__(self) -> None:
        self.controller = Controller(NoSource(), Engine(now=time.time()), lambda: STORE, (self,))
        self.proxies: dict[Key, Proxy] = {}

    def want(self, gateways: Mapping[Key, GatewayPlan]) -> None:
        for name, plan in gateways.items():
            for address in plan.addresses:
                for listener in plan.listeners:
                    BIND_RESULT.set(
                        self.controller.engine.graph, BindResult(), name, address, listener.port, listener.transport
                    )
        for name in self.proxies.keys() - gateways.keys():
            del self.proxies[name]

    def connect(self, name: Key) -> None:
        if name in self.controller.fleet.gateways and name not in self.proxies:
            self.proxies[name] = Proxy(self.controller, name)
            self.controller.connected(name)

    def disconnect(self, name: Key) -> None:
        if self.proxies.pop(name, None):
            self.controller.disconnected(name)

    def rest(self) -> None:
        """Repeats until no part has more output."""
        for _ in range(200):
            self.controller.settle()
            if not (any([proxy.take() for proxy in list(self.proxies.values())]) or self.controller.engine.unsettled):
                return
        raise AssertionError("never comes to rest")

    def state(self) -> tuple[Any, ...]:
        known = self.controller.fleet.gateways.items()
        caches = {
            (name, type_url, resource.name): resource.body
            for name, proxies in known
            for type_url in (CLUSTER, LISTENER, ROUTES, SECRET)
            for resource in map(proxies.cache.get, repeat(type_url), proxies.cache.names(type_url))
            if isinstance(resource, Resource)
        }
        book = self.controller.statuses
        statuses = {name: status for name in book.keys() if (status := book.get(name))}  # noqa: SIM118
        proxies = {name: (proxies.withheld, proxies.problem, proxies.state) for name, proxies in known}
        return caches, said(statuses), told(self.controller.findings()), proxies


class Proxy:
    """Accepts its resources one after the other, except those that it rejects, and listens only on the given ports."""

    def __init__(self, controller: Controller, gateway: Key) -> None:
        self._controller, self._gateway = controller, gateway
        self._answered: dict[str, dict[str, str]] = {}
        """The versions that it was given last, by type and name. A refused one is offered again after any other, and what it
        has after a refused one: the server cannot know what is left of it."""

    def take(self) -> bool:
        """Returns whether it had output."""
        busy = False
        known = self._controller.fleet.gateways.get(self._gateway)
        cache = known.cache if known else Cache()
        for type_url in (CLUSTER, SECRET, LISTENER, ROUTES):
            answered = self._answered.setdefault(type_url, {})
            there = {name: cache.get(type_url, name) for name in cache.names(type_url)}
            gone = frozenset(name for name in answered if not isinstance(there.get(name), Resource))
            for name in gone:
                del answered[name]
            if gone:
                busy = True
                self._controller.acked(self._gateway, Acked(type_url, {}, gone))
            for name, resource in there.items():
                if not isinstance(resource, Resource) or resource.version == answered.get(name):
                    continue
                busy, answered[name] = True, resource.version
                if why := unbearable(resource):
                    self._controller.nacked(self._gateway, Nacked(type_url, {name: resource}, why))
                else:
                    self._controller.acked(self._gateway, Acked(type_url, {name: resource}))
        return busy


def unbearable(resource: Resource) -> str:
    """Why this imaginary Envoy refuses something that is quite all right."""
    match resource.type_url:
        case _ if resource.type_url == CLUSTER and b"old.example" in resource.body:
            return f"Error adding/updating cluster(s) {resource.name}: old"
        case _ if resource.type_url == ROUTES and b"/a/b" in resource.body:
            return "no such path"
        case _ if resource.type_url == LISTENER and resource.name.endswith("/8080"):
            return f"Error adding/updating listener(s) {resource.name}: cannot bind '0.0.0.0:8080': Address already in use"
    return ""


GATEWAYS = [Key("Gateway", ns, name) for ns in "ab" for name in ("g0", "g1")]
EVENTS = st.one_of(
    st.tuples(st.just("edit"), st.lists(EDIT, min_size=1, max_size=3)),
    st.tuples(st.just("edit"), st.lists(EDIT, min_size=1, max_size=3)),
    st.tuples(st.just("edit"), st.lists(EDIT, min_size=1, max_size=3)),
    st.tuples(st.just("known"), st.booleans()),
    st.tuples(st.just("versions"), st.sampled_from(["v1.7.0", "v1.4.1"])),
    st.tuples(st.just("connect"), st.sampled_from(GATEWAYS)),
    st.tuples(st.just("disconnect"), st.sampled_from(GATEWAYS)),
    st.tuples(st.just("take"), st.sampled_from(GATEWAYS)),
    st.tuples(st.just("rest"), st.none()),
)


@settings(slow(35), suppress_health_check=list(HealthCheck))
@given(st.lists(EVENTS, min_size=5, max_size=25))
def test_a_controller_with_a_history_ends_as_a_fresh_one(events: list[tuple[str, Any]]) -> None:
    site, objects, known = Site(), dict(BASE), True
    versions: CrdVersions = ()
    site.controller.take(Batch(dict(objects)))
    for event, value in events:
        match event:
            case "edit":
                changes = {key(obj): None if delete else obj for obj, delete, _ in value}
                objects |= changes
                site.controller.take(Batch(changes, unknown=() if known else UNREAD, crd_versions=versions))
                if value[-1][2]:
                    site.controller.settle(3)
            case "known" | "versions":
                known, versions = (value, versions) if event == "known" else (known, crds(value))
                site.controller.take(Batch({}, unknown=() if known else UNREAD, crd_versions=versions))
            case "connect":
                site.connect(value)
            case "disconnect":
                site.disconnect(value)
            case "take" if value in site.proxies:
                site.proxies[value].take()
            case "rest":
                site.rest()
    site.controller.take(Batch({}, crd_versions=versions))
    other = Site()
    other.controller.take(Batch({key: obj for key, obj in objects.items() if obj is not None}, crd_versions=versions))
    for controlled in (site, other):
        controlled.rest()
        for name in GATEWAYS:
            controlled.connect(name)
        controlled.rest()
        controlled.controller.do(controlled.controller.fleet.expire(math.inf))
        controlled.rest()
    for actual, expected in zip(site.state(), other.state(), strict=True):
        assert actual == expected
    withheld = (part for proxies in site.controller.fleet.gateways.values() for part in proxies.withheld)
    assert [part for part in withheld if part.type_url == ROUTES and part.owner and not guilty(objects[part.owner])] == []


def guilty(route: Object | None) -> bool:
    return "/a/b" in repr(route)

"""The controller without its edges: batches and acknowledgements in; what the proxies are to hold, status and findings out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from lasthop.api.kinds import KINDS
from lasthop.api.meta import Key
from lasthop.controller import SLICE, Controller, gateway_key
from lasthop.host import HostController
from lasthop.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, Resource, Withdrawal
from lasthop.outputs.status.summary import summary
from lasthop.proxy.entry import Entry
from lasthop.proxy.find import Envoy
from lasthop.resolve.ports import Probe
from lasthop.sources.source import Batch
from lasthop.xds.events import Acked, Nacked
from lasthop.xds.presence import EXPIRES, LINGER, Report, Standing
from tests.world import ca_pem, keyed, mk_class, mk_config_map, mk_gateway, mk_policy, mk_route, mk_service

GATEWAY = "a/gw"
HOP = "a/gw/a/api/443/auto"


class NoSource:
    async def batches(self) -> AsyncIterator[Batch]:
        await asyncio.Event().wait()
        yield Batch({})


@pytest.fixture
async def controller(tmp_path: Path) -> Controller:
    found = HostController(NoSource(), Envoy(Path("/no/envoy"), (1, 40, 0)), tmp_path)
    objects = keyed(
        mk_class(),
        mk_gateway(GATEWAY),
        mk_service("a/api"),
        mk_service("a/other"),
        mk_config_map("a/ca", ca_pem("good")),
        mk_policy("a/p", "api", "api.example", ["ca"]),
        mk_route("a/r", GATEWAY, [{"name": "api", "port": 443}], ["one.example"]),
        mk_route("a/s", GATEWAY, [{"name": "other", "port": 443}], ["two.example"]),
    )
    found.take(Batch(objects))
    found.engine.set_probe(Key("Gateway", "a", "gw"), "0.0.0.0", 80, Probe())
    found._settle()
    return found


def held(controller: Controller, type_url: str, name: str) -> Resource:
    cache = controller.server.cache(GATEWAY)
    assert cache is not None
    change = cache.get(type_url, name)
    assert isinstance(change, Resource), change
    return change


def test_a_cluster_that_envoy_refuses_is_taken_away_at_once_and_reported_until_it_is_edited(controller: Controller) -> None:
    bad, good = held(controller, CLUSTER, HOP), held(controller, CLUSTER, "a/gw/a/other/443/auto")
    detail = f"Error adding/updating cluster(s) {HOP}: bad"
    controller.nacked(GATEWAY, Nacked(CLUSTER, {HOP: bad, good.name: good}, detail))
    controller._settle()
    cache = controller.server.cache(GATEWAY)
    assert cache is not None
    assert cache.get(CLUSTER, HOP) == Withdrawal(urgent=True)
    assert held(controller, CLUSTER, good.name) == good
    assert [f.object for f in controller.findings() if f.reason == "RefusedByProxy"] == [Key("Service", "a", "api")]

    controller.take(Batch(keyed(mk_policy("a/p", "api", "other.example", ["ca"]))))
    controller._settle()
    assert held(controller, CLUSTER, HOP).version != bad.version


def test_a_route_that_envoy_refuses_answers_500_while_the_others_are_served(controller: Controller) -> None:
    table = held(controller, ROUTES, "a/gw/80")
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: table}))
    rule = {"matches": [{"path": {"value": "/new"}}], "backendRefs": [{"name": "api", "port": 443}]}
    controller.take(Batch(keyed(mk_route("a/r", GATEWAY, [], ["one.example"], rules=[rule]))))
    controller._settle()
    refused = held(controller, ROUTES, "a/gw/80")
    controller.nacked(GATEWAY, Nacked(ROUTES, {refused.name: refused}, "no good"))
    controller._settle()
    served = held(controller, ROUTES, "a/gw/80")
    one, two = "a/gw/80#one.example#HTTPRoute a/r", "a/gw/80#two.example#HTTPRoute a/s"
    assert served.parts[two] == refused.parts[two] and served.parts[one] != refused.parts[one]
    assert b"a/gw/a/api" not in served.body and b"a/gw/a/other" in served.body
    assert [f.object for f in controller.findings() if f.reason == "RefusedByProxy"] == [Key("HTTPRoute", "a", "r")]
    status = controller.book.get(Key("HTTPRoute", "a", "r"))
    accepted = next(c for c in status.parents[0].conditions if c.type == "Accepted")  # type: ignore[union-attr]
    assert (accepted.status, accepted.reason) == ("False", "RefusedByProxy") and "no good" in accepted.message


def test_a_gateway_that_goes_and_comes_back_before_all_is_worked_out_has_all_its_clusters(controller: Controller) -> None:
    key, gateway = Key("Gateway", "a", "gw"), controller.engine.store.get(Key("Gateway", "a", "gw"))
    before = controller._served(key, CLUSTER)
    controller.take(Batch({key: None}))
    controller._settle(1)
    assert controller.engine.unsettled
    controller.take(Batch({key: gateway}))
    while controller.engine.unsettled:
        controller._settle(1)
    assert before and controller._served(key, CLUSTER) == before


def test_what_envoy_refused_is_tried_again_when_its_gateway_comes_back(controller: Controller) -> None:
    key, gateway = Key("Gateway", "a", "gw"), controller.engine.store.get(Key("Gateway", "a", "gw"))
    bad = held(controller, CLUSTER, HOP)
    controller.nacked(GATEWAY, Nacked(CLUSTER, {HOP: bad}, f"Error adding/updating cluster(s) {HOP}: bad"))
    controller._settle()
    for change in (None, gateway):
        controller.take(Batch({key: change}))
        controller._settle()
    assert held(controller, CLUSTER, HOP) == bad
    assert [f for f in controller.findings() if f.reason == "RefusedByProxy"] == []


def test_a_refusal_is_forgotten_with_what_was_refused(controller: Controller) -> None:
    bad = held(controller, CLUSTER, HOP)
    controller.nacked(GATEWAY, Nacked(CLUSTER, {HOP: bad}, f"Error adding/updating cluster(s) {HOP}: bad"))
    controller._settle()
    controller.take(Batch(keyed(mk_policy("a/p", "api", "other.example", ["ca"]))))
    controller._settle()
    controller._settle()
    assert [f for f in controller.findings() if f.reason == "RefusedByProxy"] == []
    assert controller.report().get(GATEWAY) is None


def test_a_port_that_is_taken_is_no_problem_any_more_once_its_listener_is_gone(controller: Controller) -> None:
    controller.connected(GATEWAY)
    listener = held(controller, LISTENER, "a/gw/80")
    detail = f"Error adding/updating listener(s) {listener.name}: cannot bind '0.0.0.0:80': Address already in use"
    controller.nacked(GATEWAY, Nacked(LISTENER, {listener.name: listener}, detail))
    assert "Address already in use" in controller.report()[GATEWAY].problem
    controller.take(Batch(keyed(mk_gateway(GATEWAY, [{"name": "http", "port": 81, "protocol": "HTTP"}]))))
    controller._settle()
    assert controller.report()[GATEWAY].problem == ""


def test_a_listener_that_was_removed_has_to_be_acknowledged_anew(controller: Controller) -> None:
    controller.connected(GATEWAY)
    for type_url in (LISTENER, ROUTES):
        controller.acked(GATEWAY, Acked(type_url, {"a/gw/80": held(controller, type_url, "a/gw/80")}))
    assert programmed(controller) == "Programmed"
    for type_url in (LISTENER, ROUTES):
        controller.acked(GATEWAY, Acked(type_url, {}, frozenset({"a/gw/80"})))
    assert programmed(controller) == "Pending"


def test_an_internal_error_is_logged_once_when_it_appears_and_once_when_it_is_gone(
    controller: Controller,
) -> None:
    class Bomb:
        def __iter__(self) -> Iterator[tuple[str, str]]:
            raise RuntimeError("boom")

        def get(self, *_: str) -> str:
            raise RuntimeError("boom")

    config_map = mk_config_map("a/ca", ca_pem("good"))
    with capture_logs() as logged:
        controller.take(Batch(keyed(msgspec.structs.replace(config_map, data=Bomb()))))
        for _ in range(3):
            controller._settle()
    assert [entry["event"] for entry in logged].count("internal error; what depends on it is closed") == 1
    assert [f.object for f in controller.findings() if f.reason == "InternalError"] == [Key("ConfigMap", "a", "ca")]
    assert [hop.manner for hop in controller.engine.hops() if hop.backend == "a/api"] == ["failing closed"]
    with capture_logs() as logged:
        controller.take(Batch(keyed(config_map)))
        for _ in range(3):
            controller._settle()
    assert [entry["event"] for entry in logged].count("internal error is gone") == 1
    assert [f for f in controller.findings() if f.reason == "InternalError"] == []


def test_programmed_follows_the_acknowledgement_of_the_current_listener(controller: Controller) -> None:
    assert programmed(controller) == "Pending"
    controller.connected(GATEWAY)
    assert programmed(controller) == "Pending"
    listener = held(controller, LISTENER, "a/gw/80")
    controller.acked(GATEWAY, Acked(LISTENER, {listener.name: listener}))
    assert programmed(controller) == "Pending", "Envoy listens only when it has the routes too"
    table = held(controller, ROUTES, "a/gw/80")
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: table}))
    assert programmed(controller) == "Programmed"


def shown(controller: Controller, kind: str, name: str) -> tuple[str, str]:
    document = controller.book.document(Key(kind, "a", name))
    assert document is not None
    return summary(document)


def test_a_lost_policy_is_the_routes_problem_and_a_missed_target_the_policys(controller: Controller) -> None:
    assert shown(controller, "BackendTLSPolicy", "p") == ("True", "")
    controller.take(Batch(keyed(mk_policy("a/p", "apii", "api.example", ["ca"]))))
    controller._settle()
    missing = "Service a/apii does not exist"
    assert shown(controller, "BackendTLSPolicy", "p") == ("False", f"TargetNotFound: {missing}; did you mean api?")
    because = "BackendTLSPolicy a/p names Service a/apii, which does not exist"
    said = f"NoLongerVerified: backend a/api:443 is plaintext now, because {because}."
    assert shown(controller, "HTTPRoute", "r") == ("False", said)
    controller.take(Batch(keyed(mk_policy("a/p", "api", "api.example", ["ca"]))))
    controller._settle()
    assert shown(controller, "BackendTLSPolicy", "p") == ("True", "")
    assert shown(controller, "HTTPRoute", "r") == ("True", "")


def test_a_request_to_an_invalid_policy_is_explained_by_the_routes_status(controller: HostController) -> None:
    controller.take(Batch(keyed(mk_config_map("a/ca", ""))))
    controller._settle()
    entry = controller._with_reason(Entry(flags="NC", route="HTTPRoute a/r", why="no cluster"))
    assert entry.why is not None and "ca.crt of ConfigMap a/ca is empty" in entry.why


def programmed(controller: Controller) -> str:
    controller._settle()
    status = controller.book.get(Key("Gateway", "a", "gw"))
    return next(c.reason for c in status.conditions if c.type == "Programmed")  # type: ignore[union-attr]


def confirm_all(controller: Controller) -> None:
    for type_url in (LISTENER, ROUTES):
        resource = held(controller, type_url, "a/gw/80")
        controller.acked(GATEWAY, Acked(type_url, {resource.name: resource}))


async def second(tmp_path: Path, controller: Controller) -> Controller:
    """Another replica: the same objects, no proxy."""
    other = HostController(NoSource(), Envoy(Path("/no/envoy"), (1, 40, 0)), tmp_path / "other")
    store = controller.engine.store
    keys = [key for kind in KINDS for key in store.keys(kind)]
    other.take(Batch({key: store.get(key) for key in keys}))
    other.engine.set_probe(Key("Gateway", "a", "gw"), "0.0.0.0", 80, Probe())
    other._settle()
    return other


def tell(leader: Controller, follower: Controller, now: float = 0.0) -> None:
    """As the report goes over the wire."""
    report = msgspec.json.decode(msgspec.json.encode(follower.report()), type=Report)
    for gateway in leader.presence.heard("follower", report, now):
        leader._elsewhere_changed(gateway_key(gateway))


async def test_a_proxy_of_another_replica_makes_a_gateway_programmed(tmp_path: Path, controller: Controller) -> None:
    follower = await second(tmp_path, controller)
    assert follower.report() == {}
    follower.connected(GATEWAY)
    confirm_all(follower)
    tell(controller, follower)
    assert programmed(controller) == "Programmed"

    # Of a listener that is another now, what a proxy has confirmed before tells nothing.
    report = follower.report()
    other = Standing(True, {**report[GATEWAY].versions, LISTENER: {"a/gw/80": "another"}})
    controller.presence.heard("follower", {GATEWAY: other}, 1.0)
    controller._elsewhere_changed(gateway_key(GATEWAY))
    assert programmed(controller) == "Pending"


async def test_what_another_replicas_proxy_refuses_is_found_and_built_without(tmp_path: Path, controller: Controller) -> None:
    follower = await second(tmp_path, controller)
    follower.connected(GATEWAY)
    bad = held(follower, CLUSTER, HOP)
    follower.nacked(GATEWAY, Nacked(CLUSTER, {HOP: bad}, f"Error adding/updating cluster(s) {HOP}: bad"))
    tell(controller, follower)
    controller._settle()
    cache = controller.server.cache(GATEWAY)
    assert cache is not None and cache.get(CLUSTER, HOP) == Withdrawal(urgent=True)
    assert [f.object for f in controller.findings() if f.reason == "RefusedByProxy"] == [Key("Service", "a", "api")]

    # The follower ends, and with it what it has told; our own proxies may have it again.
    for gateway in controller.presence.expire(EXPIRES):
        controller._elsewhere_changed(gateway_key(gateway))
    controller._settle()
    assert held(controller, CLUSTER, HOP) == bad
    assert not [f for f in controller.findings() if f.reason == "RefusedByProxy"]


async def test_a_proxy_that_reconnects_does_not_flip_the_status(controller: Controller) -> None:
    controller.connected(GATEWAY)
    confirm_all(controller)
    assert programmed(controller) == "Programmed"
    controller.disconnected(GATEWAY)
    assert programmed(controller) == "Programmed"
    controller.connected(GATEWAY)
    confirm_all(controller)
    controller.presence.expire(time.monotonic() + LINGER)
    assert programmed(controller) == "Programmed"

    controller.disconnected(GATEWAY)
    for gateway in controller.presence.expire(time.monotonic() + LINGER):
        controller._elsewhere_changed(gateway_key(gateway))
    assert programmed(controller) == "Pending"


def test_a_tightened_policy_is_sent_before_any_route_table_is_put_together(controller: Controller) -> None:
    cluster, table = held(controller, CLUSTER, HOP), held(controller, ROUTES, "a/gw/80")
    rule = {"matches": [{"path": {"value": "/new"}}], "backendRefs": [{"name": "api", "port": 443}]}
    controller.take(Batch(keyed(mk_route("a/r", GATEWAY, [], ["one.example"], rules=[rule]))))
    controller.take(Batch(keyed(mk_policy("a/p", "api", "stricter.example", ["ca"]))))
    assert controller._settle_urgent()
    assert held(controller, CLUSTER, HOP) != cluster and held(controller, ROUTES, "a/gw/80") == table
    controller._settle()
    assert held(controller, ROUTES, "a/gw/80") != table
    assert not controller._settle_urgent()


def test_no_table_is_put_together_while_no_proxy_could_take_it(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = held(controller, ROUTES, "a/gw/80")
    monkeypatch.setattr(controller.server, "busy", lambda gateway: gateway == GATEWAY)
    rule = {"matches": [{"path": {"value": "/new"}}], "backendRefs": [{"name": "api", "port": 443}]}
    controller.take(Batch(keyed(mk_route("a/r", GATEWAY, [], ["one.example"], rules=[rule]))))
    controller._settle(SLICE)
    assert held(controller, ROUTES, "a/gw/80") == table
    assert not controller.engine.unsettled_but(controller._busy())
    controller._dirty.clear()
    monkeypatch.undo()
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: table}))  # what it was busy with
    assert controller._dirty.is_set()
    controller._settle(SLICE)
    assert held(controller, ROUTES, "a/gw/80") != table


def test_a_suspect_that_is_released_but_not_built_yet_does_not_count_as_gone(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters are sent before tables; their update tells nothing of the routes that are on trial."""
    empty = Resource(ROUTES, "a/gw/80", b"", "0")
    table = held(controller, ROUTES, "a/gw/80")
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: empty}))
    controller.nacked(GATEWAY, Nacked(ROUTES, {table.name: table}, "no"))
    controller._settle(SLICE)
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: empty}))  # the quarantine has arrived: one route is released
    before = controller._quarantine(gateway_key(GATEWAY)).quarantined
    assert len(before) == 1
    controller.take(Batch(keyed(mk_policy("a/p", "api", "stricter.example", ["ca"]))))
    assert controller._settle_urgent()
    assert controller._quarantine(gateway_key(GATEWAY)).quarantined == before

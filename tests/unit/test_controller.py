"""The controller without its edges: batches and acknowledgements in; configuration, status and findings out. test_fleet.py
tests the effects of acknowledgements and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from lasthop.base.api.meta import Key
from lasthop.base.api.status import GatewayStatus
from lasthop.edge.proxy.binary import Envoy
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.sources.source import Batch, ObjectSource
from lasthop.edge.xds.acks import EXPIRES, GatewayAcks
from lasthop.edge.xds.session import Acked, Nacked
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, Resource, Withdrawal
from lasthop.engine.outputs.status.summary import summary
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from lasthop.run import loop
from lasthop.run.controller import Controller
from lasthop.run.host import HostRuntime, with_reason
from lasthop.run.loop import SLICE
from tests.fake_api import until
from tests.logged import captured
from tests.world import NOW, ca_pem, keyed, mk_class, mk_config_map, mk_gateway, mk_policy, mk_route, mk_service, mk_slice

GATEWAY = Key("Gateway", "a", "gw")
HOP = "a/gw/a/api/443/auto"
OBJECTS = keyed(
    mk_class(),
    mk_gateway(GATEWAY.path),
    mk_service("a/api"),
    mk_service("a/other"),
    mk_config_map("a/ca", ca_pem("good")),
    mk_policy("a/p", "api", "api.example", ["ca"]),
    mk_route("a/r", GATEWAY.path, [{"name": "api", "port": 443}], ["one.example"]),
    mk_route("a/s", GATEWAY.path, [{"name": "other", "port": 443}], ["two.example"]),
)


class NoSource(ObjectSource):
    async def batches(self) -> AsyncIterator[Batch]:
        await asyncio.Event().wait()
        yield Batch({})


class SlowSource(ObjectSource):
    """Yields these batches once it may."""

    def __init__(self, *batches: Batch) -> None:
        self.may, self._batches = asyncio.Event(), batches

    async def batches(self) -> AsyncIterator[Batch]:
        for batch in self._batches:
            await self.may.wait()
            yield batch
        await asyncio.Event().wait()


@pytest.fixture
async def controller(tmp_path: Path) -> Controller:
    made = HostRuntime(NoSource(), Envoy(Path("/no/envoy"), (1, 40, 0)), tmp_path).controller
    made.take(Batch(OBJECTS))
    BIND_RESULT.set(made.engine.graph, BindResult(), GATEWAY, "0.0.0.0", 80, "TCP")
    made.settle()
    return made


def held(controller: Controller, type_url: str, name: str) -> Resource:
    cache = controller.fleet.gateways[GATEWAY].cache
    change = cache.get(type_url, name)
    assert isinstance(change, Resource), change
    return change


def clusters(controller: Controller) -> dict[str, Resource | Withdrawal | None]:
    cache = controller.fleet.gateways[GATEWAY].cache
    return {name: cache.get(CLUSTER, name) for name in cache.names(CLUSTER)}


def test_a_batch_that_changes_nothing_settles_nothing(controller: Controller) -> None:
    known = controller.engine.store.get(Key("BackendTLSPolicy", "a", "p"))
    assert known is not None
    controller.dirty.clear()
    controller.take(Batch(keyed(known)))
    assert not controller.dirty.is_set()
    controller.take(Batch(keyed(mk_policy("a/p", "api", "other.example", ["ca"]))))
    assert controller.dirty.is_set()


def test_a_cluster_that_envoy_refuses_is_taken_away_at_once_and_reported_until_it_is_edited(controller: Controller) -> None:
    bad, good = held(controller, CLUSTER, HOP), held(controller, CLUSTER, "a/gw/a/other/443/auto")
    detail = f"Error adding/updating cluster(s) {HOP}: bad"
    controller.nacked(GATEWAY, Nacked(CLUSTER, {HOP: bad, good.name: good}, detail))
    controller.settle()
    cache = controller.fleet.gateways[GATEWAY].cache
    assert cache.get(CLUSTER, HOP) == Withdrawal(urgent=True)
    assert held(controller, CLUSTER, good.name) == good
    assert [f.object for f in controller.findings() if f.reason == "RefusedByProxy"] == [Key("Service", "a", "api")]

    controller.take(Batch(keyed(mk_policy("a/p", "api", "other.example", ["ca"]))))
    controller.settle()
    assert held(controller, CLUSTER, HOP).version != bad.version


def test_a_route_that_envoy_refuses_answers_500_while_the_others_are_served(controller: Controller) -> None:
    table = held(controller, ROUTES, "a/gw/80")
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: table}))
    rule = {"matches": [{"path": {"value": "/new"}}], "backendRefs": [{"name": "api", "port": 443}]}
    controller.take(Batch(keyed(mk_route("a/r", GATEWAY.path, [], ["one.example"], rules=[rule]))))
    controller.settle()
    refused = held(controller, ROUTES, "a/gw/80")
    controller.nacked(GATEWAY, Nacked(ROUTES, {refused.name: refused}, "no good"))
    controller.settle()
    served = held(controller, ROUTES, "a/gw/80")
    one, two = "a/gw/80#one.example#HTTPRoute a/r", "a/gw/80#two.example#HTTPRoute a/s"
    assert served.parts[two] == refused.parts[two] and served.parts[one] != refused.parts[one]
    assert b"a/gw/a/api" not in served.body and b"a/gw/a/other" in served.body
    assert [f.object for f in controller.findings() if f.reason == "RefusedByProxy"] == [Key("HTTPRoute", "a", "r")]
    status = controller.statuses.get(Key("HTTPRoute", "a", "r"))
    accepted = next(c for c in status.parents[0].conditions if c.type == "Accepted")  # type: ignore[union-attr]
    assert (accepted.status, accepted.reason) == ("False", "RefusedByProxy") and "no good" in accepted.message


def test_a_gateway_that_goes_and_comes_back_before_all_is_worked_out_has_all_its_clusters(controller: Controller) -> None:
    gateway = controller.engine.store.get(GATEWAY)
    before = clusters(controller)
    controller.take(Batch({GATEWAY: None}))
    controller.settle(1)
    assert controller.engine.unsettled
    controller.take(Batch({GATEWAY: gateway}))
    while controller.engine.unsettled:
        controller.settle(1)
    assert before and clusters(controller) == before


def test_refused_configuration_is_tried_again_when_its_gateway_returns(controller: Controller) -> None:
    gateway = controller.engine.store.get(GATEWAY)
    bad = held(controller, CLUSTER, HOP)
    controller.nacked(GATEWAY, Nacked(CLUSTER, {HOP: bad}, f"Error adding/updating cluster(s) {HOP}: bad"))
    controller.settle()
    for change in (None, gateway):
        controller.take(Batch({GATEWAY: change}))
        controller.settle()
    assert held(controller, CLUSTER, HOP) == bad
    assert [f for f in controller.findings() if f.reason == "RefusedByProxy"] == []


def test_a_refusal_is_forgotten_with_what_was_refused(controller: Controller) -> None:
    bad = held(controller, CLUSTER, HOP)
    controller.nacked(GATEWAY, Nacked(CLUSTER, {HOP: bad}, f"Error adding/updating cluster(s) {HOP}: bad"))
    controller.settle()
    controller.take(Batch(keyed(mk_policy("a/p", "api", "other.example", ["ca"]))))
    controller.settle()
    controller.settle()
    assert [f for f in controller.findings() if f.reason == "RefusedByProxy"] == []
    assert controller.fleet.report().get(GATEWAY) is None


def test_a_taken_port_is_not_a_problem_after_its_listener_is_gone(controller: Controller) -> None:
    controller.connected(GATEWAY)
    listener = held(controller, LISTENER, "a/gw/80")
    detail = f"Error adding/updating listener(s) {listener.name}: cannot bind '0.0.0.0:80': Address already in use"
    controller.nacked(GATEWAY, Nacked(LISTENER, {listener.name: listener}, detail))
    assert "Address already in use" in controller.fleet.report()[GATEWAY].problem
    controller.take(Batch(keyed(mk_gateway(GATEWAY.path, [{"name": "http", "port": 81, "protocol": "HTTP"}]))))
    controller.settle()
    assert controller.fleet.report()[GATEWAY].problem == ""


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
    with captured() as logged:
        controller.take(Batch(keyed(msgspec.structs.replace(config_map, data=Bomb()))))
        for _ in range(3):
            controller.settle()
    assert [entry["event"] for entry in logged].count("internal error; objects that depend on it are closed") == 1
    assert [f.object for f in controller.findings() if f.reason == "InternalError"] == [Key("ConfigMap", "a", "ca")]
    assert [hop.manner for hop in controller.engine.hops() if hop.backend.path == "a/api"] == ["failing closed"]
    with captured() as logged:
        controller.take(Batch(keyed(config_map)))
        for _ in range(3):
            controller.settle()
    assert [entry["event"] for entry in logged].count("internal error resolved") == 1
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
    document = controller.statuses.document(Key(kind, "a", name))
    assert document is not None
    readiness = summary(document)
    return readiness.ready, readiness.why


def test_a_lost_policy_is_the_routes_problem_and_a_missed_target_the_policys(controller: Controller) -> None:
    controller.take(Batch(keyed(mk_slice("a/api-1", "api", ["10.0.0.1"]))))
    controller.settle()
    assert shown(controller, "BackendTLSPolicy", "p") == ("True", "")
    controller.take(Batch(keyed(mk_policy("a/p", "apii", "api.example", ["ca"]))))
    controller.settle()
    missing = "Service a/apii does not exist"
    assert shown(controller, "BackendTLSPolicy", "p") == ("False", f"TargetNotFound: {missing}; did you mean api?")
    because = "BackendTLSPolicy a/p names Service a/apii, which does not exist"
    prefix = f"a/gw: NoLongerVerified: backend a/api:443 is plaintext now, because {because}. Restore the policy; or"
    ready, why = shown(controller, "HTTPRoute", "r")
    assert ready == "False" and why.startswith(prefix)
    gateway = controller.statuses.get(GATEWAY)
    assert isinstance(gateway, GatewayStatus)
    assert [c.reason for c in gateway.conditions if c.type == "BackendsWeakened"] == ["NoLongerVerified"]
    controller.take(Batch(keyed(mk_policy("a/p", "api", "api.example", ["ca"]))))
    controller.settle()
    assert shown(controller, "BackendTLSPolicy", "p") == ("True", "")
    assert shown(controller, "HTTPRoute", "r") == ("True", "")


def test_a_request_to_an_invalid_policy_is_explained_by_the_routes_status(controller: Controller) -> None:
    controller.take(Batch(keyed(mk_config_map("a/ca", ""))))
    controller.settle()
    failed = AccessLogEntry(flags="NC", route="HTTPRoute a/r", why="no cluster")
    entry = with_reason(controller.engine.graph, controller.statuses, failed)
    assert entry.why is not None and "ca.crt of ConfigMap a/ca is empty" in entry.why


def programmed(controller: Controller) -> str:
    controller.settle()
    status = controller.statuses.get(GATEWAY)
    return next(c.reason for c in status.conditions if c.type == "Programmed")  # type: ignore[union-attr]


def test_a_tightened_policy_is_sent_before_any_route_table_is_put_together(controller: Controller) -> None:
    cluster, table = held(controller, CLUSTER, HOP), held(controller, ROUTES, "a/gw/80")
    rule = {"matches": [{"path": {"value": "/new"}}], "backendRefs": [{"name": "api", "port": 443}]}
    controller.take(Batch(keyed(mk_route("a/r", GATEWAY.path, [], ["one.example"], rules=[rule]))))
    controller.take(Batch(keyed(mk_policy("a/p", "api", "stricter.example", ["ca"]))))
    assert controller.settle_urgent()
    assert held(controller, CLUSTER, HOP) != cluster and held(controller, ROUTES, "a/gw/80") == table
    controller.settle()
    assert held(controller, ROUTES, "a/gw/80") != table
    assert not controller.settle_urgent()


def test_no_table_is_put_together_while_no_proxy_could_take_it(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = held(controller, ROUTES, "a/gw/80")
    monkeypatch.setattr(controller.server, "busy", lambda gateway: gateway == GATEWAY)
    rule = {"matches": [{"path": {"value": "/new"}}], "backendRefs": [{"name": "api", "port": 443}]}
    controller.take(Batch(keyed(mk_route("a/r", GATEWAY.path, [], ["one.example"], rules=[rule]))))
    controller.settle(SLICE)
    assert held(controller, ROUTES, "a/gw/80") == table
    assert not controller.engine.unsettled_but(controller.busy())
    controller.dirty.clear()
    monkeypatch.undo()
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: table}))  # the task that it was busy with
    assert controller.dirty.is_set()
    controller.settle(SLICE)
    assert held(controller, ROUTES, "a/gw/80") != table


def test_a_suspect_that_is_released_but_not_built_yet_does_not_count_as_gone(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters are sent before tables; their update is no evidence about the suspected routes."""
    empty = Resource(ROUTES, "a/gw/80", b"", "0")
    table = held(controller, ROUTES, "a/gw/80")
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: empty}))
    controller.nacked(GATEWAY, Nacked(ROUTES, {table.name: table}, "no"))
    controller.settle(SLICE)
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: empty}))  # the quarantine has arrived: one route is released
    before = controller.fleet.gateways[GATEWAY].quarantine.quarantined
    assert len(before) == 1
    controller.take(Batch(keyed(mk_policy("a/p", "api", "stricter.example", ["ca"]))))
    assert controller.settle_urgent()
    assert controller.fleet.gateways[GATEWAY].quarantine.quarantined == before


def test_a_part_that_another_replicas_proxy_refuses_is_found_and_removed(controller: Controller) -> None:
    bad = held(controller, CLUSTER, HOP)
    part = (CLUSTER, HOP, bad.version, Key("Service", "a", "api"))
    report = {GATEWAY: GatewayAcks(connected=True, refused=((*part, "bad"),))}
    controller.do(controller.fleet.heard("follower", report, 0.0))
    controller.settle()
    assert clusters(controller)[HOP] == Withdrawal(urgent=True)
    assert [f.object for f in controller.findings() if f.reason == "RefusedByProxy"] == [Key("Service", "a", "api")]

    # The follower ends, and its reports with it; our own proxies may have it again.
    controller.do(controller.fleet.expire(EXPIRES))
    controller.settle()
    assert held(controller, CLUSTER, HOP) == bad
    assert not [f for f in controller.findings() if f.reason == "RefusedByProxy"]


# --- the record of changes ---------------------------------------------------------------------------------------------


def edited(controller: Controller, batch: Batch) -> None:
    controller.take(batch)
    while controller.dirty.is_set() or controller.engine.unsettled:
        controller.settle(SLICE)


def test_the_record_begins_with_a_count_and_goes_on_with_each_change(controller: Controller) -> None:
    (began,) = controller.record.record.entries
    assert (began.effect, began.because) == ("Began", "1 verified, 1 plaintext")
    with captured() as logs:
        edited(controller, Batch({Key("BackendTLSPolicy", "a", "p"): None}))
    (change,) = controller.record.changes
    assert (change.address, change.gateways, change.before) == ("a/api:443", ("a/gw",), "verified (CA) for api.example")
    assert [str(cause.edit) for cause in change.causes] == ["deleted"]
    (line,) = [log for log in logs if log["event"] == "recorded changes of verification"]
    assert line["head"] == controller.record.record.head == change.hash and line["entries"] == change.number == 2


def test_while_not_everything_has_been_read_nothing_is_new(tmp_path: Path) -> None:
    made = HostRuntime(NoSource(), Envoy(Path("/no/envoy"), (1, 40, 0)), tmp_path).controller
    made.take(Batch(keyed(mk_class(), mk_gateway(GATEWAY.path)), complete=False))
    assert not made.record.record.entries
    late = [mk_service("a/late"), mk_route("a/r", GATEWAY.path, [{"name": "late", "port": 443}], ["one.example"])]
    edited(made, Batch(keyed(*late)))
    assert [entry.effect for entry in made.record.record.entries] == ["Began"]
    later = [mk_service("a/later"), mk_route("a/s", GATEWAY.path, [{"name": "later", "port": 443}], ["two.example"])]
    edited(made, Batch(keyed(*later)))
    assert [entry.effect for entry in made.record.record.entries] == ["Began", "NewReduced"]


async def test_a_start_that_takes_its_time_is_compared_with_what_an_earlier_process_knew(controller: Controller) -> None:
    """The clock ticks and proxies connect while the objects are still being read."""
    objects = {key: obj for key, obj in OBJECTS.items() if key.kind != "BackendTLSPolicy"}
    first = {key: obj for key, obj in objects.items() if key.kind != "HTTPRoute"}
    source = SlowSource(Batch(first, complete=False), Batch(objects))
    again = Controller(source, Engine(now=NOW.timestamp()), lambda: None, ())
    again.recall(controller.remembered())
    running = asyncio.ensure_future(loop.run(again))
    again.tick()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not again.settled
    source.may.set()
    await until(lambda: again.settled)
    running.cancel()
    assert [(entry.effect, entry.address) for entry in again.record.record.entries] == [
        ("Began", " :0"),
        ("Weaker", "a/api:443"),
    ]
    assert [finding.object for finding in again.findings() if finding.reason == "NoLongerVerified"] == [
        Key("HTTPRoute", "a", "r")
    ]
    (change,) = again.record.changes
    assert not change.causes  # the policy was deleted while nothing ran


def test_where_proxies_run_elsewhere_each_change_is_one_line_of_the_log() -> None:
    who = {Key("ConfigMap", "a", "ca"): "kubectl (Update, 2026-11-18T12:00:00Z)"}
    made = Controller(NoSource(), Engine(now=NOW.timestamp()), lambda: None, (), who=lambda key: who.get(key, ""))
    route = mk_route("a/r", GATEWAY.path, [{"name": "api", "port": 443}], ["one.example"])
    policy = mk_policy("a/p", "api", "api.example", ["ca"])
    objects = [mk_class(), mk_gateway(GATEWAY.path), mk_service("a/api"), policy, route]
    edited(made, Batch(keyed(*objects, mk_config_map("a/ca", ca_pem("good")))))
    with captured() as logs:
        edited(made, Batch(keyed(mk_config_map("a/ca", ca_pem("other")))))
    (line,) = [log for log in logs if log["event"].startswith("a/api:443")]
    words = "verified (CA) for api.example"
    assert line["event"].startswith(f"a/api:443: {words} -> {words} (trusts CA other (SHA-256 ")
    assert "no longer trusts CA good" in line["event"]
    assert (line["gateways"], line["because"]) == (["a/gw"], "ConfigMap a/ca was changed")
    assert line["by"] == "kubectl (Update, 2026-11-18T12:00:00Z)"

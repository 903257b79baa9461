"""The controller without its edges: batches and acknowledgements in; what the proxies are to hold, status and findings out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lasthop.api.meta import Key
from lasthop.controller import Controller
from lasthop.host import HostController
from lasthop.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, Resource, Withdrawal
from lasthop.proxy.entry import Entry
from lasthop.proxy.find import Envoy
from lasthop.resolve.ports import Probe
from lasthop.sources.source import Batch
from lasthop.xds.events import Acked, Nacked
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


def test_a_virtual_host_that_envoy_refuses_answers_500_while_the_others_are_served(controller: Controller) -> None:
    table = held(controller, ROUTES, "a/gw/80")
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: table}))
    rule = {"matches": [{"path": {"value": "/new"}}], "backendRefs": [{"name": "api", "port": 443}]}
    controller.take(Batch(keyed(mk_route("a/r", GATEWAY, [], ["one.example"], rules=[rule]))))
    controller._settle()
    refused = held(controller, ROUTES, "a/gw/80")
    controller.nacked(GATEWAY, Nacked(ROUTES, {refused.name: refused}, "no good"))
    controller._settle()
    served = held(controller, ROUTES, "a/gw/80")
    assert served.parts.keys() == {"a/gw/80#two.example"}
    assert b"two.example" in served.body and b"one.example" in served.body


def test_programmed_follows_the_acknowledgement_of_the_current_listener(controller: Controller) -> None:
    def programmed() -> str:
        controller._settle()
        status = controller.book.get(Key("Gateway", "a", "gw"))
        return next(c.reason for c in status.conditions if c.type == "Programmed")  # type: ignore[union-attr]

    assert programmed() == "Pending"
    controller.connected(GATEWAY)
    assert programmed() == "Pending"
    listener = held(controller, LISTENER, "a/gw/80")
    controller.acked(GATEWAY, Acked(LISTENER, {listener.name: listener}))
    assert programmed() == "Pending", "Envoy listens only when it has the routes too"
    table = held(controller, ROUTES, "a/gw/80")
    controller.acked(GATEWAY, Acked(ROUTES, {table.name: table}))
    assert programmed() == "Programmed"


def test_a_request_to_an_invalid_policy_is_explained_by_the_routes_status(controller: Controller) -> None:
    controller.take(Batch(keyed(mk_config_map("a/ca", ""))))
    controller._settle()
    entry = controller._with_reason(Entry(flags="NC", route="HTTPRoute a/r", why="no cluster"))
    assert entry.why is not None and "ca.crt of ConfigMap a/ca is empty" in entry.why

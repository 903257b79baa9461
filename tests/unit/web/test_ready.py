"""READY of routes, policies and Gateways: every view shows the same answer, which follows from the hops of exactly that
route."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from lasthop.base.api.meta import Key
from lasthop.cli.main import main
from lasthop.edge.sources.source import Batch
from lasthop.engine.outputs.status.summary import summary
from lasthop.engine.plan.cluster_metadata import identity
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.observation import Failure, Health, HopState
from lasthop.engine.plan.tls import Refused
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.reach import REACH
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.settings import SETTINGS, Settings, set_observed
from lasthop.run.cluster import ClusterRuntime
from lasthop.run.infra.kubernetes.desired import Site
from lasthop.web.app import application
from lasthop.web.controller_view import ControllerView
from lasthop.web.page_model import PageModel
from lasthop.web.picture import Filter
from tests.fake_api import FakeApi, client_of, serving
from tests.ports import free_port
from tests.world import (
    ca_pem,
    keyed,
    mk_class,
    mk_config_map,
    mk_external_auth,
    mk_gateway,
    mk_listener_set,
    mk_policy,
    mk_route,
    mk_service,
    mk_slice,
    mk_stream_route,
    mk_telemetry_policy,
    mk_traffic_policy,
    mk_xbackend,
)

PORTS = [{"name": name, "port": port} for name, port in (("https", 443), ("other", 444), ("plain", 80))]
FAILING_POLICY, REFUSED_POLICY = ("backendtlspolicy/a/failing",), ("backendtlspolicy/a/refused",)
OLD = Failure("certificate is for old.example", ("10.0.0.2:9443",), handshake=True)
CUT = Failure("connection refused (Service a/api, HTTPRoute a/works)", ("10.0.0.3:9443",))
"""Words of a backend, which may quote anything."""


def to(name: str, port: int = 443, **more: Any) -> dict[str, Any]:
    return {"name": name, "port": port, **more}


def route(name: str, *backends: dict[str, Any], gateway: str = "a/web", **more: Any) -> Any:
    return mk_route(f"a/{name}", gateway, list(backends), [f"{name}.example"], **more)


def mirroring(name: str, mirror: dict[str, Any]) -> Any:
    rule = {"filters": [{"type": "RequestMirror", "requestMirror": {"backendRef": mirror}}], "backendRefs": [to("api")]}
    return route(name, rules=[rule])


EXPECTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "httproute/a/works": ("True", ()),
    "httproute/a/refused": ("False", REFUSED_POLICY),
    "httproute/a/other-port-of-refused": ("True", ()),
    "httproute/a/plaintext-port-of-refused": ("True", ()),
    "httproute/a/failing": ("False", FAILING_POLICY),
    "httproute/a/failing-elsewhere": ("True", ()),
    "httproute/a/failing-here-and-fine-there": ("False", FAILING_POLICY),
    "httproute/a/empty": ("False", ("service/a/empty",)),
    "httproute/a/plain-failing": ("False", ("service/a/plain",)),
    "httproute/a/port-in-use": ("False", ("gateway/a/blocked",)),
    "httproute/a/set-on-port-in-use": ("False", ("listenerset/a/set",)),
    "httproute/a/weighted": ("False", FAILING_POLICY),
    "httproute/a/weighted-zero": ("True", ()),
    "httproute/a/several": ("False", ("backendtlspolicy/a/failing", "service/a/plain")),
    "httproute/a/mirror": ("False", FAILING_POLICY),
    "httproute/a/missing": ("False", ()),
    "httproute/a/no-parent": ("False", ()),
    "httproute/u/unknown": ("False", ()),
    "httproute/a/external": ("False", ("xbackend/a/far",)),
    "httproute/a/asks-failing": ("False", FAILING_POLICY),
    "tcproute/a/stream-elsewhere": ("True", ()),
    "xbackend/a/far": ("False", ()),
    "xbackendtrafficpolicy/a/budget": ("True", ()),
    "xtelemetrypolicy/a/traces": ("False", ("service/a/plain",)),
    "backendtlspolicy/a/fine": ("True", ()),
    "backendtlspolicy/a/failing": ("False", ()),
    "backendtlspolicy/a/refused": ("False", ()),
    "backendtlspolicy/a/blocked": ("False", ("gateway/a/blocked",)),
    "backendtlspolicy/a/unused": ("Unknown", ()),
    "gateway/a/blocked": ("False", ()),
    "listenerset/a/set": ("False", ("gateway/a/blocked",)),
    "gateway/a/foreign": ("-", ()),
}
OWNERS = {"theirs": "example.com/other"}
OBJECTS = keyed(
    mk_class(),
    mk_class("theirs", "example.com/other"),
    mk_gateway("a/web", allowedListeners={"namespaces": {"from": "Same"}}),
    mk_gateway("a/second", [{"name": "http", "port": 81, "protocol": "HTTP"}, {"name": "tcp", "port": 85, "protocol": "TCP"}]),
    mk_gateway(
        "a/blocked", [{"name": "http", "port": 82, "protocol": "HTTP"}], allowedListeners={"namespaces": {"from": "Same"}}
    ),
    mk_gateway("a/foreign", gateway_class="theirs"),
    mk_gateway("u/web", [{"name": "http", "port": 83, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "Same"}}}]),
    mk_listener_set("a/set", "a/blocked", [{"name": "more", "port": 84, "protocol": "HTTP"}]),
    mk_config_map("a/ca", ca_pem("good")),
    mk_service("a/api", PORTS),
    *(mk_slice(f"a/api-{name}", "api", ["10.0.0.1"], port_name=name) for name in ("https", "other", "plain")),
    mk_policy("a/fine", "api", "api.example", ["ca"], "https"),
    mk_policy("a/refused", "api", "api.example", ["no-ca"], "other"),
    mk_service("a/failing"),
    mk_slice("a/failing", "failing", ["10.0.0.2"]),
    mk_policy("a/failing", "failing", "api.example", ["ca"]),
    mk_service("a/plain"),
    mk_slice("a/plain", "plain", ["10.0.0.3"]),
    mk_service("a/empty"),
    mk_service("a/blocked"),
    mk_slice("a/blocked", "blocked", ["10.0.0.4"]),
    mk_policy("a/blocked", "blocked", "api.example", ["ca"]),
    mk_service("a/unused"),
    mk_policy("a/unused", "unused", "api.example", ["ca"]),
    mk_service("u/api"),
    mk_slice("u/api", "api", ["10.0.0.5"]),
    mk_xbackend("a/far", "far.example"),
    mk_traffic_policy("a/budget", {"group": "", "kind": "Service", "name": "failing"}, retryConstraint={}),
    mk_telemetry_policy("a/traces", ["web"], to("plain")),
    route("external", {"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "far"}),
    route("asks-failing", rules=[{"filters": [mk_external_auth("HTTP", to("failing"))], "backendRefs": [to("api")]}]),
    mk_stream_route("TCPRoute", "a/stream-elsewhere", "a/second", [to("failing")], section="tcp"),
    route("works", to("api")),
    route("refused", to("api", 444)),
    route("other-port-of-refused", to("api", 443)),
    route("plaintext-port-of-refused", to("api", 80)),
    route("failing", to("failing")),
    route("failing-elsewhere", to("failing"), gateway="a/second"),
    route("failing-here-and-fine-there", to("failing"), parents=[{"name": "second"}, {"name": "web"}]),
    route("empty", to("empty")),
    route("plain-failing", to("plain")),
    route("port-in-use", to("blocked"), gateway="a/blocked"),
    route("set-on-port-in-use", to("blocked"), parents=[{"name": "set", "kind": "ListenerSet"}]),
    route("weighted", to("api", weight=9), to("failing", weight=1)),
    route("weighted-zero", to("api"), to("failing", weight=0)),
    route("several", to("failing"), to("plain")),
    mirroring("mirror", to("failing")),
    route("missing", to("nowhere")),
    route("no-parent", to("api"), parents=[{"name": "web", "sectionName": "nowhere"}]),
    mk_route("u/unknown", "u/web", [to("api")]),
)


class Asked:
    """The answers of one running controller, for every way to query it."""

    def __init__(self, view: ControllerView, address: str) -> None:
        self.view, self._address = view, address

    async def command(self, *args: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, main, ["status", *args, "--admin", self._address])


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    async with serving(FakeApi()) as api, client_of(api) as client:
        site = Site("lasthop", "x.svc", 1)
        runtime = ClusterRuntime(client, site, identity="a", namespace="n", xds_listen="", own_address="")
        controller = runtime.controller
        graph = controller.engine.graph
        SETTINGS.set(graph, Settings(host_network=True))
        controller.take(Batch(OBJECTS, unknown=(Unknown(False, "u", "u.yaml cannot be read"),)))
        for name, port in (("web", 80), ("second", 81), ("second", 85), ("blocked", 82), ("blocked", 84)):
            problem = f"0.0.0.0:{port} is in use" if name == "blocked" else ""
            BIND_RESULT.set(graph, BindResult(problem), Key("Gateway", "a", name), "0.0.0.0", port, "TCP")
        BIND_RESULT.set(graph, BindResult(), Key("Gateway", "u", "web"), "0.0.0.0", 83, "TCP")
        controller.settle()
        gateway, plain = Key("Gateway", "a", "web"), Key("Service", "a", "plain")
        (collector,) = (hop for hop in REACH.of(graph, plain) if hop.protocol is not Protocol.AUTO)
        failing = {
            Hop(gateway, Key("Service", "a", "failing"), 443, Protocol.AUTO): OLD,
            Hop(gateway, plain, 443, Protocol.AUTO): CUT,
            collector: CUT,
            Hop(gateway, Key("XBackend", "a", "far"), 443, Protocol.AUTO): CUT,
        }
        for hop, failure in failing.items():
            tls = hop_tls(graph, *hop)
            assert not isinstance(tls, Refused)
            set_observed(graph, hop, identity(tls), HopState(Health.FAILING, 1.0, (failure,)))
        controller.settle()
        view, port = ControllerView(runtime), free_port()
        runner = web.AppRunner(application(view))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield Asked(view, f"127.0.0.1:{port}")
        await runner.cleanup()


def _rows(result: Result) -> dict[str, tuple[str, str]]:
    split = (line.split(maxsplit=2) for line in result.stdout.splitlines())
    return {name: (ready, why[0] if why else "") for name, ready, *why in split if not name.endswith(":")}


async def test_every_way_to_ask_has_the_same_answer(asked: Asked) -> None:
    documents = json.loads((await asked.command("-o", "json")).stdout)
    judged = {Key(d["kind"], d["metadata"].get("namespace", ""), d["metadata"]["name"]).argument: d for d in documents}
    answers = {name: (judged[name]["ready"]["ready"], tuple(judged[name]["ready"]["because"])) for name in EXPECTED}
    assert answers == EXPECTED
    every = await asked.command("--no-headers", "-o", "wide")
    assert every.exit_code == 0 and (await asked.command("--exit-code")).exit_code == 1
    rows = _rows(every)
    picture = await PageModel(asked.view).picture(Filter(page=1))
    for name, (ready, because) in EXPECTED.items():
        kind, namespace, own = name.split("/")
        assert rows[name][0] == ready, name
        of_kind = _rows(await asked.command(kind, "--no-headers", "-o", "wide"))
        assert of_kind[name][0] == ready, name
        alone = await asked.command(kind, own, "-n", namespace, "--no-headers", "-o", "wide", "--exit-code")
        assert _rows(alone).keys() == {name} and _rows(alone)[name][0] == ready
        assert alone.exit_code == (ready not in ("True", "-")), name
        for why in (rows[name][1], of_kind[name][1], _rows(alone)[name][1]):
            assert all(cause in why for cause in because), (name, why)
        services = {line.partition(":")[0] for line in alone.stdout.splitlines() if line.startswith("service/")}
        assert services == {cause for cause in because if cause.startswith("service/")}, "lines of Services that concern it"
        document = judged[name]
        as_json = json.loads((await asked.command(kind, own, "-n", namespace, "-o", "json")).stdout)
        assert [item["ready"] for item in as_json] == [document["ready"]], name
        # As a reader of a cluster sees it, from the object and its status alone.
        seen = {part: document[part] for part in ("kind", "metadata", "spec", "status") if part in document}
        assert summary(seen, OWNERS).ready == ready, name
        key = Key(document["kind"], namespace, own)
        assert asked.view.ready(key) == summary(document, OWNERS)._replace(because=because)
        for drawn in (picture.gateways, picture.routes):
            shown = drawn.get(str(key)) or (drawn.get(key.path) if key.kind == "Gateway" else None)
            assert shown is None or (shown.ready, shown.because) == (ready, because), name
    assert {f"HTTPRoute a/{name}" for name in ("failing", "empty", "weighted")} <= picture.routes.keys()


async def test_causes_come_first_and_appear_once(asked: Asked) -> None:
    rows = _rows(await asked.command("--no-headers"))
    names = list(rows)
    assert rows["httproute/a/failing"][1] == "because of backendtlspolicy/a/failing"
    assert names.index("backendtlspolicy/a/failing") < names.index("httproute/a/failing") < names.index("httproute/a/works")
    alone = _rows(await asked.command("httproute", "failing", "-n", "a", "--no-headers", "-o", "wide"))
    assert "because of backendtlspolicy/a/failing: " in alone["httproute/a/failing"][1], "no other row says why"
    assert OLD.words in alone["httproute/a/failing"][1]

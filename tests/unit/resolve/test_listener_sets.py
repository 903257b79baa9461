"""ListenerSets over time: order, ports of the host, the Gateway's own state. tests/cases has their basic meaning."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from lasthop.base.api.gateway import Gateway
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.profiles import ProxySettings
from lasthop.base.api.status import GatewayStatus, ListenerSetStatus
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import LISTENER
from lasthop.engine.plan.infrastructure import Infrastructure
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.resolve.gateways.gateways import gateway, port_holder
from lasthop.engine.resolve.gateways.ports import BIND_RESULT, BindResult
from lasthop.engine.resolve.settings import IN_CLUSTER, INFRASTRUCTURE, PROXY, Settings
from lasthop.run.infra.kubernetes.desired import desired_gateway
from tests.snapshot import Snapshot, settle, settled
from tests.world import keyed, mk, mk_class, mk_gateway, mk_listener_set, mk_profile, profile_ref

WEB = Key("Gateway", "edge", "web")
SET = Key("ListenerSet", "shop", "set")
FROM_ALL = {"namespaces": {"from": "All"}}


def http(port: int, hostname: str = "", name: str = "http") -> dict[str, Any]:
    return {"name": name, "port": port, "protocol": "HTTP", "hostname": hostname}


def running(*objects: Object, settings: Settings | None = None) -> tuple[Engine, Snapshot]:
    return settled(keyed(mk_class(), mk_gateway("edge/web", allowedListeners=FROM_ALL), *objects), settings=settings)


def reasons(snapshot: Snapshot, key: Key = SET) -> tuple[str, str]:
    """Of Accepted and Programmed, with a minus where they are False."""
    status = snapshot.status[key]
    assert isinstance(status, ListenerSetStatus)
    accepted, programmed = (("" if c.status == "True" else "-") + c.reason for c in status.conditions)
    return accepted, programmed


def test_the_older_set_has_the_name_until_it_goes() -> None:
    young = mk_listener_set("shop/set", "edge/web", [http(80, "x.example")], created="2026-02-01T00:00:00Z")
    engine, snapshot = running(young)
    assert reasons(snapshot) == ("Accepted", "Programmed")
    old = mk_listener_set("team/set", "edge/web", [http(80, "x.example")], created="2026-01-01T00:00:00Z")
    engine.apply(keyed(old))
    settle(engine, snapshot)
    assert reasons(snapshot) == ("-ListenersNotValid", "-ListenersNotValid")
    assert reasons(snapshot, Key("ListenerSet", "team", "set")) == ("Accepted", "Programmed")
    engine.apply({Key("ListenerSet", "team", "set"): None})
    settle(engine, snapshot)
    assert reasons(snapshot) == ("Accepted", "Programmed")


def test_the_sets_of_one_namespace_add_so_many_listeners_and_those_of_others_are_not_counted() -> None:
    three = [http(80, f"{name}.example", name) for name in ("a", "b", "c")]
    old = mk_listener_set("team/old", "edge/web", three, created="2026-01-01T00:00:00Z")
    young = mk_listener_set("team/young", "edge/web", [http(80, "d.example")], created="2026-02-01T00:00:00Z")
    other = mk_listener_set("shop/set", "edge/web", [http(80, "e.example")], created="2026-03-01T00:00:00Z")
    profile = mk_profile("edge/p", limits={"listenersPerNamespace": 3})
    limited = mk_gateway("edge/web", allowedListeners=FROM_ALL, infrastructure={"parametersRef": profile_ref("p")})
    engine, snapshot = settled(keyed(mk_class(), limited, profile, old, young, other))
    late = Key("ListenerSet", "team", "young")
    assert reasons(snapshot, Key("ListenerSet", "team", "old")) == ("Accepted", "Programmed")
    assert reasons(snapshot) == ("Accepted", "Programmed")
    assert reasons(snapshot, late)[0] == "-NotAllowed"
    status = snapshot.status[late]
    assert isinstance(status, ListenerSetStatus)
    assert "too many listeners at Gateway edge/web: the limit is 3" in status.conditions[0].message
    engine.apply({Key("ListenerSet", "team", "old"): None})
    settle(engine, snapshot)
    assert reasons(snapshot, late) == ("Accepted", "Programmed")


def test_the_port_of_the_readiness_probe_is_nobodys_in_a_pod() -> None:
    """If the probe gave way, any author of a ListenerSet could have all Pods of the Gateway replaced."""
    both = mk_listener_set("shop/set", "edge/web", [http(15021, name="taken"), http(81, name="free")])
    engine, snapshot = running(both, settings=IN_CLUSTER)
    status: Any = snapshot.status[SET]
    accepted = {listener.name: (listener.conditions[0].status, listener.conditions[0].reason) for listener in status.listeners}
    assert accepted == {"taken": ("False", "PortUnavailable"), "free": ("True", "Accepted")}
    assert {name for _, type_url, name in snapshot.xds if type_url == LISTENER} == {"edge/web/80", "edge/web/81"}
    obj, plan = engine.store.get(WEB), gateway(engine.graph, WEB)
    assert isinstance(obj, Gateway) and plan
    assert desired_gateway(obj, plan, ProxySettings()).ports == ((80, "TCP"), (81, "TCP"))
    _, snapshot = running(both)
    assert reasons(snapshot) == ("Accepted", "Programmed")


def test_a_namespace_that_loses_its_label_loses_its_listeners() -> None:
    selector = {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"in": "yes"}}}}
    engine, snapshot = running(
        mk_gateway("edge/web", allowedListeners=selector),
        mk("Namespace", "shop", labels={"in": "yes"}),
        mk_listener_set("shop/set", "edge/web", [http(81)]),
    )
    assert reasons(snapshot) == ("Accepted", "Programmed")
    assert attached(snapshot) == 1
    engine.apply(keyed(mk("Namespace", "shop")))
    settle(engine, snapshot)
    assert reasons(snapshot) == ("-NotAllowed", "-NotAllowed")
    assert attached(snapshot) == 0
    assert {name for _, _, name in snapshot.xds} == {"edge/web/80"}


def attached(snapshot: Snapshot) -> int:
    status = snapshot.status[WEB]
    assert isinstance(status, GatewayStatus)
    return status.attached_listener_sets


def test_a_port_that_cannot_be_had_is_the_sets_problem_only() -> None:
    engine, snapshot = running(mk_listener_set("shop/set", "edge/web", [http(81)]))
    BIND_RESULT.set(engine.graph, BindResult("0.0.0.0:81 is in use by nginx"), WEB, "0.0.0.0", 81, "TCP")
    snapshot.take(engine.settle())
    assert reasons(snapshot) == ("Accepted", "-PortUnavailable")
    status = snapshot.status[WEB]
    assert isinstance(status, GatewayStatus)
    assert [(c.status, c.message) for c in status.conditions] == [("True", ""), ("True", "")]


def test_a_younger_set_of_an_old_gateway_does_not_take_the_port_of_another_gateway_on_the_host() -> None:
    other = Key("Gateway", "shop", "own")
    set_ = mk_listener_set("team/set", "edge/web", [http(81)], created="2026-03-01T00:00:00Z")
    engine, snapshot = running(set_)
    assert reasons(snapshot, Key("ListenerSet", "team", "set")) == ("Accepted", "Programmed")
    obj = mk_gateway("shop/own", [http(81)])
    engine.apply({other: replace(obj, metadata=replace(obj.metadata, creation_timestamp="2026-02-01T00:00:00Z"))})
    settle(engine, snapshot)
    assert port_holder(engine.graph, other, 81, "TCP") is None
    assert port_holder(engine.graph, WEB, 81, "TCP") == other
    assert port_holder(engine.graph, WEB, 80, "TCP") is None
    assert reasons(snapshot, Key("ListenerSet", "team", "set")) == ("Accepted", "-PortUnavailable")


@pytest.mark.parametrize(
    ("around", "proxy", "expected"),
    [
        (Infrastructure(), ProxyState(), "-ParentNotProgrammed"),
        (Infrastructure((("IPAddress", "10.0.0.1"),)), ProxyState(), "-Pending"),
        (Infrastructure((("IPAddress", "10.0.0.1"),)), ProxyState(connected=True, ports=frozenset({80})), "-Pending"),
        (Infrastructure((("IPAddress", "10.0.0.1"),)), ProxyState(connected=True, ports=frozenset({80, 81})), "Programmed"),
    ],
)
def test_programmed_waits_for_the_gateway_and_for_the_port(around: Infrastructure, proxy: ProxyState, expected: str) -> None:
    listeners = mk_listener_set("shop/set", "edge/web", [http(81)])
    engine, snapshot = running(listeners, settings=Settings(host_network=False))
    INFRASTRUCTURE.set(engine.graph, around, WEB)
    PROXY.set(engine.graph, proxy, WEB)
    snapshot.take(engine.settle())
    assert reasons(snapshot) == ("Accepted", expected)


def test_in_a_cluster_the_gateways_service_has_the_ports_of_its_sets() -> None:
    engine, _ = running(mk_listener_set("shop/set", "edge/web", [http(81), http(82, name="b")]))
    obj, plan = engine.store.get(WEB), gateway(engine.graph, WEB)
    assert isinstance(obj, Gateway) and plan is not None
    assert desired_gateway(obj, plan, ProxySettings()).ports == ((80, "TCP"), (81, "TCP"), (82, "TCP"))


def test_a_set_that_names_something_else_than_a_gateway_is_left_alone() -> None:
    ref = {"group": "example.com", "kind": "Router", "name": "web", "namespace": "edge"}
    engine, snapshot = running(mk("ListenerSet", "shop/set", spec={"parentRef": ref, "listeners": [http(81)]}))
    assert SET not in snapshot.status
    assert [finding.reason for finding in engine.findings()] == ["NoMatchingParent"]

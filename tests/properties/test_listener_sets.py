"""ListenerSets in random worlds: they add to a Gateway only permitted listeners, and take nothing from other owners.

The oracle reads the objects with naive code of its own, and shares no code with `resolve`.
"""

from __future__ import annotations

from typing import Any

from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.core import Namespace
from lasthop.base.api.gateway import Gateway, Listener, ListenerSet
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import GatewayStatus, ListenerSetStatus
from lasthop.engine.outputs.envoy.resource import LISTENER, ROUTES
from lasthop.engine.resolve.gateways.gateways import gateway as resolved_gateway
from tests.examples import slow
from tests.properties.promises import PREPARED
from tests.random_world import BASE, EDITS, FRONTEND, Edit
from tests.snapshot import settled
from tests.world import STORE, key, key_pair, keyed, mk_class, mk_gateway, mk_listener_set, mk_route, mk_secret

Objects = dict[Key, Object]


def world_after(edits: list[Edit]) -> Objects:
    objects: dict[Key, Object | None] = dict(BASE)
    for obj, delete, _ in edits:
        objects[key(obj)] = None if delete else obj
    return {k: v for k, v in objects.items() if v is not None}


def gateway_of(listener_set: ListenerSet) -> Key:
    ref = listener_set.spec.parent_ref
    return Key("Gateway", ref.namespace or listener_set.metadata.namespace, ref.name)


def allowed(objects: Objects, listener_set: ListenerSet) -> bool:
    gateway = objects.get(gateway_of(listener_set))
    if not isinstance(gateway, Gateway):
        return False
    namespace = listener_set.metadata.namespace
    match gateway.spec.allowed_listeners.namespaces.from_:
        case "Selector":
            labelled = objects.get(Key("Namespace", "", namespace))
            return isinstance(labelled, Namespace) and labelled.metadata.labels.get("x") == "1"
        case "Same":
            return namespace == gateway.metadata.namespace
        case rule:
            return rule == "All"


def sets(objects: Objects) -> dict[Key, ListenerSet]:
    return {k: v for k, v in objects.items() if isinstance(v, ListenerSet)}


@slow(60)
@given(EDITS)
def test_a_denied_listener_set_does_not_change_envoys_configuration(edits: list[Edit]) -> None:
    objects = world_after(edits)
    shut_out = {k for k, v in sets(objects).items() if not allowed(objects, v)}
    _, snapshot = PREPARED.edited(objects)
    _, without = PREPARED.edited({k: v for k, v in objects.items() if k not in shut_out})
    assert snapshot.xds == without.xds
    for set_key in shut_out & snapshot.status.keys():
        status = snapshot.status[set_key]
        assert isinstance(status, ListenerSetStatus)
        assert {(c.status, c.reason) for c in status.conditions} == {("False", "NotAllowed")}
        assert status.listeners == ()


@slow(60)
@given(EDITS)
def test_listener_sets_take_nothing_from_the_gateway_they_join(edits: list[Edit]) -> None:
    objects = world_after(edits)
    _, snapshot = PREPARED.edited(objects)
    _, without = PREPARED.edited({k: v for k, v in objects.items() if not isinstance(v, ListenerSet)})
    for gateway_key, status in without.status.items():
        if isinstance(status, GatewayStatus):
            now = snapshot.status[gateway_key]
            assert isinstance(now, GatewayStatus)
            assert [_judged(x) for x in now.listeners] == [_judged(x) for x in status.listeners]


def _judged(listener: object) -> object:
    """Returns all conditions except two. On a shared host the sets of another Gateway may take a port first, which changes
    Programmed. The note about names shared with another listener removes nothing."""
    other = ("Programmed", "OverlappingTLSConfig")
    conditions = [c for c in listener.conditions if c.type not in other]  # type: ignore[attr-defined]
    return (listener.name, listener.attached_routes, conditions)  # type: ignore[attr-defined]


@slow(60)
@given(EDITS)
def test_only_the_first_of_conflicting_listeners_is_accepted(edits: list[Edit]) -> None:
    objects = world_after(edits)
    _, snapshot = PREPARED.edited(objects)
    for gateway_key, gateway in objects.items():
        if not isinstance(gateway, Gateway) or gateway_key not in snapshot.status:
            continue
        own = [v for v in sets(objects).values() if gateway_of(v) == gateway_key and allowed(objects, v)]
        own.sort(key=lambda v: (v.metadata.creation_timestamp, f"{v.metadata.namespace}/{v.metadata.name}"))
        earlier: list[Listener] = list(gateway.spec.listeners)
        for listener_set in own:
            status = snapshot.status[key(listener_set)]
            assert isinstance(status, ListenerSetStatus)
            conflicted = {x.name: any(c.type == "Conflicted" for c in x.conditions) for x in status.listeners}
            late = [x for x in listener_set.spec.listeners if any(clash(x, other) for other in earlier)]
            first = [x for x in listener_set.spec.listeners if x not in late]
            inside = [x for x in first if any(clash(x, other) for other in first if other is not x)]
            assert conflicted == {x.name: x in late or x in inside for x in listener_set.spec.listeners}
            earlier += first


def clash(a: Listener, b: Listener) -> bool:
    return a.port == b.port and (a.protocol != b.protocol or a.hostname == b.hostname)


def test_the_world_has_a_set_that_is_served() -> None:
    _, snapshot = PREPARED()
    status = snapshot.status[Key("ListenerSet", "a", "l0")]
    assert isinstance(status, ListenerSetStatus)
    assert [(x.name, x.attached_routes) for x in status.listeners] == [("one", 1)]
    assert {c.status for c in status.conditions} == {"True"}
    gateway = snapshot.status[Key("Gateway", "b", "g1")]
    assert isinstance(gateway, GatewayStatus)
    assert gateway.attached_listener_sets == 1


_NAMES = st.sampled_from(["", "*.example", "x.example", "*.x.example", "a.x.example"])


@st.composite
def _listeners(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draws listeners; some have a missing certificate, some have filters, which are not served."""
    listeners = []
    for number in range(draw(st.integers(1, 3))):
        protocol, port = draw(st.sampled_from([("HTTP", 80), ("HTTPS", 443), ("HTTPS", 443), ("TLS", 443)]))
        listener: dict[str, Any] = {"name": f"n{number}", "port": port, "protocol": protocol, "hostname": draw(_NAMES)}
        listener["allowedRoutes"] = {"namespaces": {"from": "All"}}
        if protocol != "HTTP":
            mode = draw(st.sampled_from(["Terminate", "Terminate", "Passthrough"])) if protocol == "TLS" else "Terminate"
            refs = {"certificateRefs": [{"name": draw(st.sampled_from(["k0", "missing"]))}]} if mode == "Terminate" else {}
            listener["tls"] = {"mode": mode, **refs}
        elif draw(st.booleans()):
            listener["filters"] = {"requests": [{"type": "RequestHeaderModifier"}]}
        listeners.append(listener)
    return listeners


_FRONTENDS = st.sampled_from([{}, {}, {"tls": {"frontend": FRONTEND}}])
"""One of them requests client certificates, and its CA is missing."""


@slow(300)
@given(_listeners(), _listeners(), _listeners(), _FRONTENDS)
def test_a_name_never_falls_to_a_wider_listener_whether_its_own_serves_or_not(
    own: list[dict[str, Any]], of_a: list[dict[str, Any]], of_b: list[dict[str, Any]], spec: dict[str, Any]
) -> None:
    """Every listener that has not lost a conflict has its name on every port that is open: its chain, or one that closes."""
    engine, snapshot = settled(
        keyed(
            mk_class(),
            mk_gateway("a/g", own, allowedListeners={"namespaces": {"from": "All"}}, **spec),
            mk_listener_set("a/l", "a/g", of_a),
            mk_listener_set("b/l", "a/g", of_b),
            *(mk_secret(f"{ns}/k0", *key_pair("k0")) for ns in "ab"),
            *(mk_route(f"{ns}/r", "", [], parents=[{"kind": "ListenerSet", "name": "l"}]) for ns in "ab"),
            mk_route("a/r0", "a/g", []),
        ),
        store=STORE,
    )
    for gateway in engine.store.keys("Gateway"):
        plan = resolved_gateway(engine.graph, gateway)
        for listener in plan.listeners if plan else ():
            name = f"{gateway.path}/{listener.port}"
            resource = snapshot.xds.get((gateway, LISTENER, name))
            if resource is None or listener.transport == "UDP" or not listener.hostname or listener.conflicted:
                continue
            host = listener.hostname.replace("*", "any-other-label")
            if listener.protocol == "HTTP":
                table = route_pb2.RouteConfiguration.FromString(snapshot.xds[gateway, ROUTES, name].body)
                answers = {domain: served for served in table.virtual_hosts for domain in served.domains}
                chosen = answers[_longest(list(answers), host)]
                assert listener.served or (list(chosen.domains), len(chosen.routes)) == ([listener.hostname], 0)
                continue
            chains = {
                server_name: chain
                for chain in listener_pb2.Listener.FromString(resource.body).filter_chains
                for server_name in chain.filter_chain_match.server_names or ["*"]
            }
            chain = chains[_longest(list(chains), host)]
            assert chain.name == listener.table or chain.name.startswith(f"{listener.table}/")
            assert listener.served or not chain.filters


def _longest(patterns: list[str], host: str) -> str:
    """As Envoy chooses: the name itself, else the longest wildcard that ends as the name does."""
    if host in patterns:
        return host
    fitting = [p for p in patterns if p == "*" or (p.startswith("*.") and host.endswith(p[1:]))]
    return max(fitting, key=len)

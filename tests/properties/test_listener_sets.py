"""ListenerSets in random worlds: they add to a Gateway what it lets them add, and take nothing from anybody.

The oracle reads the objects by itself and naively; it shares no code with `resolve`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from lasthop.api.core import Namespace
from lasthop.api.gateway import Gateway, Listener, ListenerSet
from lasthop.api.meta import Key, Object
from lasthop.api.status import GatewayStatus, ListenerSetStatus
from tests.properties.test_incremental import BASE, EDITS, fresh, key

Objects = dict[Key, Object]


def world_after(edits: list[tuple[Object, bool, bool]]) -> Objects:
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


slow = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@slow
@given(EDITS)
def test_a_listener_set_that_is_not_let_in_changes_nothing_that_envoy_is_told(edits: list[tuple[Object, bool, bool]]) -> None:
    objects = world_after(edits)
    shut_out = {k for k, v in sets(objects).items() if not allowed(objects, v)}
    _, found = fresh(dict(objects))
    _, without = fresh({k: v for k, v in objects.items() if k not in shut_out})
    assert found.xds == without.xds
    for each in shut_out & found.status.keys():
        status = found.status[each]
        assert isinstance(status, ListenerSetStatus)
        assert {(c.status, c.reason) for c in status.conditions} == {("False", "NotAllowed")}
        assert status.listeners == ()


@slow
@given(EDITS)
def test_listener_sets_take_nothing_from_the_gateway_they_join(edits: list[tuple[Object, bool, bool]]) -> None:
    objects = world_after(edits)
    _, found = fresh(dict(objects))
    _, without = fresh({k: v for k, v in objects.items() if not isinstance(v, ListenerSet)})
    for each, status in without.status.items():
        if isinstance(status, GatewayStatus):
            now = found.status[each]
            assert isinstance(now, GatewayStatus)
            assert [_judged(x) for x in now.listeners] == [_judged(x) for x in status.listeners]


def _judged(listener: object) -> object:
    """All but Programmed, because on a shared host the sets of another Gateway may have a port first, and the note that names
    are shared with another listener, which takes nothing away."""
    other = ("Programmed", "OverlappingTLSConfig")
    conditions = [c for c in listener.conditions if c.type not in other]  # type: ignore[attr-defined]
    return (listener.name, listener.attached_routes, conditions)  # type: ignore[attr-defined]


@slow
@given(EDITS)
def test_of_listeners_that_want_the_same_only_the_first_is_accepted(edits: list[tuple[Object, bool, bool]]) -> None:
    objects = world_after(edits)
    _, found = fresh(dict(objects))
    for gateway_key, gateway in objects.items():
        if not isinstance(gateway, Gateway) or gateway_key not in found.status:
            continue
        own = [v for v in sets(objects).values() if gateway_of(v) == gateway_key and allowed(objects, v)]
        own.sort(key=lambda v: (v.metadata.creation_timestamp, f"{v.metadata.namespace}/{v.metadata.name}"))
        earlier: list[Listener] = list(gateway.spec.listeners)
        for each in own:
            status = found.status[key(each)]
            assert isinstance(status, ListenerSetStatus)
            conflicted = {x.name: any(c.type == "Conflicted" for c in x.conditions) for x in status.listeners}
            late = [x for x in each.spec.listeners if any(clash(x, other) for other in earlier)]
            first = [x for x in each.spec.listeners if x not in late]
            inside = [x for x in first if any(clash(x, other) for other in first if other is not x)]
            assert conflicted == {x.name: x in late or x in inside for x in each.spec.listeners}
            earlier += first


def clash(a: Listener, b: Listener) -> bool:
    return a.port == b.port and (a.protocol != b.protocol or a.hostname == b.hostname)


def test_the_world_has_a_set_that_is_served() -> None:
    _, found = fresh(dict(BASE))
    status = found.status[Key("ListenerSet", "a", "l0")]
    assert isinstance(status, ListenerSetStatus)
    assert [(x.name, x.attached_routes) for x in status.listeners] == [("one", 1)]
    assert {c.status for c in status.conditions} == {"True"}
    gateway = found.status[Key("Gateway", "b", "g1")]
    assert isinstance(gateway, GatewayStatus)
    assert gateway.attached_listener_sets == 1

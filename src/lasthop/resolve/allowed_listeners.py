"""The ListenerSets of a Gateway: which ones it allows, and in which order their listeners come."""

from __future__ import annotations

from lasthop.api.gateway import GROUP, Gateway, ListenerSet
from lasthop.api.meta import Key
from lasthop.resolve.namespaces import allows_namespace
from lasthop.store.graph import Emitter, Graph, query
from lasthop.store.store import read


def parent_gateway(g: Graph, key: Key) -> Key | None:
    """The Gateway that a ListenerSet names, whether or not there is one; None if it names something else."""
    obj = read(g, key, ListenerSet)
    ref = obj.spec.parent_ref if obj else None
    if ref is None or (ref.group, ref.kind) != (GROUP, "Gateway"):
        return None
    return Key("Gateway", ref.namespace or key.namespace, ref.name)


@query
def _emit(g: Graph, key: Key) -> tuple[tuple[tuple[str, Key], tuple[str, str]], ...]:
    obj, gateway = read(g, key, ListenerSet), parent_gateway(g, key)
    return ((("listener-set", gateway), obj.age),) if obj and gateway else ()


LISTENER_SETS = Emitter("listener-sets", "ListenerSet", _emit, keeps=True)


@query
def allowed_sets(g: Graph, gateway: Key) -> tuple[Key, ...]:
    """The ListenerSets whose listeners the Gateway takes, the older first, then by {namespace}/{name}."""
    obj = read(g, gateway, Gateway)
    if obj is None:
        return ()
    rule = obj.spec.allowed_listeners.namespaces
    named = sorted((age, key) for (key,), age in g.bucket("listener-set", gateway))
    return tuple(key for _, key in named if allows_namespace(g, gateway, rule, key.namespace))

"""The ListenerSets of a Gateway: which ones it allows, and in which order their listeners come."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.api.gateway import GROUP, Gateway, ListenerSet
from lasthop.api.meta import Key
from lasthop.resolve.namespaces import allows_namespace
from lasthop.store.graph import Graph, query
from lasthop.store.sources import Entry, Index
from lasthop.store.stages import indexer
from lasthop.store.store import read


def parent_gateway(g: Graph, key: Key) -> Key | None:
    """The Gateway that a ListenerSet names, whether or not there is one; None if it names something else."""
    obj = read(g, key, ListenerSet)
    ref = obj.spec.parent_ref if obj else None
    if ref is None or (ref.group, ref.kind) != (GROUP, "Gateway"):
        return None
    return Key("Gateway", ref.namespace or key.namespace, ref.name)


LISTENER_SETS = Index[Key, tuple[tuple[str, str], Key]]("listener-set")
"""By the Gateway that they name: (age, ListenerSet)."""


@indexer("ListenerSet", keeps=True)
def index_listener_sets(g: Graph, key: Key) -> Iterator[Entry]:
    obj, gateway = read(g, key, ListenerSet), parent_gateway(g, key)
    if obj and gateway:
        yield LISTENER_SETS.entry((gateway,), (obj.age, key))


@query
def allowed_sets(g: Graph, gateway: Key) -> tuple[Key, ...]:
    """The ListenerSets whose listeners the Gateway takes, the older first, then by {namespace}/{name}."""
    obj = read(g, gateway, Gateway)
    if obj is None:
        return ()
    rule = obj.spec.allowed_listeners.namespaces
    named = sorted(LISTENER_SETS.of(g, gateway))
    return tuple(key for _, key in named if allows_namespace(g, gateway, rule, key.namespace))

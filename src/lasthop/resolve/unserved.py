"""Which of our Gateways an object would concern that this version does not serve."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.api.gateway import GROUP
from lasthop.api.meta import Key
from lasthop.api.unserved import TargetReference, Unserved
from lasthop.resolve.gateways import age, gateway
from lasthop.resolve.policies.ancestors import reached_by
from lasthop.resolve.policies.targets import WHOLE
from lasthop.store.graph import Graph, query
from lasthop.store.store import read


@query
def concerned(g: Graph, key: Key) -> tuple[Key, ...]:
    """The Gateways that it names, and those that reach a Service that it names; the oldest first."""
    obj = read(g, key, Unserved)
    found = {each for target in (obj.spec.target_refs if obj else ()) for each in _gateways(g, key.namespace, target)}
    return tuple(sorted(found, key=lambda each: age(g, each)))


def _gateways(g: Graph, namespace: str, target: TargetReference) -> Iterator[Key]:
    match target.group, target.kind:
        case group, "Gateway" if group == GROUP:
            named = Key("Gateway", namespace, target.name)
            if gateway(g, named) is not None:
                yield named
        case "", "Service":
            yield from (reaching for reaching, _ in reached_by(g, Key("Service", namespace, target.name), WHOLE))

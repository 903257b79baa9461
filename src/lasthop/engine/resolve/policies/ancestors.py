"""The Gateways that reach the targets of a BackendTLSPolicy through routes: the ancestors in its status."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lasthop.base.api.core import AnyService
from lasthop.base.api.kinds import CONTROLLER_NAME, KINDS
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import ForeignPolicyStatus
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.resolve.backends.reach import REACH
from lasthop.engine.resolve.gateways.gateways import age
from lasthop.engine.resolve.policies.targets import WHOLE, service_of
from lasthop.engine.resolve.policies.texts import read_policy
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

MAX_ANCESTORS = KINDS["BackendTLSPolicy"].ancestors


class Ancestors(msgspec.Struct, frozen=True):
    """The Gateways that use a policy, the oldest first, divided by whether its status has a free entry."""

    gateways: tuple[Key, ...] = ()
    without_room: tuple[Key, ...] = ()


def with_room(g: Graph, gateways: Iterable[Key], status: ForeignPolicyStatus, limit: int = MAX_ANCESTORS) -> Ancestors:
    """Divides Gateways by whether the status of a policy has a free entry, which other controllers use too."""
    foreign = len([entry for entry in status.ancestors if entry.controller_name != CONTROLLER_NAME])
    # The age of a single Gateway does not matter, so it is not read.
    reached, room = list(gateways), max(0, limit - foreign)
    ordered = sorted(reached, key=lambda key: age(g, key)) if len(reached) > 1 else reached
    return Ancestors(tuple(ordered[:room]), tuple(ordered[room:]))


@query
def ancestors(g: Graph, policy: Key) -> Ancestors:
    obj = read_policy(g, policy)
    if obj is None:
        return Ancestors()
    reached: set[Key] = set()
    for target in obj.spec.target_refs:
        if service := service_of(policy, target):
            reached.update([gateway for gateway, _ in reached_by(g, service, target.section_name)])
    return with_room(g, reached, obj.status)


def reached_by(g: Graph, service_key: Key, section: str) -> tuple[tuple[Key, int], ...]:
    """Returns the (Gateway, port) pairs whose routes lead to a section of a Service. A section with a missing port or a UDP
    port counts as reached with the Service, so that a status reports the error; passthrough does not count, because no policy
    applies to it."""
    hops = REACH.of(g, service_key)
    service = read(g, service_key, AnyService) if hops else None
    ports_of_section = [p for p in service.spec.ports if section in (WHOLE, p.name)] if service else []
    ports = {p.port for p in ports_of_section if p.protocol == "TCP" and section != WHOLE}
    policed = not ports_of_section or any(p.protocol == "TCP" for p in ports_of_section)
    reached = [h for h in hops if h.protocol.policed or (not policed and h.protocol is not Protocol.PASSTHROUGH)]
    return tuple(sorted({(hop.gateway, hop.port) for hop in reached if not ports or hop.port in ports}))

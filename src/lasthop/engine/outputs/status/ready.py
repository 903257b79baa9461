"""READY of an object in a running gateway, with the objects at fault.

The API, the page and `lasthop status` show this result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lasthop.base.api.documents import Json
from lasthop.base.api.gateway import GatewayClass
from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.engine.outputs.status.summary import Summary, summary
from lasthop.engine.plan import reasons
from lasthop.engine.plan.not_applied import NotApplied
from lasthop.engine.plan.reasons import OLDER_TEXT_IN_FORCE
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.gateways.telemetry import TELEMETRY, collector_hop
from lasthop.engine.resolve.hops.failing import hop_trouble
from lasthop.engine.resolve.routing.attachment import parents, route_hops
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import Crash
from lasthop.engine.store.store import Store


def class_owners(store: Store) -> dict[str, str]:
    classes = ((key.name, store.get(key)) for key in store.keys("GatewayClass"))
    return {name: obj.spec.controller_name for name, obj in classes if isinstance(obj, GatewayClass)}


def older_texts(refused: Iterable[NotApplied]) -> dict[Key, str]:
    """Returns the objects whose older text is in force, with file and line of the new text that is not applied."""
    return {key: f"{entry.file}:{entry.line}" for entry in refused for key in entry.objects}


def readiness(g: Graph, key: Key, document: Json, owners: Mapping[str, str], older: Mapping[Key, str]) -> Summary:
    """Returns READY of an object; `document` is the object with its status."""
    result = summary(document, owners)
    if result.ready == "True" and (place := older.get(key)):
        # The status describes the older text.
        why = f"an older version is in force; {place} is not applied"
        return Summary("Unknown", why, reason=OLDER_TEXT_IN_FORCE)
    return result._replace(because=result.because or _culprits(g, key, result))


def _culprits(g: Graph, key: Key, result: Summary) -> tuple[str, ...]:
    """Returns the policies, XBackends and Services at fault for refused or failing hops of this route, or to this
    collector."""
    refused = result.reason == reasons.INVALID_BACKEND_TLS
    if not (refused or result.condition == reasons.BACKEND_CONNECTED):
        return ()
    troubles = [hop_trouble.attempt(g, *hop) for hop in _hops(g, key)]
    computed = [trouble for trouble in troubles if not isinstance(trouble, Crash)]
    return tuple(
        sorted({trouble.culprit.argument for trouble in computed if trouble.culprit and (trouble.failure is None) == refused})
    )


def _hops(g: Graph, key: Key) -> set[Hop]:
    """Returns the hops that a route or a telemetry policy uses."""
    if key.kind == TELEMETRY.kind:
        to = (collector_hop(g, key, gateway) for gateway in TELEMETRY.ancestors(g, key).gateways)
        return {hop for hop in to if hop and key in HOPS.of(g, *hop)}
    attached = parents.attempt(g, key) if key.kind in ROUTE_KINDS else ()
    accepted = () if isinstance(attached, Crash) else (parent for parent in attached if parent.problem is None)
    return {route_hop.hop for parent in accepted for route_hop in route_hops(g, key, parent) if route_hop.used}

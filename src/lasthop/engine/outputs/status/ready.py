"""READY of an object of a running gateway, with the objects at fault.

The API, the page and `lasthop status` show this one answer.
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
from lasthop.engine.resolve.gateways.telemetry import KIND as TELEMETRY
from lasthop.engine.resolve.gateways.telemetry import telemetry_ancestors
from lasthop.engine.resolve.hops.failing import CULPRITS
from lasthop.engine.resolve.routing.attachment import parents
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import Crash
from lasthop.engine.store.store import Store


def class_owners(store: Store) -> dict[str, str]:
    """Returns the controller of each GatewayClass."""
    found = ((key.name, store.get(key)) for key in store.keys("GatewayClass"))
    return {name: obj.spec.controller_name for name, obj in found if isinstance(obj, GatewayClass)}


def older_texts(refused: Iterable[NotApplied]) -> dict[Key, str]:
    """Returns the objects of which an older text is in force, with the place of the text that is not applied."""
    return {key: f"{each.file}:{each.line}" for each in refused for key in each.objects}


def readiness(g: Graph, key: Key, document: Json, owners: Mapping[str, str], older: Mapping[Key, str]) -> Summary:
    """Returns READY of an object; `document` is the object with its status."""
    found = summary(document, owners)
    if found.ready == "True" and (place := older.get(key)):
        # The status says nothing about the text that was written last.
        why = f"an older version is in force; {place} is not applied"
        return Summary("Unknown", why, reason=OLDER_TEXT_IN_FORCE)
    return found._replace(because=found.because or _culprits(g, key, found))


def _culprits(g: Graph, key: Key, found: Summary) -> tuple[str, ...]:
    """Returns the policies, XBackends and Services for which hops of exactly this route, or to exactly this collector, are
    refused or fail."""
    refused = found.reason == reasons.INVALID_BACKEND_TLS
    if not (refused or found.condition == reasons.BACKEND_CONNECTED):
        return ()
    culprits = {each for gateway in _gateways(g, key) for each in CULPRITS.of(g, key, gateway)}
    return tuple(sorted(each.key.argument for each in culprits if each.refused == refused))


def _gateways(g: Graph, key: Key) -> set[Key]:
    """Returns the Gateways from which hops of an object begin."""
    if key.kind == TELEMETRY:
        return set(telemetry_ancestors(g, key).gateways)
    found = parents.attempt(g, key) if key.kind in ROUTE_KINDS else ()
    return set() if isinstance(found, Crash) else {parent.gateway for parent in found if parent.problem is None}

"""GatewayClasses: which Gateways are ours."""

from __future__ import annotations

from lasthop.api.gateway import GatewayClass
from lasthop.api.kinds import CONTROLLER_NAME
from lasthop.api.meta import Key
from lasthop.plan import reasons
from lasthop.plan.reasons import Condition, false, true
from lasthop.resolve.profiles import BadParameters, class_profile
from lasthop.store.graph import Graph
from lasthop.store.store import read


def gateway_class(g: Graph, key: Key) -> Condition | None:
    """Whether the class is accepted; None if it belongs to another controller or does not exist."""
    obj = read(g, key, GatewayClass)
    if obj is None or obj.spec.controller_name != CONTROLLER_NAME:
        return None
    profile = g(class_profile, key)
    if isinstance(profile, BadParameters):
        return false(reasons.ACCEPTED, reasons.INVALID_PARAMETERS, profile.message)
    return true(reasons.ACCEPTED)

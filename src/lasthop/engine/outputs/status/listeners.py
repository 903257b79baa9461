"""Status of one listener, of a Gateway or of a ListenerSet."""

from __future__ import annotations

from lasthop.base.api.gateway import RouteGroupKind
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import ListenerStatus
from lasthop.engine.outputs.status.conditions import stated
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.listener import Listener
from lasthop.engine.plan.problem import Problem, invalid, joined, pending
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.resolve.gateways.gateways import gateway_accepted
from lasthop.engine.resolve.gateways.listener_conditions import listener_conditions
from lasthop.engine.resolve.gateways.ports import port_problem
from lasthop.engine.resolve.routing.attachment import ATTACHED
from lasthop.engine.resolve.settings import PROXY
from lasthop.engine.store.graph import Graph


def listener_status(g: Graph, gateway: Key, listener: Listener, obj: Object) -> ListenerStatus:
    """Returns the status of a listener; `obj` is the object that has it in its spec."""
    conditions = (*listener_conditions(g, listener), listener_programmed(g, gateway, listener))
    kinds = tuple(RouteGroupKind(kind) for kind in listener.supported_kinds)
    attached = ATTACHED.size(g, listener.owner, listener.name)
    return ListenerStatus(listener.name, attached, kinds, stated(conditions, obj))


def listener_programmed(g: Graph, gateway: Key, listener: Listener) -> Condition:
    conflict = next((c.problem for c in listener.conditions if c.type == reasons.CONFLICTED), None)
    if conflict:
        return failed(reasons.PROGRAMMED, conflict)
    accepted = gateway_accepted(g, gateway)
    if not listener.served or accepted is None or not accepted.status:
        return failed(reasons.PROGRAMMED, invalid("the listener is not served", remedy="see its other conditions"))
    problem = port_problem(g, gateway, listener.port, listener.transport)
    if problem:
        of_set = listener.owner.kind == "ListenerSet" and problem.reason != reasons.PENDING
        return failed(reasons.PROGRAMMED, problem.with_reason(reasons.PORT_UNAVAILABLE) if of_set else problem)
    proxy = PROXY.of(g, gateway) or ProxyState()
    if proxy.serves(listener.port, listener.transport):
        return true(reasons.PROGRAMMED)
    return failed(reasons.PROGRAMMED, pending(proxy.problem or "the proxy has not acknowledged it yet"))


def blocked_ports(problems: list[Problem]) -> Problem:
    """Returns what is wrong with several ports; Pending as long as one of them is."""
    return joined(problems, next((p.reason for p in problems if p.reason == reasons.PENDING), None))

"""Status of one listener, of a Gateway or of a ListenerSet."""

from __future__ import annotations

from lasthop.api.gateway import RouteGroupKind
from lasthop.api.meta import Key, Object
from lasthop.api.status import ListenerStatus
from lasthop.outputs.status.conditions import stated
from lasthop.plan import reasons
from lasthop.plan.condition import Condition, false, true
from lasthop.plan.listener import Listener
from lasthop.plan.proxy import ProxyState, proxy_input
from lasthop.resolve.gateways import gateway_accepted
from lasthop.resolve.ports import PortProblem, port_problem
from lasthop.store.graph import Graph


def listener_status(g: Graph, gateway: Key, listener: Listener, obj: Object) -> ListenerStatus:
    """`obj`: whose spec and status it stands in."""
    conditions = (*listener.conditions, listener_programmed(g, gateway, listener))
    kinds = tuple(RouteGroupKind(kind) for kind in listener.supported_kinds)
    attached = g.size("attached", listener.owner, listener.name)
    return ListenerStatus(listener.name, attached, kinds, stated(conditions, obj))


def listener_programmed(g: Graph, gateway: Key, listener: Listener) -> Condition:
    conflict = next((c for c in listener.conditions if c.type == reasons.CONFLICTED), None)
    if conflict:
        return false(reasons.PROGRAMMED, conflict.reason, conflict.message)
    accepted = gateway_accepted(g, gateway)
    if not listener.served or accepted is None or not accepted.status:
        return false(reasons.PROGRAMMED, reasons.INVALID, "the listener is not served; see its other conditions")
    problem = port_problem(g, gateway, listener.port, listener.transport)
    if problem:
        of_set = listener.owner.kind == "ListenerSet"
        return blocked_ports([problem], reasons.PORT_UNAVAILABLE if of_set else reasons.ADDRESS_NOT_USABLE)
    proxy: ProxyState = g.input(proxy_input(gateway)) or ProxyState()
    if proxy.serves(listener.port, listener.transport):
        return true(reasons.PROGRAMMED)
    return false(reasons.PROGRAMMED, reasons.PENDING, proxy.problem or "the proxy has not acknowledged it yet")


def blocked_ports(problems: list[PortProblem], reason: str) -> Condition:
    pending = any(problem.pending for problem in problems)
    return false(reasons.PROGRAMMED, reasons.PENDING if pending else reason, "; ".join(p.message for p in problems))

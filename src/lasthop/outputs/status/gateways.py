"""Status of GatewayClasses and Gateways."""

from __future__ import annotations

from lasthop.api import gateway as api
from lasthop.api.gateway import GatewayAddress, RouteGroupKind
from lasthop.api.meta import Key
from lasthop.api.status import GatewayClassStatus, GatewayStatus, ListenerStatus
from lasthop.outputs.status.conditions import stated
from lasthop.plan import reasons
from lasthop.plan.infrastructure import Infrastructure, infrastructure_input
from lasthop.plan.listener import Gateway, Listener
from lasthop.plan.proxy import ProxyState, proxy_input
from lasthop.plan.reasons import Condition, false, true
from lasthop.resolve.classes import gateway_class
from lasthop.resolve.gateways import client_certificate, gateway
from lasthop.resolve.policies.degraded import waived_ports
from lasthop.resolve.ports import PortProblem, port_problem
from lasthop.resolve.settings import settings
from lasthop.store.graph import Graph, Output
from lasthop.store.store import read


def class_status(g: Graph, key: Key) -> GatewayClassStatus | None:
    obj, accepted = read(g, key, api.GatewayClass), g(gateway_class, key)
    if obj is None or accepted is None:
        return None
    return GatewayClassStatus(stated((accepted, true(reasons.SUPPORTED_VERSION)), obj))


def gateway_status(g: Graph, key: Key) -> GatewayStatus | None:
    obj, owner = read(g, key, api.Gateway), g(gateway, key)
    if obj is None or owner is None:
        return None
    proxy: ProxyState = g.input(proxy_input(key)) or ProxyState()
    listeners = []
    for listener in owner.listeners:
        conditions = (*listener.conditions, _listener_programmed(g, owner, listener, proxy))
        kinds = tuple(RouteGroupKind(kind) for kind in listener.supported_kinds)
        attached = g.size("attached", key, listener.name)
        listeners.append(ListenerStatus(listener.name, attached, kinds, stated(conditions, obj)))
    conditions = (owner.accepted, _programmed(g, owner, proxy), *_references(g, key), *_insecure(g, key))
    addresses = tuple(GatewayAddress(*address) for address in _addresses(g, owner))
    return GatewayStatus(addresses, stated(conditions, obj), tuple(listeners))


def _infrastructure(g: Graph, owner: Gateway) -> Infrastructure:
    return g.input(infrastructure_input(owner.key)) or Infrastructure()


def _addresses(g: Graph, owner: Gateway) -> tuple[tuple[str, str], ...]:
    """Where clients reach it: what its proxy binds on a shared host, what its Service was given in a cluster."""
    if settings(g).host_network:
        return tuple(("IPAddress", address) for address in owner.addresses)
    return _infrastructure(g, owner).addresses


def _programmed(g: Graph, owner: Gateway, proxy: ProxyState) -> Condition:
    """True as soon as the proxy serves at least one listener as it is written now."""
    if not owner.accepted.status:
        return false(reasons.PROGRAMMED, reasons.INVALID, "the Gateway is not accepted")
    if not settings(g).host_network:
        around = _infrastructure(g, owner)
        if around.missing:
            message = f"not given: {', '.join(around.missing)}"
            return false(reasons.PROGRAMMED, reasons.ADDRESS_NOT_USABLE, message)
        if not around.addresses:
            message = around.problem or "its Service has no address yet"
            return false(reasons.PROGRAMMED, reasons.ADDRESS_NOT_ASSIGNED, message)
    served = [listener for listener in owner.listeners if listener.served]
    problems = {listener.port: g(port_problem, owner.key, listener.port) for listener in served}
    blocked = [problem for problem in problems.values() if problem]
    if served and len(blocked) == len(problems):
        return _blocked(blocked)
    if not proxy.connected:
        return false(reasons.PROGRAMMED, reasons.PENDING, proxy.problem or "no proxy is connected")
    if any(port in proxy.ports for port in problems) or not served:
        return true(reasons.PROGRAMMED, "; ".join(problem.message for problem in blocked))
    return false(reasons.PROGRAMMED, reasons.PENDING, proxy.problem or "the proxy has not acknowledged the configuration yet")


def _listener_programmed(g: Graph, owner: Gateway, listener: Listener, proxy: ProxyState) -> Condition:
    if not listener.served or not owner.accepted.status:
        return false(reasons.PROGRAMMED, reasons.INVALID, "the listener is not served; see its other conditions")
    problem = g(port_problem, owner.key, listener.port)
    if problem:
        return _blocked([problem])
    if listener.port in proxy.ports:
        return true(reasons.PROGRAMMED)
    return false(reasons.PROGRAMMED, reasons.PENDING, proxy.problem or "the proxy has not acknowledged it yet")


def _blocked(problems: list[PortProblem]) -> Condition:
    reason = reasons.PENDING if any(problem.pending for problem in problems) else reasons.ADDRESS_NOT_USABLE
    return false(reasons.PROGRAMMED, reason, "; ".join(problem.message for problem in problems))


def _references(g: Graph, key: Key) -> tuple[Condition, ...]:
    """ResolvedRefs of the Gateway itself speaks of its client certificate, where it has one."""
    own = g(client_certificate, key)
    if own is None:
        return ()
    return (own,) if isinstance(own, Condition) else (true(reasons.RESOLVED_REFS),)


def _insecure(g: Graph, key: Key) -> tuple[Condition, ...]:
    """Only while some waiver is in effect."""
    count = waived_ports(g, key)
    if not count:
        return ()
    what = "1 backend is" if count == 1 else f"{count} backends are"
    message = f"{what} not fully verified, by a VerificationWaiver; `lasthop audit` lists what, why and until when"
    return (true(reasons.INSECURE_BACKEND_VERIFICATION, message),)


CLASS_STATUS = Output("status-classes", "GatewayClass", class_status)
GATEWAY_STATUS = Output("status-gateways", "Gateway", gateway_status)

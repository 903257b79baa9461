"""Status of GatewayClasses, of Gateways and ListenerSets, and of their listeners."""

from __future__ import annotations

from typing import Final

from lasthop.base.api import gateway as api
from lasthop.base.api.gateway import GatewayAddress, RouteGroupKind
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import GatewayClassStatus, GatewayStatus, ListenerSetStatus, ListenerStatus, SupportedFeature
from lasthop.base.text.printable import some
from lasthop.engine.outputs.status.conditions import stated
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.infrastructure import CLUSTER, Infrastructure, canonical
from lasthop.engine.plan.listener import GatewayPlan, ListenerPlan, ListenerSetPlan
from lasthop.engine.plan.problem import Problem, invalid, joined, pending
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.resolve.gateways.frontend import insecure_mode
from lasthop.engine.resolve.gateways.gateways import (
    CLIENT_CERTIFICATE,
    class_features,
    client_certificate,
    gateway,
    gateway_accepted,
    gateway_class,
    supported_version,
)
from lasthop.engine.resolve.gateways.listener_conditions import listener_conditions
from lasthop.engine.resolve.gateways.listener_sets import ACCEPTED_SETS, listener_set
from lasthop.engine.resolve.gateways.ports import port_problem
from lasthop.engine.resolve.hops.hop_index import WAIVED, WITHOUT_ROOM
from lasthop.engine.resolve.hops.weakening import WEAKENED
from lasthop.engine.resolve.routing.attachment import ATTACHED
from lasthop.engine.resolve.settings import INFRASTRUCTURE, PROXY, settings
from lasthop.engine.resolve.trust.trust import pair_dates, pair_out_of_date
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.stages import Output
from lasthop.engine.store.store import read


def listener_status(g: Graph, gateway: Key, listener: ListenerPlan, obj: Object) -> ListenerStatus:
    """Returns the status of a listener; `obj` is the object with the listener in its spec."""
    conditions = (*listener_conditions(g, listener), listener_programmed(g, gateway, listener))
    kinds = tuple(RouteGroupKind(kind) for kind in listener.supported_kinds)
    attached = ATTACHED.size(g, listener.owner, listener.name)
    return ListenerStatus(listener.name, attached, kinds, stated(conditions, obj))


def listener_programmed(g: Graph, gateway: Key, listener: ListenerPlan) -> Condition:
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
    """Joins the problems of several ports; Pending if any of them is."""
    return joined(problems, next((p.reason for p in problems if p.reason == reasons.PENDING), None))


SHOWN: Final = 3
"""Limit of policies that a message names."""


@query
def class_status(g: Graph, key: Key) -> GatewayClassStatus | None:
    obj, accepted = read(g, key, api.GatewayClass), gateway_class(g, key)
    if obj is None or accepted is None:
        return None
    features = tuple(SupportedFeature(name) for name in class_features(g))
    return GatewayClassStatus(stated(class_conditions(g, key), obj), features)


def class_conditions(g: Graph, key: Key) -> tuple[Condition, ...]:
    """Returns the conditions of a class; empty if it belongs to another controller."""
    accepted = gateway_class(g, key)
    return (accepted, supported_version(g)) if accepted else ()


@query
def gateway_status(g: Graph, key: Key) -> GatewayStatus | None:
    obj, owner = read(g, key, api.Gateway), gateway(g, key)
    if obj is None or owner is None:
        return None
    plans = (listener for listener in owner.listeners if listener.owner == key)
    listeners = tuple(listener_status(g, key, listener, obj) for listener in plans)
    addresses = tuple(GatewayAddress(*address) for address in _addresses(g, owner))
    return GatewayStatus(addresses, stated(gateway_conditions(g, owner), obj), listeners, ACCEPTED_SETS.size(g, key))


def gateway_conditions(g: Graph, owner: GatewayPlan) -> tuple[Condition, ...]:
    key = owner.key
    return (
        owner.accepted,
        programmed(g, key),
        *_assigned(g, owner),
        *_references(g, key),
        *_insecure(g, key),
        *_weakened(g, key),
        *_without_room(g, key),
        *filter(None, (insecure_mode(g, key),)),
    )


def _addresses(g: Graph, owner: GatewayPlan) -> tuple[tuple[str, ...], ...]:
    """Returns the addresses for clients: those that the proxy binds on a shared host, those of its Services in a cluster."""
    if settings(g).host_network:
        inside = owner.requested.inside
        outside = owner.requested.outside if inside else owner.addresses
        return (*(("IPAddress", address) for address in outside), *(("IPAddress", address, CLUSTER) for address in inside))
    around = INFRASTRUCTURE.of(g, owner.key) or Infrastructure()
    return tuple((*address, CLUSTER) if address[1] in around.inside else address for address in around.addresses)


def _assigned(g: Graph, owner: GatewayPlan) -> tuple[Condition, ...]:
    """Returns AddressesAssigned if the Gateway requests a routability, otherwise nothing."""
    if not owner.requested.scoped:
        return ()
    have, around = _addresses(g, owner), INFRASTRUCTURE.of(g, owner.key) or Infrastructure()
    lacking = [
        *owner.requested.unassigned,
        *(f"{address} is not assigned" for address in _still_requested(g, owner.key, around.missing)),
    ]
    for requested, scope in ((owner.requested.outside, ""), (owner.requested.inside, CLUSTER)):
        if requested and not any(address[2:] == ((scope,) if scope else ()) for address in have):
            lacking.append(f"no address of routability {scope} is assigned yet" if scope else "its Service has no address yet")
    if not lacking and owner.accepted.status:
        return (true(reasons.ADDRESSES_ASSIGNED, "", reasons.ASSIGNED),)
    reason = reasons.PARTIALLY_ASSIGNED if have and owner.accepted.status else reasons.NOT_ASSIGNED
    return (failed(reasons.ADDRESSES_ASSIGNED, Problem(reason, "; ".join(lacking) or "the Gateway is not accepted")),)


@query
def programmed(g: Graph, key: Key) -> Condition:
    """Returns Programmed: True once the proxy serves at least one listener in its current form."""
    owner = gateway(g, key)
    proxy = PROXY.of(g, key) or ProxyState()
    if owner is None or not owner.accepted.status:
        if owner and owner.requested.unassigned and owner.accepted.reason == reasons.UNSUPPORTED_ADDRESS:
            message = "the Gateway is not accepted: none of its addresses can be assigned"
            return failed(reasons.PROGRAMMED, Problem(reasons.ADDRESS_NOT_ASSIGNED, message))
        return failed(reasons.PROGRAMMED, invalid("the Gateway is not accepted"))
    if not settings(g).host_network:
        around = INFRASTRUCTURE.of(g, owner.key)
        if around is None:
            return failed(reasons.PROGRAMMED, pending("its Service is not read yet"))
        missing = ", ".join(_still_requested(g, key, around.missing))
        if not around.addresses:  # without any address, the Service may not be processed yet
            message = around.problem or (f"not assigned yet: {missing}" if missing else "its Service has no address yet")
            return failed(reasons.PROGRAMMED, Problem(reasons.ADDRESS_NOT_ASSIGNED, message))
        if missing:
            remedy = "give the Gateway addresses that the Service's load balancer can assign"
            return failed(reasons.PROGRAMMED, Problem(reasons.ADDRESS_NOT_USABLE, f"not assigned: {missing}", remedy=remedy))
    served = [listener for listener in owner.listeners if listener.served]
    ports = {(listener.port, listener.transport) for listener in served}
    problems = {port: port_problem(g, owner.key, *port) for port in ports}
    blocked = [problem for problem in problems.values() if problem]
    if served and len(blocked) == len(problems):
        return failed(reasons.PROGRAMMED, blocked_ports(blocked))
    if not proxy.connected:
        return failed(reasons.PROGRAMMED, pending(proxy.problem or "no proxy is connected"))
    if any(proxy.serves(*port) for port in problems) or not served:
        # ListenerSets report ports that only they use.
        own_ports = {(listener.port, listener.transport) for listener in served if listener.owner == key}
        return true(
            reasons.PROGRAMMED, "; ".join(problem.text for port, problem in problems.items() if problem and port in own_ports)
        )
    return failed(reasons.PROGRAMMED, pending(proxy.problem or "the proxy has not acknowledged the configuration yet"))


def _still_requested(g: Graph, key: Key, addresses: tuple[str, ...]) -> list[str]:
    """Returns the addresses that the Gateway's current spec still requests; the state of its Services may be older."""
    obj = read(g, key, api.Gateway)
    requested = {canonical(address.value) for address in obj.spec.addresses} if obj else set()
    return [address for address in addresses if address in requested]


def _references(g: Graph, key: Key) -> tuple[Condition, ...]:
    """Returns ResolvedRefs of the Gateway itself, for its client certificate, if it has one."""
    certificate = client_certificate(g, key)
    if certificate is None:
        return ()
    if isinstance(certificate, Problem):
        return (failed(reasons.RESOLVED_REFS, certificate),)
    if problem := pair_out_of_date(g, certificate):
        return (failed(reasons.RESOLVED_REFS, problem.at(CLIENT_CERTIFICATE)),)
    return (true(reasons.RESOLVED_REFS, pair_dates(g, certificate)),)


def _insecure(g: Graph, key: Key) -> tuple[Condition, ...]:
    """Returns the condition of a Gateway with a waiver in effect."""
    count = WAIVED.size(g, key)
    if not count:
        return ()
    backends = "1 backend is" if count == 1 else f"{count} backends are"
    message = f"{backends} not fully verified because of a VerificationWaiver; see `lasthop audit`"
    return (true(reasons.INSECURE_BACKEND_VERIFICATION, message),)


def _weakened(g: Graph, key: Key) -> tuple[Condition, ...]:
    """Returns the condition of a Gateway with weakened backends that are not acknowledged."""
    count = WEAKENED.size(g, key)
    if not count:
        return ()
    backends = "1 backend is" if count == 1 else f"{count} backends are"
    message = f"{backends} verified less than before, without an acknowledgement; `lasthop audit --since 24h` lists the edits"
    return (true(reasons.BACKENDS_WEAKENED, message, reasons.NO_LONGER_VERIFIED),)


def _without_room(g: Graph, key: Key) -> tuple[Condition, ...]:
    """Returns the condition of a Gateway for which policies have no free ancestor entry. The spec requires it on the ancestor,
    because the policy's status is full."""
    full = sorted(set(WITHOUT_ROOM.of(g, key)))
    if not full:
        return ()
    policies = some(list(map(str, full)), SHOWN)
    message = f"the status of {policies} has no free entry for this Gateway, so requests to their backends get 500"
    return (true(reasons.POLICY_STATUS_FULL, message, reasons.NO_ROOM),)


CLASS_STATUS = Output("status-classes", "GatewayClass", class_status)
GATEWAY_STATUS = Output("status-gateways", "Gateway", gateway_status)


@query
def listener_set_status(g: Graph, key: Key) -> ListenerSetStatus | None:
    obj, plan = read(g, key, api.ListenerSet), listener_set(g, key)
    if obj is None or plan is None:
        return None
    listeners = tuple(listener_status(g, plan.gateway, listener, obj) for listener in plan.listeners)
    return ListenerSetStatus(stated(set_conditions(g, plan), obj), listeners)


def set_conditions(g: Graph, plan: ListenerSetPlan) -> tuple[Condition, ...]:
    return plan.accepted, _programmed(g, plan)


def _programmed(g: Graph, plan: ListenerSetPlan) -> Condition:
    """Returns Programmed: True once the Gateway's proxy serves one of the ListenerSet's listeners in its current form."""
    accepted = plan.accepted
    if problem := accepted.problem:
        of_parent = problem.reason == reasons.PARENT_NOT_ACCEPTED
        return failed(reasons.PROGRAMMED, problem.with_reason(reasons.PARENT_NOT_PROGRAMMED) if of_parent else problem)
    if problem := programmed(g, plan.gateway).problem:
        reason = reasons.PENDING if problem.reason == reasons.PENDING else reasons.PARENT_NOT_PROGRAMMED
        where = f"{plan.gateway} is not programmed"
        return failed(reasons.PROGRAMMED, problem.within(where, plan.gateway, reason=reason))
    served = [listener_programmed(g, plan.gateway, listener) for listener in plan.listeners if listener.served]
    if any(condition.status for condition in served):
        return true(reasons.PROGRAMMED)
    return served[0]


LISTENER_SET_STATUS = Output("status-listener-sets", "ListenerSet", listener_set_status)

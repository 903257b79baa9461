"""Findings on routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import STREAM_KINDS
from lasthop.base.api.routes import Route
from lasthop.engine.outputs.envoy.encoded_routes import unserved
from lasthop.engine.outputs.findings.foreign import unattached
from lasthop.engine.outputs.findings.gateways import ignored_scope
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.plan.routing import Parent
from lasthop.engine.resolve.gateways.listener_sets import route_parent
from lasthop.engine.resolve.gateways.listeners import listeners, table_listener
from lasthop.engine.resolve.routing.attachment import parents, route_hostname
from lasthop.engine.resolve.routing.budgets import verdict_at
from lasthop.engine.resolve.routing.hostnames import intersection, most_specific
from lasthop.engine.resolve.routing.routes import PROTOCOLS, read_route, unsupported_sessions
from lasthop.engine.resolve.routing.streams import owner
from lasthop.engine.store.graph import Graph, query

REPORT: Final = "Edit the route, and please report this: Lasthop should have rejected it first."


@query
def route_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    obj, attached = read_route(g, key), parents(g, key)
    if obj is None:
        return ()
    findings = list(ignored_scope(key, "useDefaultGateways", obj.spec.use_default_gateways))
    findings += unattached(g, key, served=bool(attached))
    findings += [
        replace(problem, severity=Severity.WARNING).on(key) for problem in (unsupported_sessions(g, key) if attached else ())
    ]
    for parent in attached:
        if parent.problem:
            findings.append(parent.problem.at("spec.parentRefs").on(key))
        judged = verdict_at(g, key, parent)
        findings += [problem.on(key) for problem in (*judged.left_out, *judged.refused, *judged.refs)]
        problems, _ = unserved(g, key, parent.gateway, parent.hosts) if key.kind in PROTOCOLS else ((), False)
        findings += [problem.on(key, REPORT) for problem in problems]
        findings += _shadowed(g, key, parent) if key.kind in STREAM_KINDS else ()
        findings += _taken(g, key, obj, parent)
    return tuple(dict.fromkeys(findings))


def _taken(g: Graph, key: Key, obj: Route, parent: Parent) -> Iterator[Finding]:
    """Finds hostnames of a route that a ListenerSet of another namespace serves with a more specific listener. The spec
    permits that, but the Gateway's author may not expect it."""
    plan = route_parent(g, parent.owner) if parent.problem is None else None
    for listener in plan.listeners if plan else ():
        if listener.name in parent.listeners and listener.served:
            for name in obj.spec.hostnames or ("",):
                hostname = intersection(listener.hostname, name.lower())
                if hostname is not None and (listener.table, hostname) not in parent.hosts:
                    yield from _taken_at(g, key, parent.gateway, listener, hostname)


def _taken_at(g: Graph, key: Key, gateway: Key, listener: ListenerPlan, hostname: str) -> Iterator[Finding]:
    taker = _holder_of(g, gateway, listener, hostname)
    if taker is None or taker.kind != "ListenerSet" or taker.namespace in (key.namespace, listener.owner.namespace):
        return
    requests = f"requests for {hostname or 'any hostname'} at port {listener.port} of {gateway}"
    remedy = "Add a listener for the hostname to the Gateway, or narrow allowedListeners."
    # The route's author may not be allowed to see the ListenerSet.
    for where, whose, about in (
        (key, "a ListenerSet of another namespace", (gateway,)),
        (gateway, str(taker), (gateway, taker)),
    ):
        message = f"{requests} go to {whose}, not to {key}: its listener is more specific."
        yield make_finding(where, reasons.SHADOWED, message, remedy, about=about)


def _holder_of(g: Graph, gateway: Key, listener: ListenerPlan, hostname: str) -> Key | None:
    """Returns the owner of the most specific listener for a hostname, on the port of another listener."""
    same_port = [x for x in listeners(g, gateway) if (x.port, x.transport) == (listener.port, listener.transport) and x.served]
    pattern = most_specific([candidate.hostname for candidate in same_port], hostname)
    return next((candidate.owner for candidate in same_port if candidate.hostname == pattern), None)


def _shadowed(g: Graph, key: Key, parent: Parent) -> Iterator[Finding]:
    """Finds routes without connections, because each connection has only one route. No condition reports that: the spec
    accepts all of them."""
    for table, hostname in parent.hosts:
        winner, listener = owner(g, parent.gateway, table, hostname), table_listener(g, parent.gateway, table)
        if listener and winner and winner != key:
            key_hostname, winner_hostname = route_hostname(g, key, hostname), route_hostname(g, winner, hostname)
            why = (
                "which is older, or as old and first by name"
                if key_hostname == winner_hostname
                else "which has the more specific hostname"
            )
            subject = f"everything for {hostname}" if hostname else "everything"
            named = listener.name if listener.owner == parent.gateway else f"{listener.owner.path}/{listener.name}"
            message = f"{subject} on listener {named} of {parent.gateway} goes to {winner}, {why}."
            remedy = "Use a different listener or hostname for each route."
            yield make_finding(key, reasons.SHADOWED, message, remedy, about=(parent.gateway, winner))

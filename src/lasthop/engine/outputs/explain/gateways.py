"""Explains Gateways, GatewayClasses and ListenerSets: listeners, their routes, and the hops of these routes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from lasthop.base.api import gateway as api
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.explain.fact import Fact, bad, good, plain, warning, worst
from lasthop.engine.outputs.explain.hops import hop_fact
from lasthop.engine.plan import reasons
from lasthop.engine.plan.listener import GatewayPlan, ListenerPlan
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.gateways.allowed_listeners import LISTENER_SETS
from lasthop.engine.resolve.gateways.gateways import client_certificate, gateway, gateway_class
from lasthop.engine.resolve.gateways.listener_conditions import listener_conditions
from lasthop.engine.resolve.gateways.listener_sets import listener_set
from lasthop.engine.resolve.gateways.ours import not_ours
from lasthop.engine.resolve.gateways.ports import port_problem
from lasthop.engine.resolve.routing.attachment import ATTACHED, parents
from lasthop.engine.resolve.routing.routes import targets
from lasthop.engine.resolve.trust.certificates import KeyPair, key_pair
from lasthop.engine.resolve.trust.trust import day, pair_dates
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.store import read

SHOWN = 50
"""Limit of routes and hops in an explanation. A Gateway may have thousands."""


def explain_gateway(g: Graph, key: Key) -> Fact:
    owner = gateway(g, key)
    if owner is None:
        return warning(str(key), warning("no effect: ", why=not_ours(g, key)), object=key)
    listeners = [listener for listener in owner.listeners if listener.owner == key]
    if not owner.accepted.status:
        refused = (listener_fact(g, key, listener) for listener in listeners if not listener.served)
        return bad(str(key), bad("not accepted: ", why=owner.accepted.problem), *refused, object=key)
    facts = [good(f"accepted; binds {', '.join(owner.addresses)}")]
    facts += [listener_fact(g, key, listener) for listener in listeners]
    facts += [*_sets(g, key)]
    facts += [*_client_certificate(g, key), *_hops(g, owner)]
    return Fact(str(key), worst(facts), tuple(facts), key)


def _sets(g: Graph, key: Key) -> Iterator[Fact]:
    """Yields the ListenerSets that name the Gateway, including those that it does not allow."""
    named = [set_key for _, set_key, _ in LISTENER_SETS.of(g, key)]
    yield from (explain_listener_set(g, set_key) for set_key in named[:SHOWN])
    yield from _more(len(named), "ListenerSets")


def explain_listener_set(g: Graph, key: Key) -> Fact:
    plan = listener_set(g, key)
    if plan is None:
        return warning(str(key), warning("no effect: ", why=not_ours(g, key)), object=key)
    listeners = [listener_fact(g, plan.gateway, listener) for listener in plan.listeners]
    if not plan.accepted.status:
        return bad(str(key), bad("not accepted: ", why=plan.accepted.problem), *listeners, object=key)
    facts = [good(f"accepted by {plan.gateway}", object=plan.gateway), *listeners]
    return Fact(str(key), worst(facts), tuple(facts), key)


def attached(g: Graph, listener: ListenerPlan) -> tuple[Key, ...]:
    return ATTACHED.of(g, listener.owner, listener.name)


def listener_fact(g: Graph, gateway_key: Key, listener: ListenerPlan) -> Fact:
    text = f"listener {listener.name}: {listener.protocol} port {listener.port}, {listener.hostname or 'any hostname'}"
    wrong = [bad(f"{c.reason}: ", why=c.problem) for c in listener_conditions(g, listener) if c.problem]
    facts = [*wrong, *(_certificate(g, secret) for secret in listener.certificates), *_clients(listener)]
    facts += auth_facts(g, listener)
    held = port_problem(g, gateway_key, listener.port, listener.transport)
    if held and held.reason != reasons.PENDING:
        facts.append(bad(held.text))
    facts += _routes(g, listener)
    return Fact(text if listener.served else f"{text}: not served", worst([good(""), *facts]), tuple(facts))


def _routes(g: Graph, listener: ListenerPlan) -> Iterator[Fact]:
    routes = attached(g, listener)
    if not routes:
        answer = "every request gets 404" if listener.http else "nothing is accepted"
        yield warning(f"no route is attached, so {answer}")
    yield from (_route(g, listener.owner, route) for route in routes[:SHOWN])
    yield from _more(len(routes), "routes")


def auth_facts(g: Graph, listener: ListenerPlan) -> tuple[Fact, ...]:
    """Returns the ExternalAuth servers of a listener."""
    return tuple(hop_fact(g, auth.hop, "authorizes each request, before routing, at ") for auth in listener.auth)


def _certificate(g: Graph, secret: Key) -> Fact:
    pair = key_pair(g, secret)
    shown = f": {pair.subject}, until {day(pair.not_after)}" if isinstance(pair, KeyPair) else ""
    note = pair_dates(g, secret)
    return plain(f"certificate from {secret}{shown}", *([warning(note)] if note else ()), object=secret)


def _clients(listener: ListenerPlan) -> Iterator[Fact]:
    if listener.clients:
        cas = ", ".join(str(Key(ref.kind, namespace, ref.name)) for namespace, ref in listener.clients.cas)
        if listener.clients.required:
            yield good(f"clients must present a certificate signed by a CA of {cas}")
        else:
            yield warning(f"clients without a certificate of {cas} are accepted, too (AllowInsecureFallback)")


def _route(g: Graph, key: Key, route: Key) -> Fact:
    hosts = {host or "any hostname" for parent in parents(g, route) if parent.owner == key for _, host in parent.hosts}
    return plain(f"{route} for {', '.join(sorted(hosts))}" if hosts else f"{route}, for no hostname", object=route)


def _client_certificate(g: Graph, key: Key) -> Iterator[Fact]:
    secret = client_certificate(g, key)
    if isinstance(secret, Problem):
        yield bad("its client certificate cannot be used, so every TLS hop is refused: ", why=secret)
    elif secret:
        yield plain(f"presents the certificate of {secret} to backends", object=secret)


def _hops(g: Graph, owner: GatewayPlan) -> Iterator[Fact]:
    """Yields the hops of the first routes only: counting those of thousands of routes holds the event loop."""
    routes = sorted({route for listener in owner.listeners for route in attached(g, listener)})
    hops = {(*target, protocol) for route in routes[:SHOWN] for target, protocol in _targets(g, owner.key, route)}
    for service, port, protocol in sorted(hops)[:SHOWN]:
        yield hop_fact(g, Hop(owner.key, service, port, protocol), "hop to ")
    yield from _more(len(hops), "hops of these routes")
    yield from _more(len(routes), "routes with their hops")


def _targets(g: Graph, key: Key, route: Key) -> Iterator[tuple[tuple[Key, int], Protocol]]:
    """Yields targets with their protocols. All HTTP protocols count as one hop for readers."""
    accepted = {parent.protocols for parent in parents(g, route) if parent.gateway == key and parent.problem is None}
    shown = {Protocol.AUTO if protocol.http else protocol for protocols in accepted for protocol in protocols}
    for target, fixed_protocol in targets(g, route, key).permitted if accepted else ():
        yield from product([(target.backend, target.port)], (Protocol.AUTO,) if fixed_protocol else shown)


def _more(number: int, noun: str) -> Iterator[Fact]:
    if number > SHOWN:
        yield plain(f"and {number - SHOWN} more {noun}")


def explain_class(g: Graph, key: Key) -> Fact:
    obj = read(g, key, api.GatewayClass)
    accepted = gateway_class(g, key)
    if obj is None or accepted is None:
        controller = obj.spec.controller_name if obj else "unknown"
        return warning(f"{key}: ignored, because its controller is {controller}, not {CONTROLLER_NAME}", object=key)
    if not accepted.status:
        return bad(f"{key}: not accepted, ", object=key, why=accepted.problem)
    users = sorted(node[1] for node in g.readers_at((gateway_class, key)) if node[0] is gateway)
    return good(f"{key}: accepted", *(plain(f"class of {user}", object=user) for user in users), object=key)

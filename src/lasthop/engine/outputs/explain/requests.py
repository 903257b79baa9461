"""Explains the routing of a request: its listener, route, rule and backends, or why nothing serves it.

    port ──> Gateway ──> SNI ──> listener ──> Host ──> virtual host ──> path, headers ... ──> rule ──> backends

It makes the same choices as Envoy with its configuration; `tests/proxy/test_explain_request.py` compares them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.encoded_routes import ServedLevel
from lasthop.engine.outputs.envoy.routes import MISDIRECTED_STATUS
from lasthop.engine.outputs.explain import request_routes as choice
from lasthop.engine.outputs.explain.fact import Fact, FactState, bad, corrected, good, plain, worst
from lasthop.engine.outputs.explain.gateways import auth_facts
from lasthop.engine.outputs.explain.request_answer import (
    UNAVAILABLE,
    RequestAction,
    RequestAnswer,
    RuleOutcome,
    backend_names,
    outcome,
    stream_shares,
)
from lasthop.engine.plan import reasons
from lasthop.engine.plan.listener import GatewayPlan, ListenerPlan
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.request import Rejected, Request, normalize
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.gateways.listener_conditions import unusable_servers
from lasthop.engine.resolve.gateways.ports import port_problem
from lasthop.engine.resolve.gateways.profiles import http_rules
from lasthop.engine.resolve.routing.attachment import LISTENER_STREAMS, stream_protocol
from lasthop.engine.resolve.routing.hostnames import fitting
from lasthop.engine.resolve.routing.streams import stream
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import Crash

NOT_FOUND: Final = 404
SHOWN: Final = 8


def explain_request(
    g: Graph, gateways: Iterable[Key], routes: Sequence[Key], request: Request
) -> Generator[None, None, list[RequestAnswer]]:
    """Returns an answer for each Gateway with the request's port, those that serve it first. `routes` are all HTTPRoutes and
    GRPCRoutes, to explain misses. It is a generator, so that other tasks can run in between."""
    owners = []
    for key in gateways:
        plan = gateway.attempt(g, key)
        if plan is not None and not isinstance(plan, Crash):
            owners.append(plan)
        yield
    answers = []
    for owner in owners:
        if any(_at_port(listener, request) for listener in owner.listeners):
            answers.append(_at_gateway(g, owner, routes, request))
            yield
    if not answers:
        answers = [_nowhere(owners, request)]
    return sorted(answers, key=lambda answer: (not answer.leads_somewhere, answer.gateway))


def _at_port(listener: ListenerPlan, request: Request) -> bool:
    return (listener.port, listener.transport) == (request.port, "TCP")


def _answer(
    owner: Key, request: Request, action: RequestAction, summary: str, facts: Iterable[Fact], **more: object
) -> RequestAnswer:
    facts = tuple(facts)
    fine = action in (RequestAction.FORWARD, RequestAction.CONNECT, RequestAction.REDIRECT) or more.get("status") == 200
    state = worst(facts) if fine else FactState.BAD
    root = corrected(Fact(f"{request.method} {request.url} at {owner}: {summary}", state, facts, owner))
    return msgspec.structs.replace(RequestAnswer(owner.path, action, root), **more)


def _nowhere(owners: Sequence[GatewayPlan], request: Request) -> RequestAnswer:
    """Explains that no Gateway has a listener on the port."""
    listeners = sorted(
        {(listener.port, listener.protocol, str(owner.key)) for owner in owners for listener in owner.listeners}
    )
    facts = [plain(f"port {port}: {protocol} of {owner}") for port, protocol, owner in listeners[:SHOWN]]
    expected = {"http": "HTTP", "https": "HTTPS"}[request.scheme]
    if (ports := {port for port, protocol, _ in listeners if protocol == expected}) and len(ports) == 1:
        url = f"{request.scheme}://{request.host}:{ports.pop()}{request.target}"
        facts.insert(0, plain(f"did you mean {url}?"))
    text = f"{request.method} {request.url}: no listener has port {request.port}, so nothing answers"
    if not owners:
        text = f"{request.method} {request.url}: no Gateway belongs to Lasthop, so nothing answers"
    return RequestAnswer("", RequestAction.UNREACHABLE, bad(text, *facts))


def _at_gateway(g: Graph, owner: GatewayPlan, routes: Sequence[Key], request: Request) -> RequestAnswer:
    listeners = [listener for listener in owner.listeners if _at_port(listener, request)]
    served = [listener for listener in listeners if listener.served]
    if not (owner.accepted.status and served) or _port_held(g, owner.key, request):
        facts = _not_served(g, owner, listeners, request)
        return _answer(owner.key, request, RequestAction.UNREACHABLE, f"port {request.port} is not served", facts)
    protocols = {listener.protocol for listener in served}
    if wrong := _wrong_scheme(owner.key, protocols, request):
        return wrong
    match sorted(protocols):
        case ["TCP"]:
            return _stream(g, owner, served[0], "", request)
        case ["HTTP"]:
            return _http(g, owner, served, routes, request)
        case _:
            return _tls(g, owner, listeners, routes, request)


def _port_held(g: Graph, owner: Key, request: Request) -> Problem | None:
    """Returns why the Gateway cannot use the port; None also before the first attempt."""
    problem = port_problem(g, owner, request.port, "TCP")
    return problem if problem and problem.reason != reasons.PENDING else None


def _not_served(g: Graph, owner: GatewayPlan, listeners: list[ListenerPlan], request: Request) -> Iterator[Fact]:
    if owner.accepted.problem:
        yield bad("the Gateway is not accepted: ", why=owner.accepted.problem)
    if held := _port_held(g, owner.key, request):
        yield bad(held.text)
    yield from (_unserved(listener) for listener in listeners if not listener.served)


def _wrong_scheme(owner: Key, protocols: set[str], request: Request) -> RequestAnswer | None:
    """Explains a request with TLS to a plaintext port, or the reverse; None if the schemes match."""
    if protocols & {"HTTPS", "TLS"} and request.scheme != "https":
        facts = [bad(f"port {request.port} serves TLS; use https://{request.authority}{request.target}")]
        return _answer(owner, request, RequestAction.CLOSE, "closed, because it is not TLS", facts)
    if protocols == {"HTTP"} and request.scheme == "https":
        facts = [bad(f"port {request.port} serves plain HTTP; use http://{request.authority}{request.target}")]
        return _answer(owner, request, RequestAction.CLOSE, "no TLS handshake is possible", facts)
    return None


def _unserved(listener: ListenerPlan) -> Fact:
    wrong = tuple(bad(f"{c.reason}: ", why=c.problem) for c in listener.conditions if c.problem)
    return bad(f"{_named(listener)} is not served", *wrong, object=listener.owner)


def _named(listener: ListenerPlan) -> str:
    return f"listener {listener.name} ({listener.protocol} port {listener.port}, {listener.hostname or 'any hostname'})"


def _tls(
    g: Graph, owner: GatewayPlan, listeners: list[ListenerPlan], routes: Sequence[Key], request: Request
) -> RequestAnswer:
    """Follows a TLS connection by its server name, the most specific listener first."""
    for pattern in fitting(request.sni) if request.sni else ("",):
        for listener in listeners:
            if listener.protocol == "TLS" and LISTENER_STREAMS.size(g, owner.key, listener.table, pattern):
                return _stream(g, owner, listener, pattern, request)
            if _takes_handshake(listener, pattern) and listener.served:
                return _http(g, owner, [listener], routes, request)
            if _takes_handshake(listener, pattern) and listener.closed:
                facts = [_unserved(listener)]
                return _answer(owner.key, request, RequestAction.CLOSE, "closed: its listener cannot be served", facts)
    return _no_listener(owner.key, listeners, request)


def _takes_handshake(listener: ListenerPlan, pattern: str) -> bool:
    return listener.protocol == "HTTPS" and listener.hostname == pattern and not listener.conflicted


def _no_listener(owner: Key, listeners: list[ListenerPlan], request: Request) -> RequestAnswer:
    """Explains a connection whose server name matches no listener of the port."""
    names = sorted({listener.hostname for listener in listeners})
    missed = f"no listener has the hostname {request.sni}" if request.sni else "the client sends no server name (SNI)"
    facts = [bad(f"{missed}; the listeners have {', '.join(names)}")]
    if not request.sni:
        facts.append(plain("clients never send an IP address as SNI; use a hostname, with curl --resolve NAME:PORT:ADDRESS"))
    return _answer(owner, request, RequestAction.CLOSE, "closed in the TLS handshake", facts)


def _stream(g: Graph, owner: GatewayPlan, listener: ListenerPlan, hostname: str, request: Request) -> RequestAnswer:
    plan = stream(g, owner.key, listener.table, hostname)
    where = _entered(listener, request)
    at = {"listener": listener.name, "hostname": hostname or "*"}
    if not plan.backends:
        none = f"{plan.origin}: no backend with a weight above 0" if plan.origin else "no route handles the connection"
        why = bad(none)
        return _answer(owner.key, request, RequestAction.CLOSE, "closed", (where, why), **at)
    shares, facts = stream_shares(g, plan.backends)
    how = {"passthrough": "as it is, in the client's own TLS"}.get(stream_protocol(listener), "as bytes")
    route = good(f"{plan.origin} forwards the connection {how}, without reading the request in it")
    summary = f"the connection is forwarded to {backend_names(shares)}"
    more = {**at, "route": plan.origin, "backends": shares}
    return _answer(owner.key, request, RequestAction.CONNECT, summary, (where, route, *facts), **more)


def _entered(listener: ListenerPlan, request: Request, *because: Fact) -> Fact:
    by = ""
    if listener.protocol in ("HTTPS", "TLS") and listener.hostname:
        by = f" by the server name {request.sni} of the TLS handshake"
    return good(f"enters by {_named(listener)}{by}", *because, object=listener.owner)


def _http(
    g: Graph, owner: GatewayPlan, listeners: list[ListenerPlan], routes: Sequence[Key], request: Request
) -> RequestAnswer:
    """Follows a request through listeners that share a route table; HTTP listeners of a port share one."""
    listener = _by_host(listeners, request)
    where = _entered(listener, request, *auth_facts(g, listener))
    normalized = normalize(request, http_rules(g, owner.key))
    if isinstance(normalized, Rejected):
        facts = (where, plain(f"{normalized.why}; spec.http of a GatewayProfile configures this"))
        at = {"listener": listener.name, "status": normalized.status}
        action = RequestAction.REDIRECT if normalized.location else RequestAction.RESPOND
        return _answer(owner.key, request, action, f"{normalized.status} before a route is matched", facts, **at)
    host = choice.virtual_host(g, owner.key, listener, normalized.host)
    if host.elsewhere:
        why = _misdirected(normalized, host.name)
        at = {"listener": listener.name, "status": MISDIRECTED_STATUS}
        return _answer(owner.key, request, RequestAction.RESPOND, "421, misdirected request", (where, *why), **at)
    if unusable := unusable_servers(g, listener):
        refused = [bad("an ExternalAuth server of its listener cannot be used: ", why=problem) for problem in unusable]
        at = {"listener": listener.name, "hostname": _shown(host), "status": UNAVAILABLE}
        return _answer(owner.key, request, RequestAction.RESPOND, "503 before a route is chosen", (where, *refused), **at)
    matches = choice.candidates(g, owner.key, listener.table, host.name) if host.exists else []
    winner = choice.choose(matches, normalized)
    if winner is None:
        near = _unmatched(g, owner.key, listener, listeners, routes, host, matches, normalized)
        at = {"listener": listener.name, "hostname": _shown(host), "status": NOT_FOUND}
        return _answer(owner.key, request, RequestAction.RESPOND, "404, no route matches", (where, *near), **at)
    return _routed(g, owner, listener, host, matches, winner, request, normalized, where)


def _by_host(listeners: list[ListenerPlan], request: Request) -> ListenerPlan:
    """Returns the listener to name: HTTP listeners of a port differ in their hostnames only."""
    for pattern in fitting(request.host):
        if named := next((listener for listener in listeners if listener.hostname == pattern), None):
            return named
    return listeners[0]


def _shown(host: choice.VirtualHost) -> str:
    return (host.name or "*") if host.exists else ""


def _misdirected(request: Request, name: str) -> Iterator[Fact]:
    yield bad(
        f"the connection was opened for {request.sni or 'no name'}, and Host {request.host} belongs to the listener for "
        f"{name or 'any hostname'}; the client must open another connection"
    )
    yield plain("clients share an HTTP/2 connection if one certificate is valid for both names")


def _unmatched(
    g: Graph,
    owner: Key,
    listener: ListenerPlan,
    listeners: list[ListenerPlan],
    routes: Sequence[Key],
    host: choice.VirtualHost,
    matches: list[choice.CandidateMatch],
    request: Request,
) -> Iterator[Fact]:
    if not host.exists:
        hostnames = tuple(choice.other_hostnames(g, owner, listeners, request.host))
        yield bad(f"no route has a hostname that covers {request.host}", *hostnames)
    elif not matches:
        yield bad(f"no route is served under {host.name or 'any hostname'}")
    else:
        near = tuple(choice.near_misses(g, matches, request))
        yield bad(f"no rule of the routes under {host.name or 'any hostname'} matches", *near)
    yield from choice.wider_hosts(g, owner, listener, host, request) if host.exists else ()
    yield from choice.left_out_routes(g, owner, listener.table, host.name) if host.exists else ()
    yield from choice.unattached(g, owner, routes, request.host)


def _routed(
    g: Graph,
    owner: GatewayPlan,
    listener: ListenerPlan,
    host: choice.VirtualHost,
    matches: list[choice.CandidateMatch],
    winner: choice.CandidateMatch,
    request: Request,
    normalized: Request,
    where: Fact,
) -> RequestAnswer:
    if winner.level is ServedLevel.AS_WRITTEN:
        done = outcome(g, winner.key, winner.place.rule, winner.route, owner.key, normalized)
    else:
        refused = bad(f"Envoy refused the route, so it returns 500: {winner.complaint}")
        done = RuleOutcome(RequestAction.RESPOND, "500: Envoy refused its route", (refused,), 500)
    under = f"under {host.name or 'any hostname'}"
    path = f" (path taken as {normalized.path})" if normalized.path != request.path else ""
    skipped = choice.passed_over(g, matches, winner, normalized)
    rule = good(f"{choice.described(g, winner)}, {under}{path}", *skipped, object=winner.key)
    return _answer(
        owner.key,
        request,
        done.action,
        done.summary,
        (where, rule, *done.facts),
        status=done.status,
        listener=listener.name,
        hostname=_shown(host),
        path=normalized.path,
        route=str(winner.key),
        rule=winner.place.rule,
        match=winner.place.match,
        rule_name=choice.rules_of(g, winner.key)[winner.place.rule].name,
        backends=done.backends,
    )

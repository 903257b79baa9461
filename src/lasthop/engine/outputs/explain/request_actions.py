"""What a rule does with a request, in words and as an answer: forward, redirect or refuse it, and what is edited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lasthop.base.api import routes as api
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.hops import Manner, hop_report
from lasthop.engine.outputs.envoy.route_messages import DEFAULT_PORTS, INTERNAL_ERROR, Listening
from lasthop.engine.outputs.explain.fact import Fact, bad, good, plain
from lasthop.engine.outputs.explain.hops import hop_fact
from lasthop.engine.outputs.explain.request_answer import Action, Share
from lasthop.engine.outputs.explain.routes import reference_fact
from lasthop.engine.plan.request import Request
from lasthop.engine.plan.routing import Backend, Forward, HeaderEdit, PathEdit, Redirect, Refuse, Rewrite, Route
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.resolve.backends.backends import BackendTarget, endpoints, target
from lasthop.engine.resolve.routing.http_syntax import shown
from lasthop.engine.resolve.routing.route_references import filter_references
from lasthop.engine.resolve.routing.routes import PROTOCOLS, read_route, request_rules, route_judgement
from lasthop.engine.store.graph import Graph

UNAVAILABLE: Final = 503
"""What a request gets that has no endpoint to go to."""
PREFLIGHT: Final = 200


class Result(NamedTuple):
    action: Action
    said: str
    """Ends the sentence about the request."""
    facts: tuple[Fact, ...]
    status: int = 0
    location: str = ""
    path: str = ""
    host: str = ""
    backends: tuple[Share, ...] = ()


def result(g: Graph, key: Key, rule: int, route: Route, gateway: Key, request: Request, listening: Listening) -> Result:
    """Returns what the rule does with a request that it takes."""
    filters = (*_gateway_edits(route), *_referred(g, key, rule, gateway))
    if route.cors and _preflight(request):
        said = "answered by the gateway, as a CORS preflight"
        return Result(Action.RESPOND, said, (good("the CORS filter answers preflights by itself"),), PREFLIGHT)
    match route.action:
        case Refuse():
            problems = route_judgement(g, key, gateway).rules[rule].problems
            why = tuple(bad(str(problem)) for problem in problems) or tuple(_referred(g, key, rule, gateway))
            return Result(Action.RESPOND, f"{_refusal(request)}: the rule asks for what cannot be done", why, _status(request))
        case Redirect() as redirect:
            to = location(redirect, request, listening)
            facts = (*filters, good(f"answers {redirect.status}, location {to}"))
            return Result(Action.REDIRECT, f"redirected ({redirect.status}) to {to}", facts, redirect.status, to)
        case Forward(backends=()):
            why = (bad("the rule has no backend with a weight above 0"),)
            return Result(Action.RESPOND, f"{_refusal(request)}: no backend", (*filters, *why), _status(request))
        case Forward() as forward:
            return _forwarded(g, key, rule, gateway, forward, request, filters)


def _forwarded(
    g: Graph, key: Key, rule: int, gateway: Key, forward: Forward, request: Request, filters: tuple[Fact, ...]
) -> Result:
    rewritten = _rewritten(request, forward.rewrite, forward.backends[0].rewrite)
    facts = [*filters, *_sent(request, rewritten), *_limits(forward)]
    total = sum(backend.weight for backend in forward.backends)
    shares, hops = [], []
    for number, backend in enumerate(forward.backends):
        share, fact = _share(g, key, rule, backend, number, total, request)
        shares.append(share)
        hops.append(fact)
    names = ", ".join(f"{s.backend}:{s.port}" if s.backend else "nowhere" for s in shares)
    alone = shares[0] if len(shares) == 1 else None
    if alone and alone.status:
        said = f"{alone.status}: {names} cannot be used" if alone.backend else f"{alone.status}: its backend must not be used"
        return Result(Action.RESPOND, said, (*facts, *hops), alone.status, "", *rewritten, tuple(shares))
    how = f" ({Manner(alone.manner).asked})" if alone else " by weight"
    return Result(Action.FORWARD, f"forwarded to {names}{how}", (*facts, *hops), 0, "", *rewritten, tuple(shares))


def _share(g: Graph, key: Key, rule: int, backend: Backend, number: int, total: int, request: Request) -> tuple[Share, Fact]:
    part = backend.weight / total
    words = f"{backend.weight} of {total} ({part:.1%}) to " if part < 1 else "to "
    if backend.hop is None:
        return Share("", share=part, status=_status(request)), _unfollowed(g, key, rule, number, words, request)
    hop = backend.hop
    if backend.upgrades_apart and request.upgrade:
        hop = hop._replace(protocol=Protocol.H1_UPGRADE)
    report, _ = hop_report(g, hop)
    status = _status(request) if report.manner is Manner.FAILING else 0
    if not status and not endpoints(g, hop.backend, hop.port, hop.protocol.transport).endpoints:
        status = UNAVAILABLE
    share = Share(
        str(hop.backend), hop.port, part, hop.protocol, str(report.manner), report.policy_path, report.detail, status
    )
    return share, hop_fact(g, hop, words)


def _unfollowed(g: Graph, key: Key, rule: int, number: int, words: str, request: Request) -> Fact:
    """Says why a reference is not followed: the refs with a weight are the plan's backends, in that order."""
    obj = read_route(g, key)
    rules = request_rules(obj) if obj and not isinstance(obj, api.StreamRoute) else ()
    refs = [ref for ref in rules[rule].backend_refs if ref.weight] if rules else []
    why = target(g, key, refs[number]) if number < len(refs) else None
    said = f"{words}{refs[number].kind} {refs[number].name}: {_refusal(request)}, " if number < len(refs) else words
    return bad(said, why=None if why is None or isinstance(why, BackendTarget) else why)


def _status(request: Request) -> int:
    """Returns the status; a gRPC client gets UNAVAILABLE wherever others get 500 (see the listener's local replies)."""
    return UNAVAILABLE if request.grpc else INTERNAL_ERROR


def _refusal(request: Request) -> str:
    return "UNAVAILABLE" if request.grpc else str(INTERNAL_ERROR)


def _preflight(request: Request) -> bool:
    asked = request.header("origin"), request.header("access-control-request-method")
    return request.method == "OPTIONS" and all(asked)


# --- edits -----------------------------------------------------------------------------------------------------------


def _referred(g: Graph, key: Key, rule: int, gateway: Key) -> Iterator[Fact]:
    """Yields what the filters of a rule refer to."""
    obj = read_route(g, key)
    rules = request_rules(obj) if obj and not isinstance(obj, api.StreamRoute) else ()
    for filter in rules[rule].filters if rules else ():
        for lead in filter_references(filter):
            protocol = lead.protocol or PROTOCOLS[key.kind]
            yield reference_fact(g, key, gateway, lead.ref, lead.role, protocol)


def _gateway_edits(route: Route) -> Iterator[Fact]:
    if route.cors:
        origins = ", ".join(route.cors.origins[:5])
        yield plain(f"CORS for {shown(origins, 200)}")
    yield from _edits("request", route.headers.request)
    yield from _edits("response", route.headers.response)


def _edits(what: str, edit: HeaderEdit) -> Iterator[Fact]:
    for words, pairs in (("sets", edit.set), ("adds", edit.add)):
        for name, value in pairs:
            yield plain(f"{words} {what} header {name}: {shown(value)}")
    if edit.remove:
        yield plain(f"removes {what} header {', '.join(edit.remove)}")


def _limits(forward: Forward) -> Iterator[Fact]:
    if forward.timeout:
        yield plain(f"the request may take {forward.timeout:g} s")
    if forward.try_timeout:
        yield plain(f"one attempt may take {forward.try_timeout:g} s")
    if forward.retry and forward.retry.attempts:
        codes = f", also after {', '.join(map(str, forward.retry.codes))}" if forward.retry.codes else ""
        yield plain(f"retried up to {forward.retry.attempts} times{codes}")
    if forward.session:
        where = "header" if forward.session.header else "cookie"
        yield plain(f"a client stays with its backend by the {where} {forward.session.name}")


def _sent(request: Request, rewritten: tuple[str, str]) -> Iterator[Fact]:
    path, host = rewritten
    if path != request.target:
        yield plain(f"the path becomes {path}")
    if host != request.authority:
        yield plain(f"the Host header becomes {host}")


def _rewritten(request: Request, of_rule: Rewrite | None, of_backend: Rewrite | None) -> tuple[str, str]:
    """Returns path with query, and Host, as the first backend gets them: a backend's own rewrite counts before the rule's."""
    both = [each for each in (of_backend, of_rule) if each]
    edit = next((each.path for each in both if each.path), None)
    host = next((each.hostname for each in both if each.hostname), request.authority)
    return _edited(request, edit), host


def _edited(request: Request, edit: PathEdit | None) -> str:
    path, mark, query = request.target.partition("?")
    if edit is None:
        return request.target
    return f"{edited_path(path, edit)}{mark}{query}"


def edited_path(path: str, edit: PathEdit) -> str:
    """Rewrites a path by the spec's table: exactly one slash is between the new prefix and the rest."""
    if edit.prefix is None:
        return edit.value
    prefix, value = edit.prefix.rstrip("/"), edit.value.rstrip("/")
    rest = path[len(prefix) :]
    if not value:
        return f"/{rest.lstrip('/')}"
    return f"{value}/{rest.removeprefix('/')}" if not prefix else f"{value}{rest}"


def location(redirect: Redirect, request: Request, listening: Listening) -> str:
    """Returns the Location header: without a port of its own that of the scheme if one is given, otherwise the listener's; and
    a scheme's usual port is written only for a client that has written one."""
    scheme = redirect.scheme or listening.scheme
    port = redirect.port or (DEFAULT_PORTS[scheme] if redirect.scheme else listening.port)
    host = redirect.hostname or _without_port(request.authority)
    wrote_port = not redirect.hostname and host != request.authority
    written = f":{port}" if port != DEFAULT_PORTS[scheme] or wrote_port else ""
    return f"{scheme}://{host}{written}{_edited(request, redirect.path)}"


def _without_port(authority: str) -> str:
    before, colon, port = authority.rpartition(":")
    return before if colon and port.isdigit() and not authority.endswith("]") else authority


def stream_shares(g: Graph, backends: tuple[Backend, ...]) -> tuple[tuple[Share, ...], tuple[Fact, ...]]:
    """Returns the same for a connection that is forwarded."""
    total = sum(backend.weight for backend in backends)
    shares, facts = [], []
    for backend in backends:
        part = backend.weight / total
        words = f"{backend.weight} of {total} ({part:.1%}) to " if part < 1 else "to "
        if backend.hop is None:
            shares.append(Share("", share=part))
            facts.append(bad(f"{words}a backend that must not be used: closed"))
            continue
        report, _ = hop_report(g, backend.hop)
        where = (str(backend.hop.backend), backend.hop.port, part, backend.hop.protocol)
        shares.append(Share(*where, str(report.manner), report.policy_path, report.detail))
        facts.append(hop_fact(g, backend.hop, words))
    return tuple(shares), tuple(facts)

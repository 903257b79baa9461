"""The routing of a request at a Gateway: a value for scripts, with the explanation as a tree.

A rule forwards, redirects or refuses a request. Edits by filters are not computed here; Envoy's configuration contains them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.hops import HopReport, hop_report
from lasthop.engine.outputs.envoy.route_messages import INTERNAL_ERROR
from lasthop.engine.outputs.explain.fact import Fact, bad, good
from lasthop.engine.outputs.explain.hops import hop_fact
from lasthop.engine.outputs.explain.request_routes import rules_of
from lasthop.engine.outputs.explain.routes import reference_fact
from lasthop.engine.plan.request import Request
from lasthop.engine.plan.routing import Forward, Redirect, Refuse, Route, WeightedBackend
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.backends import BackendTarget, endpoints, target
from lasthop.engine.resolve.routing.route_references import filter_references
from lasthop.engine.resolve.routing.routes import PROTOCOLS, route_judgement
from lasthop.engine.store.graph import Graph

UNAVAILABLE: Final = 503
"""The status of a request without an endpoint."""
PREFLIGHT: Final = 200


class RequestAction(StrEnum):
    FORWARD = "forward"
    """A backend responds."""
    REDIRECT = "redirect"
    RESPOND = "respond"
    """The gateway responds itself."""
    CONNECT = "connect"
    """The connection is forwarded without reading its bytes."""
    CLOSE = "close"
    """The connection is closed."""
    UNREACHABLE = "unreachable"
    """No listener has the port."""


class BackendShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backend of the rule, with its share of the traffic."""

    backend: str
    """`Service shop/api`; empty if the reference is not permitted."""
    port: int = 0
    share: float = 1.0
    protocol: str = ""
    manner: str = ""
    """The connection mode, in the words of `lasthop audit`."""
    policy: str = ""
    detail: str = ""
    status: int = 0
    """The status that the gateway returns for this share; 0 if the backend responds."""


class RequestAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    gateway: str
    action: RequestAction
    explanation: Fact
    status: int = 0
    """The status, if the gateway responds itself."""
    listener: str = ""
    hostname: str = ""
    """The virtual host; `*` matches any host."""
    path: str = ""
    """The path as it is matched."""
    route: str = ""
    """`HTTPRoute shop/web`."""
    rule: int | None = None
    match: int | None = None
    rule_name: str = ""
    backends: tuple[BackendShare, ...] = ()

    @property
    def leads_somewhere(self) -> bool:
        return self.action in (RequestAction.FORWARD, RequestAction.CONNECT, RequestAction.REDIRECT) or bool(self.route)


class RuleOutcome(NamedTuple):
    action: RequestAction
    summary: str
    """Ends the sentence about the request."""
    facts: tuple[Fact, ...]
    status: int = 0
    backends: tuple[BackendShare, ...] = ()


def outcome(g: Graph, key: Key, rule: int, route: Route, gateway: Key, request: Request) -> RuleOutcome:
    if route.cors and _is_preflight(request):
        summary = "answered by the gateway, as a CORS preflight"
        return RuleOutcome(RequestAction.RESPOND, summary, (good("the CORS filter answers preflight requests"),), PREFLIGHT)
    references = tuple(_filter_references(g, key, rule, gateway))
    match route.action:
        case Refuse():
            problems = route_judgement(g, key, gateway).rules[rule].problems
            why = tuple(bad(str(problem)) for problem in problems) or references
            summary = f"{_refusal(request)}: the rule has unsupported settings"
            return RuleOutcome(RequestAction.RESPOND, summary, why, _refusal_status(request))
        case Redirect(status=status):
            return RuleOutcome(
                RequestAction.REDIRECT, f"redirected ({status})", (*references, good(f"answers {status}")), status
            )
        case Forward(backends=()):
            none = bad("the rule has no backend with a weight above 0")
            return RuleOutcome(
                RequestAction.RESPOND, f"{_refusal(request)}: no backend", (*references, none), _refusal_status(request)
            )
        case Forward(backends=backends):
            return _forwarded(g, key, rule, backends, request, references)


def _forwarded(
    g: Graph, key: Key, rule: int, backends: Sequence[WeightedBackend], request: Request, references: tuple[Fact, ...]
) -> RuleOutcome:
    total = sum(backend.weight for backend in backends)
    shares, hops, required = [], [], ""
    for number, backend in enumerate(backends):
        share, fact, required = _share(g, key, rule, backend, number, total, request)
        shares.append(share)
        hops.append(fact)
    names, facts = backend_names(shares), (*references, *hops)
    alone = shares[0] if len(shares) == 1 else None
    if alone and alone.status:
        unusable = f"{names} cannot be used" if alone.backend else "the reference to its backend is not permitted"
        return RuleOutcome(RequestAction.RESPOND, f"{alone.status}: {unusable}", facts, alone.status, tuple(shares))
    summary = f"forwarded to {names} ({required})" if alone else f"forwarded by weight to {names}"
    return RuleOutcome(RequestAction.FORWARD, summary, facts, 0, tuple(shares))


def backend_names(shares: Sequence[BackendShare]) -> str:
    unusable = "a reference that cannot be used"
    return ", ".join(f"{share.backend}:{share.port}" if share.backend else unusable for share in shares)


def _portion(backend: WeightedBackend, total: int) -> tuple[float, str]:
    """Returns a backend's share of the traffic, and the prefix of its text."""
    part = backend.weight / total
    return part, f"{backend.weight} of {total} ({part:.1%}) to " if part < 1 else "to "


def _share(
    g: Graph, key: Key, rule: int, backend: WeightedBackend, number: int, total: int, request: Request
) -> tuple[BackendShare, Fact, str]:
    """Returns a backend's share, the explanation of its hop, and the required verification."""
    part, words = _portion(backend, total)
    if backend.hop is None:
        fact = _unfollowed(g, key, rule, number, words, request)
        return BackendShare("", share=part, status=_refusal_status(request)), fact, ""
    hop = backend.hop
    if backend.separate_upgrades and request.upgrade:
        hop = hop._replace(protocol=Protocol.H1_UPGRADE)
    report, _ = hop_report(g, hop)
    share = _share_of_hop(hop, report, part)
    if report.refused:
        share = msgspec.structs.replace(share, status=_refusal_status(request))
    elif not endpoints(g, hop.backend, hop.port, hop.protocol.transport).endpoints:
        share = msgspec.structs.replace(share, status=UNAVAILABLE)
    return share, hop_fact(g, hop, words), report.required


def _share_of_hop(hop: Hop, report: HopReport, part: float) -> BackendShare:
    connection = report.manner, report.policy_path, report.detail
    return BackendShare(str(hop.backend), hop.port, part, hop.protocol, *connection)


def _unfollowed(g: Graph, key: Key, rule: int, number: int, words: str, request: Request) -> Fact:
    """Explains why a reference is not followed. The references with a weight are the plan's backends, in the same order."""
    rules = rules_of(g, key)
    refs = [ref for ref in rules[rule].backend_refs if ref.weight] if rules else []
    why = target(g, key, refs[number]) if number < len(refs) else None
    text = f"{words}{refs[number].kind} {refs[number].name}: {_refusal(request)}, " if number < len(refs) else words
    return bad(text, why=None if why is None or isinstance(why, BackendTarget) else why)


def _refusal_status(request: Request) -> int:
    """Returns the status: UNAVAILABLE for gRPC, 500 for others (see the listener's local replies)."""
    return UNAVAILABLE if request.grpc else INTERNAL_ERROR


def _refusal(request: Request) -> str:
    return "UNAVAILABLE" if request.grpc else str(INTERNAL_ERROR)


def _is_preflight(request: Request) -> bool:
    headers = request.header("origin"), request.header("access-control-request-method")
    return request.method == "OPTIONS" and all(headers)


def _filter_references(g: Graph, key: Key, rule: int, gateway: Key) -> Iterator[Fact]:
    rules = rules_of(g, key)
    for filter in rules[rule].filters if rules else ():
        for lead in filter_references(filter):
            protocol = lead.protocol or PROTOCOLS[key.kind]
            yield reference_fact(g, key, gateway, lead.ref, lead.role, protocol)


def stream_shares(g: Graph, backends: tuple[WeightedBackend, ...]) -> tuple[tuple[BackendShare, ...], tuple[Fact, ...]]:
    total = sum(backend.weight for backend in backends)
    shares, facts = [], []
    for backend in backends:
        part, words = _portion(backend, total)
        if backend.hop is None:
            shares.append(BackendShare("", share=part))
            facts.append(bad(f"{words}a backend whose reference is not permitted: closed"))
        else:
            shares.append(_share_of_hop(backend.hop, hop_report(g, backend.hop)[0], part))
            facts.append(hop_fact(g, backend.hop, words))
    return tuple(shares), tuple(facts)

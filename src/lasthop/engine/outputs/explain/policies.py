"""Explains a BackendTLSPolicy: its checks, its validity, its targets, and the routes that use it."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.core import AnyService
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import PolicyTargetReference
from lasthop.engine.outputs.explain.fact import Fact, FactState, bad, good, plain, warning, worst
from lasthop.engine.outputs.explain.hops import REFERS, checks, observed_fact, trust
from lasthop.engine.plan.problem import invalid
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import BackendTLS, Plaintext, Refused
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.reach import HOPS, REACH
from lasthop.engine.resolve.gateways.ports import serves_nothing
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.policies.ancestors import ancestors, reached_by
from lasthop.engine.resolve.policies.conditions import exceptions, target_problem
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.policies.targets import WHOLE, port_winner, service_of
from lasthop.engine.resolve.policies.texts import read_texts
from lasthop.engine.resolve.trust.waivers import UNCHECKED, describe
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.store import read

CHECKED = {
    Strength.VERIFIED: "chain, dates and names of the backend's certificate are checked",
    Strength.PINNED_ONLY: "the backend's certificate or its key is pinned; its names and dates are not checked",
}


def explain_policy(g: Graph, key: Key) -> Fact:
    policy, rejected = read_texts(g, key)
    if rejected and policy is None:
        refused = (plain(f"target {t.kind} {key.namespace}/{t.name}: refused, never plaintext") for t in rejected.targets)
        return bad(str(key), bad(f"could not be read completely: {rejected.message}"), *refused, object=key)
    targets = policy.spec.target_refs if policy else ()
    facts = [_validity(g, key), *(_target(g, key, target) for target in targets)]
    reached = ancestors(g, key)
    facts += [
        bad(f"its status has no free entry for {gateway}, so connections from there fail", object=gateway)
        for gateway in reached.without_room
    ]
    return Fact(str(key), worst([good(""), *facts]), tuple(facts), key)


def _validity(g: Graph, key: Key) -> Fact:
    judged = judgement(g, key)
    tls = judged.tls if judged else None
    bundles = tuple(trust(g, (judgement, key), "verified against {}" if tls else REFERS))
    if judged is None or tls is None:
        why = (judged.problem if judged else None) or invalid("it could not be read")
        return bad("invalid, so its targets are refused: ", *bundles, why=why)
    warnings = tuple(warning(text) for text in judged.warnings)
    facts = (*checks(tls), *bundles, *warnings)
    if judged.unresolved:
        return warning("valid, but a CA reference is left out", *facts)
    if tls.waiver:
        return warning(f"valid, but weakened at Gateways that allow waivers: {describe(tls.waiver)}", *facts)
    return good(f"valid: {CHECKED[tls.strength]}", *facts)


def _target(g: Graph, key: Key, target: PolicyTargetReference) -> Fact:
    named = f"target {target.kind} {key.namespace}/{target.name}"
    named += f" port {target.section_name}" if target.section_name else ""
    service = service_of(key, target)
    problem = target_problem(g, key, target)
    if problem:
        return bad(f"{named}: no effect, ", object=service, why=problem)
    assert service is not None
    udp, never = exceptions(g, key, target)
    notes = (*_ruled_by_others(g, key, service, target), *map(warning, filter(None, [udp])))
    uses = tuple(_uses(g, key, service, target))
    if never:
        return warning(f"{named}: never used", plain(never), *notes, object=service)
    if not uses:
        why = "no accepted route of a Gateway uses it"
        if any(hop.protocol is Protocol.PASSTHROUGH for hop in REACH.of(g, service)):
            why = "only TLS Passthrough uses it, with the client's own TLS"
        return warning(f"{named}: not used", plain(why), *notes, object=service)
    state = FactState.BAD if any(use.state is FactState.BAD for use in uses) else FactState.GOOD
    return Fact(f"{named}: under this policy", state, (*uses, *notes), service)


def _uses(g: Graph, key: Key, service: Key, target: PolicyTargetReference) -> Iterator[Fact]:
    """Yields the Gateways and routes that reach the backend under this policy."""
    obj = read(g, service, AnyService)
    for gateway, port in reached_by(g, service, target.section_name):
        name = next((p.name for p in obj.spec.ports if p.port == port and p.protocol == "TCP"), None) if obj else None
        claim = port_winner(g, service, name) if name is not None else None
        if claim is None or claim.policy != key:
            continue
        by = plain(f"by {', '.join(str(route) for route in routes_to(g, gateway, service, port))}")
        tls = hop_tls(g, gateway, service, port, Protocol.TCP)
        if isinstance(tls, Refused):
            yield bad(f"{gateway}, port {port}: refused, ", by, object=gateway, why=tls.why)
        elif unserved := serves_nothing(g, gateway):
            yield bad(f"{gateway}, port {port}: not served, ", by, object=gateway, why=unserved)
        else:
            yield _connected(g, Hop(gateway, service, port, Protocol.TCP), tls, by)


def _connected(g: Graph, hop: Hop, tls: BackendTLS | Plaintext, by: Fact) -> Fact:
    """Describes a hop under the policy, with its observed state."""
    seen = observed_fact(g, hop)
    facts, text = (by, *seen), f"{hop.gateway}, port {hop.port}: TLS"
    if tls.strength in UNCHECKED:
        return Fact(f"{text}, {UNCHECKED[tls.strength]}", worst((warning(""), *seen)), facts, hop.gateway)
    verified = any(fact.state is FactState.GOOD for fact in seen)
    return Fact(f"{text}, {'verified' if verified else 'must be verified'}", worst((good(""), *seen)), facts, hop.gateway)


def routes_to(g: Graph, gateway: Key, service: Key, port: int, *, policed: bool = True) -> list[Key]:
    """Returns the routes that use a backend's port, over policed or other protocols."""
    hops = REACH.of(g, service)
    matches = [hop for hop in hops if (hop.gateway, hop.port, hop.protocol.policed) == (gateway, port, policed)]
    return sorted({route for hop in matches for route in HOPS.of(g, *hop)})


def _ruled_by_others(g: Graph, key: Key, service: Key, target: PolicyTargetReference) -> Iterator[Fact]:
    """Yields the ports of a whole-Service target that another policy names."""
    obj = read(g, service, AnyService)
    for port in obj.spec.ports if obj and target.section_name == WHOLE else ():
        claim = port_winner(g, service, port.name) if port.protocol == "TCP" else None
        if claim and claim.policy != key:
            yield plain(f"not port {port.name}: {claim.policy} names it", object=claim.policy)

"""Explains one hop: plaintext, TLS with its policy and trust anchors, or refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.core import AnyService
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import LocalObjectReference
from lasthop.base.text.printable import some
from lasthop.engine.outputs.explain.fact import Fact, bad, good, plain, warning, worst
from lasthop.engine.outputs.explain.reads import below
from lasthop.engine.outputs.findings.endpoints import fate
from lasthop.engine.plan.observation import Health
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.reasons import BACKEND_NOT_FOUND
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import BackendTLS, HopTLS, Plaintext, Refused
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.app_protocols import annotation_for_tls
from lasthop.engine.resolve.hops.context import HopContext, LostBy, hop_context, losers
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.hops.observed import NOT_TRIED
from lasthop.engine.resolve.hops.verdict import verdict
from lasthop.engine.resolve.hops.weakening import weakening
from lasthop.engine.resolve.policies.targets import misaimed
from lasthop.engine.resolve.settings import SYSTEM_STORE
from lasthop.engine.resolve.trust.certificates import KeyPair, key_pair
from lasthop.engine.resolve.trust.client_certificates import policy_certificate
from lasthop.engine.resolve.trust.trust import bundle, day, pair_dates, ref_state
from lasthop.engine.resolve.trust.waivers import describe
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.node import NodeId
from lasthop.engine.store.store import read

SHOWN_ENDPOINTS = 5
SHOWN_ANCHORS = 5
REFERS = "refers to {}"
"""The text for a bundle that verifies nothing yet."""


def hop_fact(g: Graph, hop: Hop, prefix: str) -> Fact:
    text, tls = f"{prefix}{hop.backend} port {hop.port}", verdict(g, *hop).connection
    if isinstance(tls, Refused) and tls.problem.reason == BACKEND_NOT_FOUND:
        return bad(f"{text}: refused, ", object=hop.backend, why=tls.problem)
    less = weakening(g, hop)
    lost = (bad(f"verification is weaker than before, because {less.because}", object=less.policy),) if less else ()
    facts = (tls_fact(g, hop), *lost, *context_facts(g, hop))
    return Fact(text, worst(facts), facts, hop.backend)


def tls_fact(g: Graph, hop: Hop) -> Fact:
    decision = verdict(g, *hop)
    tls, unread = decision.connection, decision.unknown.file if decision.unknown else ""
    rival_facts = tuple(rivals(g, hop.backend, hop.port)) if hop.protocol.policed else ()
    match tls:
        case BackendTLS():
            # The recorded reads contain the bundle and the certificate.
            reads = (*trust(g, (hop_tls, *hop)),)
            state = warning if tls.strength.waived else good
            return state(f"TLS because of {tls.source}", *checks(tls), *reads, *_own(g, tls), *rival_facts, object=tls.source)
        case Refused():
            reads = (*trust(g, (hop_tls, *hop), REFERS), *([plain(f"not read: {unread}")] if unread else ()))
            return bad("refused: ", *reads, *rival_facts, object=tls.source, why=tls.why)
        case Plaintext():
            return _plaintext(g, hop, rival_facts)


def _plaintext(g: Graph, hop: Hop, rival_facts: tuple[Fact, ...]) -> Fact:
    if hop.protocol is Protocol.PASSTHROUGH:
        return plain("passthrough of the client's own TLS; BackendTLSPolicy does not apply")
    if hop.protocol is Protocol.UDP:
        return plain("UDP, which cannot carry TLS; BackendTLSPolicy does not apply")
    if hop.backend.kind == XBACKEND:
        return plain("plaintext: its tls.mode is None")
    service = read(g, hop.backend, AnyService)
    port = service.port(hop.port) if service else None
    text = "plaintext: no BackendTLSPolicy targets this port"
    aims = tuple(
        bad(f"{policy} names {hop.backend.kind} {name}, which does not exist; it probably means this one", object=policy)
        for policy, name in misaimed(g, hop.backend)
    )
    if aims:
        return warning(text, *aims, *rival_facts)
    if service and port and (annotation := annotation_for_tls(service, port)):
        return warning(f"{text}, and annotation {annotation} has no effect here", *rival_facts)
    return plain(text, *rival_facts)


def checks(tls: BackendTLS) -> Iterator[Fact]:
    yield plain(f"sends SNI {tls.sni}")
    if tls.waiver:
        yield warning(describe(tls.waiver), object=tls.waiver.key)
    if tls.names:
        yield plain(f"the certificate must be for {' or '.join(str(name) for name in tls.names)}")
    if tls.pins:
        count = len(tls.pins.keys) + len(tls.pins.certificates)
        requirement = "the pinned one" if count == 1 else f"one of {count} pinned ones"
        alone = "; names and dates are not checked" if tls.strength is Strength.PINNED_ONLY else ""
        yield plain(f"the certificate or its key must be {requirement}{alone}")
    if limits := str(tls.options):
        yield plain(limits)


def trust(g: Graph, root: NodeId, template: str = "verified against {}") -> Iterator[Fact]:
    """Yields the CA bundles that a query read, with their content. `template` describes their use."""
    for node in below(g, root):
        if node[0] is bundle:
            yield ca_bundle(g, node[1], node[2], template.format("the bundle of {}"))
        elif node == (SYSTEM_STORE,):
            store = SYSTEM_STORE.of(g)
            yield (
                plain(template.format(f"the system store ({store.path})"))
                if store
                else bad("this host has no system store of CAs")
            )


def ca_bundle(
    g: Graph, namespace: str, ref: LocalObjectReference, template: str = "verified against the bundle of {}"
) -> Fact:
    key = Key(ref.kind, "" if ref.kind == "ClusterTrustBundle" else namespace, ref.name)
    contents, state = bundle(g, namespace, ref), ref_state(g, namespace, ref)
    if state.problem:
        return bad("", object=key, why=state.problem)
    if isinstance(contents, Problem):
        return bad("", object=key, why=contents)
    anchors = [f"{anchor.subject}, until {day(anchor.not_after)}" for anchor in contents.anchors]
    shown = [plain(f"CA {text}") for text in anchors[:SHOWN_ANCHORS]]
    if len(anchors) > SHOWN_ANCHORS:
        shown.append(plain(f"and {len(anchors) - SHOWN_ANCHORS} more CAs"))
    for crl in contents.crls[:SHOWN_ANCHORS]:
        due = f", next update on {day(crl.next_update)}" if crl.next_update is not None else ""
        shown.append(plain(f"revocation list of {crl.issuer} ({crl.revoked} revoked){due}"))
    shown += [warning(text) for text in state.warnings]
    return plain(template.format(key), *shown, object=key)


def _own(g: Graph, tls: BackendTLS) -> Iterator[Fact]:
    secret = tls.client_certificate
    if secret is None:
        return
    pair = key_pair(g, secret)
    until = f" ({pair.subject}, until {day(pair.not_after)})" if isinstance(pair, KeyPair) else ""
    policys = tls.source.kind == XBACKEND or secret == policy_certificate(g, tls.source)
    whose = "the certificate" if policys else "the Gateway's own certificate"
    note = pair_dates(g, secret)
    yield plain(f"presents {whose} from {secret}{until}", *([warning(note)] if note else ()), object=secret)


def rivals(g: Graph, backend: Key, port: int) -> Iterator[Fact]:
    """Yields the policies that name the Service but do not apply to this port, and the reason."""
    for loser in losers(g, backend, port):
        text, winner = f"not {loser.policy}: ", loser.winner
        if winner is None:
            yield bad(f"{text}it names port {loser.section}, which the Service does not have", object=loser.policy)
        elif loser.rule is LostBy.SECTION:
            why = f"it names the whole Service, and {winner.policy.path} names this port"
            yield plain(f"{text}{why}", object=loser.policy)
        else:
            unread = " and cannot be read, so connections fail" if winner.rejected else ""
            why = f"{winner.policy.path} has the same target and {loser.precedence}{unread}"
            yield warning(f"{text}{why}", object=loser.policy)


def context_facts(g: Graph, hop: Hop) -> tuple[Fact, ...]:
    tls, context = verdict(g, *hop).connection, hop_context(g, hop)
    if context.no_endpoints:
        sent = bad(f"no endpoints, so {fate(hop.protocol)}: {context.no_endpoints}")
    else:
        to = some(context.endpoints, SHOWN_ENDPOINTS)
        sent = plain(f"{'would be sent' if isinstance(tls, Refused) else 'sent'} to {to}")
    return sent, *_observed(context, tls)


def observed_fact(g: Graph, hop: Hop) -> tuple[Fact, ...]:
    """Explains the observed state of the hop, over all protocols of its port; empty if nothing observes it."""
    return tuple(_observed(hop_context(g, hop), verdict(g, *hop).connection))


def _observed(context: HopContext, tls: HopTLS) -> Iterator[Fact]:
    state = context.observed
    if state is None:
        return
    if state.health is Health.UNTRIED:
        yield plain(f"observed: {NOT_TRIED}")
        return
    shown = [
        plain(
            f"presents {leaf.subject or 'a certificate'} for {', '.join(leaf.names) or 'no name'}, until {day(leaf.not_after)}"
        )
        for leaf in context.certificates[:SHOWN_ANCHORS]
    ]
    if state.health.bad:
        yield bad(f"observed: connections fail: {state.problem.message}", *shown)
        return
    succeed = "handshakes" if isinstance(tls, BackendTLS) else "connections"
    yield good(f"observed: {succeed} succeed", *shown)

"""Detects hops whose verification is weaker than their best, and the edit that weakened it.

verdict ──(engine: VerificationMemory)──> HELD, an input ──> weakening ──> findings, statuses, metrics
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.core import AnyService
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import LocalObjectReference
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition
from lasthop.engine.plan.finding import with_remedy
from lasthop.engine.plan.messages import limited
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.plan.verdict import LENGTH, Basis, HopVerification, Weakening
from lasthop.engine.plan.verification_change import SYSTEM_CAS, Subject, compare
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.hops.verdict import ACKNOWLEDGED, verdict
from lasthop.engine.resolve.policies.references import WAIVER
from lasthop.engine.resolve.policies.targets import WHOLE, service_of
from lasthop.engine.resolve.policies.texts import read_policy
from lasthop.engine.resolve.settings import HELD
from lasthop.engine.resolve.trust.certificates import trusted
from lasthop.engine.resolve.trust.trust import CA_KINDS, bundle
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import read

RESOLVED: Final = "the cause of its failure is resolved"


# --- weakening and its cause ------------------------------------------------------------------


def weakening(g: Graph, hop: Hop) -> Weakening | None:
    """Returns the weakening of a hop against its best verification, unless it is acknowledged."""
    if not hop.protocol.policed:
        return None
    now, backend, port = verdict(g, *hop).verification, hop.backend, hop.port
    if now.refused or now.acknowledged:
        return None
    best = next((held for strength in now.strength.stronger if (held := HELD.of(g, backend, port, strength))), None)
    if best is None:
        return None
    because = reason(g, backend, best, now)
    return Weakening(backend, port, now.strength.words, because, _remedy(backend, now), best.source)


def _remedy(backend: Key, now: HopVerification) -> str:
    annotation = f"acknowledge it with annotation {ACKNOWLEDGED}: {now.strength.label} of {now.source or backend}"
    if backend.kind == XBACKEND:
        return f"Restore its tls; or if {now.strength.words} is intended, {annotation}."
    if now.strength is Strength.PLAINTEXT:
        return "Restore the policy; or if plaintext is intended, acknowledge it with appProtocol: http at the Service's port."
    return f"Restore its earlier validation; or if {now.strength.words} is intended, {annotation}."


def reason(g: Graph, backend: Key, before: HopVerification, now: HopVerification) -> str:
    """Describes the edit that changed the verification, as far as the objects show it."""
    return limited(_reason(g, backend, before, now), LENGTH)


def _reason(g: Graph, backend: Key, before: HopVerification, now: HopVerification) -> str:
    if _renamed(g, backend, before, now):
        return f"port {before.port_name} of {backend} is now called {now.port_name}"
    if now.refused:
        return now.refused
    if now.source is None:
        return _policy_lost(g, before.source, backend) if before.source else _acknowledgement(before, now)
    if before.source is None:
        return f"{now.source} configures TLS now" if now.source == backend else f"{now.source} applies now"
    if before.source != now.source:
        if before.source.kind == "BackendTLSPolicy" and read_policy(g, before.source) is None:
            return f"{before.source} was deleted, and {now.source} applies"
        return f"{now.source} applies instead of {before.source}"
    return _edited(g, now.source, before, now)


def _renamed(g: Graph, backend: Key, before: HopVerification, now: HopVerification) -> bool:
    """Returns whether a port lost its policy because the port was renamed."""
    if now.source or not before.source or before.source.kind != "BackendTLSPolicy":
        return False
    if not before.port_name or not now.port_name or before.port_name == now.port_name:
        return False
    policy = read_policy(g, before.source)
    targets = policy.spec.target_refs if policy else ()
    return any(target.name == backend.name and target.section_name == before.port_name for target in targets)


def _policy_lost(g: Graph, source: Key, backend: Key) -> str:
    """Returns why a port lost its policy."""
    if source.kind == XBACKEND:
        return f"{source} has tls.mode None"
    obj = read_policy(g, source)
    if obj is None:
        return f"{source} was deleted"
    targets = [(t, service) for t in obj.spec.target_refs if (service := service_of(source, t))]
    for _, service in targets:
        if service != backend and read(g, service, AnyService) is None:
            return f"{source} names {service}, which does not exist"
    sections = [t.section_name for t, service in targets if service == backend and t.section_name != WHOLE]
    if sections:
        return f"{source} names only port {', '.join(sections)} of {backend}"
    services = ", ".join(dict.fromkeys(str(service) for _, service in targets))
    return f"{source} names {services} instead" if services else f"{source} does not name it any more"


def _edited(g: Graph, source: Key, before: HopVerification, now: HopVerification) -> str:
    """Describes the changed part of a policy, an XBackend or an object that it refers to."""
    return (
        _other_waiver(source, before, now)
        or _other_references(source, before, now)
        or (RESOLVED if before.refused else "")
        or _other_names(source, before, now)
        or _other_content(g, source, before, now)
        or _other_settings(source, before, now)
        or _acknowledgement(before, now)
    )


def _other_waiver(source: Key, before: HopVerification, now: HopVerification) -> str:
    if before.waiver != now.waiver:
        return f"{source} uses {now.waiver} now" if now.waiver else f"{source} does not use {before.waiver} any more"
    return f"{now.waiver} waives another check now" if now.waiver and before.strength != now.strength else ""


def _other_references(source: Key, before: HopVerification, now: HopVerification) -> str:
    was, is_now = (", ".join(state.refs) or SYSTEM_CAS for state in (before, now))
    return f"{source} now verifies against {is_now}, no longer against {was}" if was != is_now else ""


def _other_names(source: Key, before: HopVerification, now: HopVerification) -> str:
    if before.names == now.names or before.strength != now.strength:
        return ""
    return f"{source} was edited: {compare(before, now)}"


def _other_content(g: Graph, source: Key, before: HopVerification, now: HopVerification) -> str:
    """Names the references that contain the added CAs. If CAs were only removed, their reference is not known, and all
    references to CAs or pins are named."""
    if before.digest == now.digest and before.strength == now.strength:
        return ""
    refs = [ref for ref in now.refs if not ref.startswith(f"{WAIVER} ")]
    all_refs = ", ".join(refs) or str(source)
    if len(refs) > 1 and before.basis:
        return f"{_with_new_cas(g, refs, before.basis) or f'one of {all_refs}'} has other content now"
    return f"{all_refs} has other content now"


def _with_new_cas(g: Graph, refs: Iterable[str], before: Basis) -> str:
    earlier = {ca.sha256 for ca in before.cas}
    return ", ".join(ref for ref in refs if _fingerprints(g, ref) - earlier)


def _other_settings(source: Key, before: HopVerification, now: HopVerification) -> str:
    facts = compare(before, now).facts
    ends = now.waiver and {fact.subject for fact in facts} == {Subject.WAIVER_END}
    return f"{now.waiver if ends else source} was edited: {'; '.join(map(str, facts))}" if facts else ""


def _fingerprints(g: Graph, ref: str) -> set[str]:
    key = Key.parse(ref)
    group = next((group for group, kind in CA_KINDS if key and kind == key.kind), None)
    if key is None or group is None:
        return set()
    ca_bundle = bundle(g, key.namespace, LocalObjectReference(group, key.kind, key.name))
    return set() if isinstance(ca_bundle, Problem) else {ca.sha256 for ca in trusted(ca_bundle.anchors)}


def _acknowledgement(before: HopVerification, now: HopVerification) -> str:
    if before.refused:
        return RESOLVED
    return f"acknowledged by {now.acknowledged}" if now.acknowledged else f"not acknowledged any more by {before.acknowledged}"


# --- indexes -----------------------------------------------------------------------------------------------

WEAKENED_ROUTES = Index[Key, Key, Weakening]("weakened-route")
"""Weakenings by route and Gateway."""
WEAKENED_POLICIES = Index[Key, Key, Weakening]("weakened-policy")
"""Weakenings by Gateway and the policy (or XBackend) that verified the hop before, if it still exists."""
WEAKENED_PORTS = Index[Key, Key, int, Weakening]("weakened-port")
"""Weakenings by Gateway, backend and port, once for all protocols of a port."""
WEAKENED = Index[Key, tuple[Key, int]]("weakened")
"""(backend, port) of weakened hops by Gateway."""


def weakened_hop(g: Graph, hop: Hop) -> Iterator[Entry]:
    """Yields the index entries of a weakened hop."""
    weaker = weakening(g, hop)
    if weaker is None:
        return
    yield WEAKENED_PORTS.entry((hop.gateway, hop.backend, hop.port), weaker)
    for route in HOPS.of(g, *hop):
        yield WEAKENED_ROUTES.entry((route, hop.gateway), weaker)
    if weaker.policy:
        yield WEAKENED_POLICIES.entry((weaker.policy, hop.gateway), weaker)


@indexer(WEAKENED_PORTS)
def index_weakened(g: Graph, gateway: Key, backend: Key, port: int) -> Iterator[Entry]:
    yield WEAKENED.entry((gateway,), (backend, port))


@query
def port_weakening(g: Graph, gateway: Key, backend: Key, port: int) -> Weakening | None:
    """Returns the weakening of a listed port. It is a query, so that an output can report it."""
    return next(iter(WEAKENED_PORTS.of(g, gateway, backend, port)), None)


def weakened(weakenings: tuple[Weakening, ...]) -> tuple[Condition, ...]:
    """Returns the condition of a route, policy or XBackend at one Gateway; empty without weakenings."""
    if not weakenings:
        return ()
    texts = (with_remedy(f"{weaker.message}.", weaker.remedy) for weaker in dict.fromkeys(weakenings))
    message = " ".join(texts)
    return (Condition(reasons.VERIFICATION_WEAKENED, True, reasons.NO_LONGER_VERIFIED, message),) if message else ()

"""How each hop is verified compared with what it was at best, which edit made the difference, and who has acknowledged it.

    hop_tls ──> verification ──(engine: VerificationMemory)──> HELD, an input ──> weakening ──> findings, statuses, metrics

A weakening is acknowledged by writing what is meant, where those who are concerned look:
- a VerificationWaiver, with its reason, is that word itself;
- plaintext: an `appProtocol` of the Service's port that is a plaintext protocol;
- pins alone, or the plaintext of an XBackend: the annotation `lasthop.dev/acknowledged` of the policy or XBackend;
- all of these: an entry in `backendTLS.acknowledged` of the Gateway's GatewayProfile, with its reason, for that Gateway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.backends import XBackend
from lasthop.base.api.core import AnyService
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.profiles import PREFIX
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition
from lasthop.engine.plan.finding import with_remedy
from lasthop.engine.plan.messages import limited
from lasthop.engine.plan.tls import Anchors, BackendTLS, HopTLS, Mode, Plaintext, Refused, SystemStore
from lasthop.engine.plan.verification import MODES, STRONGER, WORDS, Basis, HopVerification, Strength, Weakening, weakest
from lasthop.engine.plan.verification_change import Subject, compare
from lasthop.engine.resolve.backends.app_protocols import says_plaintext
from lasthop.engine.resolve.backends.reach import AFFECTED_ROUTES, HOPS, PORTS, protocols_at
from lasthop.engine.resolve.gateways.profiles import backend_rules
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.policies.judgement import judgement, validation_of
from lasthop.engine.resolve.policies.references import WAIVER
from lasthop.engine.resolve.policies.targets import WHOLE, port_winner, service_of
from lasthop.engine.resolve.policies.texts import read_policy
from lasthop.engine.resolve.settings import HELD
from lasthop.engine.resolve.trust.trust import CA_KINDS
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import Gate, indexer
from lasthop.engine.store.store import read

ACKNOWLEDGED: Final = f"{PREFIX}acknowledged"
"""Annotation of a BackendTLSPolicy or XBackend: the weakest verification that is meant, as `PinnedOnly`."""
LENGTH: Final = 500
"""Characters of a reason."""
WAIVED: Final = {
    Mode.WAIVED_ALL: Strength.WAIVED_ALL,
    Mode.WAIVED_NAMES: Strength.WAIVED_NAMES,
    Mode.WAIVED_EXPIRY: Strength.WAIVED_EXPIRY,
}


# --- what is the case -------------------------------------------------------------------------------------------------


@query
def verification(g: Graph, gateway: Key, backend: Key, port: int) -> HopVerification:
    """Returns how a Gateway verifies a port, by whichever protocol it can be used."""
    name = _port_name(g, backend, port)
    by_protocol = dict.fromkeys([hop_tls(g, gateway, backend, port, each) for each in protocols_at(g, gateway, backend, port)])
    if not by_protocol:
        return HopVerification(Strength.PLAINTEXT, refused="no route leads there")
    return weakest([_verified(g, gateway, backend, port, name, tls) for tls in by_protocol])


def _verified(g: Graph, gateway: Key, backend: Key, port: int, name: str, tls: HopTLS) -> HopVerification:
    match tls:
        case Plaintext():
            found = HopVerification(Strength.PLAINTEXT, port_name=name)
        case BackendTLS():
            found = _of_tls(g, tls, name)
        case Refused():
            asked = _asked(g, backend, name, tls.source)
            return msgspec.structs.replace(asked, refused=limited(tls.why.text, LENGTH))
    acknowledged = _acknowledged(g, gateway, backend, port, tls, found)
    return msgspec.structs.replace(found, acknowledged=acknowledged) if acknowledged else found


def _asked(g: Graph, backend: Key, port_name: str, source: Key | None) -> HopVerification:
    """Returns what a hop that fails closed is to be verified by. A policy that misses its port closes others, and asks
    nothing of them."""
    winner = port_winner(g, backend, port_name) if backend.kind != XBACKEND else None
    if source is None or (source != backend and (winner is None or winner.policy != source)):
        return HopVerification(Strength.PLAINTEXT, port_name=port_name)
    judged = judgement(g, source)
    if judged is None or judged.tls is None:
        strength = _written(g, source) if source != backend or judged else Strength.PLAINTEXT
        return HopVerification(strength, source, port_name=port_name)
    return _of_tls(g, judged.tls, port_name)


def _written(g: Graph, source: Key) -> Strength:
    """Returns how much a policy or XBackend that cannot be fulfilled asks for. References to CAs alone ask for all; any other
    reference could be one that asks for less."""
    validation = validation_of(g, source)
    if validation is None or any((ref.group, ref.kind) not in CA_KINDS for ref in validation.ca_certificate_refs):
        return Strength.TLS
    return Strength.VERIFIED


def _of_tls(g: Graph, tls: BackendTLS, port_name: str) -> HopVerification:
    if tls.waiver:
        strength, trust = WAIVED[tls.mode], ""
    elif tls.pinned_only:
        strength, trust = Strength.PINNED_ONLY, ""
    else:
        strength = Strength.VERIFIED
        trust = "pinned" if tls.pins else "System" if isinstance(tls.trust, SystemStore) else "CA"
    validation, namespace = validation_of(g, tls.source), tls.source.namespace
    refs = tuple([f"{ref.kind} {namespace}/{ref.name}" for ref in validation.ca_certificate_refs]) if validation else ()
    names, waiver = tuple([str(name) for name in tls.names]), tls.waiver.key if tls.waiver else None
    digest, basis = _held_against(tls), _basis(tls)
    return HopVerification(strength, tls.source, trust, names, refs, digest, waiver, port_name=port_name, basis=basis)


def _basis(tls: BackendTLS) -> Basis:
    pins = [
        f"{of}:{each.hex()}"
        for of, found in (("key", tls.pins.keys), ("certificate", tls.pins.certificates))
        for each in found
    ]
    anchors = tls.trust if isinstance(tls.trust, Anchors) else None
    return Basis(
        cas=anchors.cas if anchors else (),
        system=isinstance(tls.trust, SystemStore),
        revocation=bool(anchors and anchors.crl),
        pins=tuple(sorted(pins)),
        versions=(tls.options.lowest, tls.options.max_version),
        client_certificate=str(tls.client_certificate) if tls.client_certificate else "",
        until=tls.waiver.expires if tls.waiver else None,
    )


def _held_against(tls: BackendTLS) -> str:
    """Returns the digest of the certificates and pins. The system's store is the host's, and changes with every update of the
    host."""
    parts = [
        tls.trust.pem if isinstance(tls.trust, Anchors) else b"",
        # Lists are issued anew all the time; only that there are any is worth a record.
        b"crl" if isinstance(tls.trust, Anchors) and tls.trust.crl else b"",
        *sorted(tls.pins.keys),
        b"",
        *sorted(tls.pins.certificates),
    ]
    if not any(parts):
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part + b"|")
    return digest.hexdigest()


def _port_name(g: Graph, backend: Key, port: int) -> str:
    service = read(g, backend, AnyService) if backend.kind != XBACKEND else None
    found = service.port(port) if service else None
    return found.name if found else ""


# --- who has acknowledged it ------------------------------------------------------------------------------------------


def _acknowledged(g: Graph, gateway: Key, backend: Key, number: int, tls: HopTLS, now: HopVerification) -> str:
    if isinstance(tls, BackendTLS) and tls.waiver:
        return f'{tls.waiver.key}: "{tls.waiver.reason}"'
    if now.strength is Strength.VERIFIED:
        return ""
    service = read(g, backend, AnyService) if backend.kind != XBACKEND else None
    port = service.port(number) if service else None
    if port and now.strength is Strength.PLAINTEXT and says_plaintext(port.app_protocol):
        return f"appProtocol {port.app_protocol} of {backend}"
    owner = now.source or backend
    if owner.kind in ("BackendTLSPolicy", XBACKEND) and _annotated(g, owner) == MODES[now.strength]:
        return f"annotation {ACKNOWLEDGED} of {owner}"
    for entry in backend_rules(g, gateway).acknowledged:
        named = (entry.kind, entry.namespace, entry.name)
        if named == backend and entry.port in (0, number) and entry.verification == MODES[now.strength]:
            return f'{entry.by}: "{entry.reason}"'
    return ""


def _annotated(g: Graph, owner: Key) -> str:
    obj: Object | None = read(g, owner, XBackend) if owner.kind == XBACKEND else read_policy(g, owner)
    return obj.metadata.annotations.get(ACKNOWLEDGED) if obj else ""


# --- what it was, and which edit made the difference ------------------------------------------------------------------


def weakening(g: Graph, gateway: Key, backend: Key, port: int) -> Weakening | None:
    """Returns how a port is weaker than it was at best, unless that has been acknowledged."""
    now = verification(g, gateway, backend, port)
    if now.refused or now.acknowledged:
        return None
    best = next((held for each in STRONGER[now.strength] if (held := HELD.of(g, backend, port, each))), None)
    if best is None:
        return None
    because = reason(g, backend, best, now)
    return Weakening(backend, port, WORDS[now.strength], because, _remedy(backend, now), best.source)


def _remedy(backend: Key, now: HopVerification) -> str:
    annotation = f"with annotation {ACKNOWLEDGED}: {MODES[now.strength]} of {now.source or backend}"
    if backend.kind == XBACKEND:
        return f"Restore its tls; or if {WORDS[now.strength]} is meant, say so {annotation}."
    if now.strength is Strength.PLAINTEXT:
        return "Restore the policy; or if plaintext is meant, say so with appProtocol: http at the Service's port."
    return f"Restore what it was verified against; or if {WORDS[now.strength]} is meant, say so {annotation}."


def reason(g: Graph, backend: Key, before: HopVerification, now: HopVerification) -> str:
    """Says which edit made the difference, as far as the objects show it."""
    return limited(_reason(g, backend, before, now), LENGTH)


def _reason(g: Graph, backend: Key, before: HopVerification, now: HopVerification) -> str:
    if before.port_name and now.port_name and before.port_name != now.port_name and before.source and not now.source:
        policy = read_policy(g, before.source) if before.source.kind == "BackendTLSPolicy" else None
        if policy and any(t.name == backend.name and t.section_name == before.port_name for t in policy.spec.target_refs):
            return f"port {before.port_name} of {backend} is now called {now.port_name}"
    if now.refused:
        return now.refused
    if now.source is None:
        return _lost(g, before.source, backend) if before.source else _acknowledgement(before, now)
    if before.source is None:
        return f"{now.source} asks for it now" if now.source == backend else f"{now.source} applies now"
    if before.source != now.source:
        if before.source.kind == "BackendTLSPolicy" and read_policy(g, before.source) is None:
            return f"{before.source} was deleted, and {now.source} applies"
        return f"{now.source} applies instead of {before.source}"
    return _edited(now.source, before, now)


def _lost(g: Graph, source: Key, backend: Key) -> str:
    """Returns why a port has no policy any more."""
    if source.kind == XBACKEND:
        return f"{source} has tls.mode None"
    obj = read_policy(g, source)
    if obj is None:
        return f"{source} was deleted"
    named = [(t, service) for t in obj.spec.target_refs if (service := service_of(source, t))]
    for _, service in named:
        if service != backend and read(g, service, AnyService) is None:
            return f"{source} names {service}, which does not exist"
    sections = [t.section_name for t, service in named if service == backend and t.section_name != WHOLE]
    if sections:
        return f"{source} names only port {', '.join(sections)} of {backend}"
    others = ", ".join(dict.fromkeys(str(service) for _, service in named))
    return f"{source} names {others} instead" if others else f"{source} does not name it any more"


def _edited(source: Key, before: HopVerification, now: HopVerification) -> str:
    """Says which part of a policy or XBackend, or of what it refers to, has changed."""
    if before.waiver != now.waiver:
        return f"{source} uses {now.waiver} now" if now.waiver else f"{source} does not use {before.waiver} any more"
    if now.waiver and before.strength != now.strength:
        return f"{now.waiver} waives another check now"
    if before.refs != now.refs:
        was, is_now = (", ".join(each.refs) or "the system's CAs" for each in (before, now))
        return f"{source} now verifies against {is_now}, no longer against {was}"
    if before.names != now.names and before.strength == now.strength:
        return f"{source} requires other names than {' or '.join(before.names)} now"
    if before.digest != now.digest or before.strength != now.strength:
        # A waiver decides by its mode and its end, which are compared by themselves.
        held_against = [ref for ref in now.refs if not ref.startswith(f"{WAIVER} ")]
        return f"{', '.join(held_against) or source} has other content now"
    if not before.refused and (facts := compare(before, now).facts):
        ends = now.waiver and {fact.subject for fact in facts} == {Subject.WAIVER_END}
        return f"{now.waiver if ends else source} was edited: {'; '.join(map(str, facts))}"
    return _acknowledgement(before, now) if not before.refused else "what it failed for is resolved"


def _acknowledgement(before: HopVerification, now: HopVerification) -> str:
    if before.refused:
        return "what it failed for is resolved"
    return f"acknowledged by {now.acknowledged}" if now.acknowledged else f"not acknowledged any more by {before.acknowledged}"


# --- by what carries it -----------------------------------------------------------------------------------------------

WEAKENED_POLICIES = Index[Key, Key, Weakening]("weakened-policy")
"""By policy (or XBackend) and Gateway: the one that verified it, if it is still there."""
WEAKENED_PORTS = Index[Key, Key, int, Weakening]("weakened-port")
"""By Gateway, backend and port."""
WEAKENED = Index[Key, tuple[Key, int]]("weakened")
"""By Gateway: backend and port."""


@indexer(PORTS, patient=True, only_where=Gate(verification, lambda now: bool(STRONGER[now.strength])))
def index_weakened(g: Graph, gateway: Key, backend: Key, port: int) -> Iterator[Entry]:
    found = weakening(g, gateway, backend, port)
    if found is None:
        return
    yield WEAKENED_PORTS.entry((gateway, backend, port), found)
    yield WEAKENED.entry((gateway,), (backend, port))
    for protocol in protocols_at(g, gateway, backend, port):
        for route in HOPS.of(g, gateway, backend, port, protocol):
            yield AFFECTED_ROUTES.entry((route, gateway), found)
    if found.policy:
        yield WEAKENED_POLICIES.entry((found.policy, gateway), found)


@query
def port_weakening(g: Graph, gateway: Key, backend: Key, port: int) -> Weakening | None:
    """Returns the weakening of a port that is listed, so that it is listed with an output."""
    return next(iter(WEAKENED_PORTS.of(g, gateway, backend, port)), None)


def weakened(found: tuple[Weakening, ...]) -> tuple[Condition, ...]:
    """Returns the condition of a route, policy or XBackend at one Gateway; none where nothing is weaker than it was."""
    if not found:
        return ()
    texts = (with_remedy(f"{each.message}.", each.remedy) for each in dict.fromkeys(found))
    message = " ".join(texts)
    return (Condition(reasons.VERIFICATION_WEAKENED, True, reasons.NO_LONGER_VERIFIED, message),) if message else ()

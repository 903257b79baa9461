"""Computes the verdict on a hop, and the acknowledgement of weak verification.

    hop_tls ──> verdict, one node for each hop ──> memory, audit, metrics, page, log
    policies, endpoints, OBSERVED ──> hop_context, read on demand ──> explain

Endpoints, losing policies and observations are not part of the verdict. They change independently of the verification, and the
memory compares every change of a verdict.

Weak verification is acknowledged in one of these places:
- a VerificationWaiver, with its reason;
- plaintext: a plaintext protocol as `appProtocol` of the Service's port;
- pins alone, or the plaintext of an XBackend: the annotation `lasthop.dev/acknowledged` of the policy or XBackend;
- all of these: an entry in `backendTLS.acknowledged` of the Gateway's GatewayProfile, with its reason, for that Gateway.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.backends import XBackend
from lasthop.base.api.core import AnyService, ServicePort
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.profiles import PREFIX
from lasthop.engine.plan import reasons
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import BackendTLS, HopTLS, Plaintext, Refused
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.plan.verdict import HopVerification, Verdict, refused, verification_of, weakest
from lasthop.engine.resolve.backends.app_protocols import is_plaintext
from lasthop.engine.resolve.backends.reach import HOPS, PORTS
from lasthop.engine.resolve.gateways.profiles import acknowledgements
from lasthop.engine.resolve.hops.hops import hop_tls, policies_unknown
from lasthop.engine.resolve.policies.judgement import judgement, validation_of
from lasthop.engine.resolve.policies.targets import port_winner
from lasthop.engine.resolve.policies.texts import read_policy
from lasthop.engine.resolve.trust.trust import CA_KINDS
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.stages import GONE, Changes, Gone, Output
from lasthop.engine.store.store import read

ACKNOWLEDGED: Final = f"{PREFIX}acknowledged"
"""Annotation of a BackendTLSPolicy or XBackend: the weakest intended verification, for example `PinnedOnly`."""
GatewayPort = tuple[Key, Key, int]
"""(Gateway, backend, port)."""
NOT_REACHED: Final = HopVerification(Strength.PLAINTEXT, refused="no route leads to it")


@query
def verdict(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> Verdict:
    """Returns how a Gateway connects to a backend's port by one protocol, and what it verifies."""
    hop = Hop(gateway, backend, port, protocol)
    tls, service_port = hop_tls(g, *hop), _service_port(g, backend, port)
    if isinstance(tls, Refused):
        required = _required(g, hop, service_port.name if service_port else "", tls.source)
        unknown = policies_unknown(g, hop) if tls.why.reason == reasons.POLICIES_UNKNOWN else None
        return Verdict(hop, tls, refused(required, tls.why.text), unknown)
    verification = _connected(g, tls, service_port.name if service_port else "")
    acknowledgement = _acknowledged(g, hop, service_port, tls, verification) if protocol.policed else ""
    return Verdict(
        hop, tls, msgspec.structs.replace(verification, acknowledged=acknowledgement) if acknowledgement else verification
    )


def port_verification(g: Graph, gateway: Key, backend: Key, port: int) -> HopVerification:
    """Returns the weakest verification of a port, over the protocols that policies apply to."""
    protocols = PORTS.of(g, gateway, backend, port)
    verifications = [verdict(g, gateway, backend, port, protocol).verification for protocol in protocols]
    return weakest(verifications) if verifications else NOT_REACHED


def changed_ports(g: Graph, outputs: Changes) -> dict[GatewayPort, HopVerification | Gone | None]:
    """Returns the current verification of ports with changed verdicts; None if the query crashed."""
    changed = VERDICTS.of(outputs)
    ports = dict.fromkeys((gateway, backend, port) for gateway, backend, port, protocol in changed if protocol.policed)
    return {port: _current(g, port) for port in ports}


def _current(g: Graph, port: GatewayPort) -> HopVerification | Gone | None:
    if not PORTS.of(g, *port):
        return GONE
    current = g.shielded(port_verification, *port)
    return None if isinstance(current, Crash) else current


def _connected(g: Graph, tls: BackendTLS | Plaintext, port_name: str) -> HopVerification:
    if isinstance(tls, Plaintext):
        return HopVerification(tls.strength, port_name=port_name)
    return verification_of(tls, _refs(g, tls.source), port_name)


def _refs(g: Graph, source: Key) -> tuple[str, ...]:
    validation = validation_of(g, source)
    refs = validation.ca_certificate_refs if validation else ()
    return tuple([f"{ref.kind} {source.namespace}/{ref.name}" for ref in refs])


def _required(g: Graph, hop: Hop, port_name: str, source: Key | None) -> HopVerification:
    """Returns the required verification of a hop that fails closed. A policy whose port does not exist closes other ports, but
    requires no verification of them."""
    backend = hop.backend
    winner = port_winner(g, backend, port_name) if backend.kind != XBACKEND else None
    if source is None or (source != backend and (winner is None or winner.policy != source)):
        return HopVerification(Strength.PLAINTEXT, port_name=port_name)
    judged = judgement(g, source)
    if judged is None or judged.tls is None:
        strength = _required_strength(g, source) if source != backend or judged else Strength.PLAINTEXT
        return HopVerification(strength, source, port_name=port_name)
    return verification_of(judged.tls, _refs(g, source), port_name)


def _required_strength(g: Graph, source: Key) -> Strength:
    """Returns the strength that an invalid policy or XBackend requires. References to CAs only require full verification; any
    other reference could require less."""
    validation = validation_of(g, source)
    if validation is None or any((ref.group, ref.kind) not in CA_KINDS for ref in validation.ca_certificate_refs):
        return Strength.TLS
    return Strength.VERIFIED


def _service_port(g: Graph, backend: Key, port: int) -> ServicePort | None:
    service = read(g, backend, AnyService) if backend.kind != XBACKEND else None
    return service.port(port) if service else None


def _acknowledged(g: Graph, hop: Hop, port: ServicePort | None, tls: HopTLS, now: HopVerification) -> str:
    """Returns the acknowledgement of weak verification; empty if there is none."""
    if isinstance(tls, BackendTLS) and tls.waiver:
        return f'{tls.waiver.key}: "{tls.waiver.reason}"'
    if now.strength is Strength.VERIFIED:
        return ""
    if port and now.strength is Strength.PLAINTEXT and is_plaintext(port.app_protocol):
        return f"appProtocol {port.app_protocol} of {hop.backend}"
    owner = now.source or hop.backend
    if owner.kind in ("BackendTLSPolicy", XBACKEND) and _annotated(g, owner) == now.strength.label:
        return f"annotation {ACKNOWLEDGED} of {owner}"
    for entry in acknowledgements(g, hop.gateway):
        backend = (entry.kind, entry.namespace, entry.name)
        if backend == hop.backend and entry.port in (0, hop.port) and entry.verification == now.strength.label:
            return f'{entry.by}: "{entry.reason}"'
    return ""


def _annotated(g: Graph, owner: Key) -> str:
    obj: Object | None = read(g, owner, XBackend) if owner.kind == XBACKEND else read_policy(g, owner)
    return obj.metadata.annotations.get(ACKNOWLEDGED) if obj else ""


VERDICTS = Output("verdicts", HOPS, verdict)

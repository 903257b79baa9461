"""Computes the verdict on a hop, and who has acknowledged that it is weak.

    hop_tls ──> verdict, one node for each hop ──> memory, audit, metrics, page, log
    policies, endpoints, OBSERVED ──> hop_context, read on demand ──> explain

The endpoints, the policies that lose and the observations are not part of the node: they change for other reasons than the
verification does, and every change of a verdict is compared with what is remembered.

Weak verification is acknowledged in one of these places:
- a VerificationWaiver, with its reason;
- plaintext: an `appProtocol` of the Service's port that is a plaintext protocol;
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
from lasthop.engine.resolve.backends.app_protocols import says_plaintext
from lasthop.engine.resolve.backends.reach import HOPS, PORTS
from lasthop.engine.resolve.gateways.profiles import backend_rules
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
"""Annotation of a BackendTLSPolicy or XBackend: the weakest verification that is intended, as `PinnedOnly`."""
Place = tuple[Key, Key, int]
"""Gateway, backend and port."""
NOT_REACHED: Final = HopVerification(Strength.PLAINTEXT, refused="no route leads there")


@query
def verdict(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> Verdict:
    """Returns how a Gateway connects to a port of a backend by one protocol, and what it checks there."""
    hop = Hop(gateway, backend, port, protocol)
    tls, service_port = hop_tls(g, *hop), _service_port(g, backend, port)
    if isinstance(tls, Refused):
        required = _required(g, hop, service_port.name if service_port else "", tls.source)
        unknown = policies_unknown(g, hop) if tls.why.reason == reasons.POLICIES_UNKNOWN else None
        return Verdict(hop, tls, refused(required, tls.why.text), unknown)
    found = _connected(g, tls, service_port.name if service_port else "")
    by = _acknowledged(g, hop, service_port, tls, found) if protocol.policed else ""
    return Verdict(hop, tls, msgspec.structs.replace(found, acknowledged=by) if by else found)


def port_verification(g: Graph, gateway: Key, backend: Key, port: int) -> HopVerification:
    """Returns the weakest verification of a port, over the protocols that policies apply to."""
    found = [verdict(g, gateway, backend, port, each).verification for each in PORTS.of(g, gateway, backend, port)]
    return weakest(found) if found else NOT_REACHED


def changed_ports(g: Graph, outputs: Changes) -> dict[Place, HopVerification | Gone | None]:
    """Returns the ports of which a verdict has changed, as they are now; None: the verification could not be computed."""
    places = dict.fromkeys((gateway, backend, port) for gateway, backend, port, by in VERDICTS.of(outputs) if by.policed)
    return {place: _port_now(g, place) for place in places}


def _port_now(g: Graph, place: Place) -> HopVerification | Gone | None:
    if not PORTS.of(g, *place):
        return GONE
    found = g.shielded(port_verification, *place)
    return None if isinstance(found, Crash) else found


def _connected(g: Graph, tls: BackendTLS | Plaintext, port_name: str) -> HopVerification:
    if isinstance(tls, Plaintext):
        return HopVerification(tls.strength, port_name=port_name)
    return verification_of(tls, _refs(g, tls.source), port_name)


def _refs(g: Graph, source: Key) -> tuple[str, ...]:
    validation = validation_of(g, source)
    refs = validation.ca_certificate_refs if validation else ()
    return tuple([f"{ref.kind} {source.namespace}/{ref.name}" for ref in refs])


def _required(g: Graph, hop: Hop, port_name: str, source: Key | None) -> HopVerification:
    """Returns how a hop that fails closed is to be verified. A policy that misses its port closes others, and requires nothing
    of them."""
    backend = hop.backend
    winner = port_winner(g, backend, port_name) if backend.kind != XBACKEND else None
    if source is None or (source != backend and (winner is None or winner.policy != source)):
        return HopVerification(Strength.PLAINTEXT, port_name=port_name)
    judged = judgement(g, source)
    if judged is None or judged.tls is None:
        strength = _written(g, source) if source != backend or judged else Strength.PLAINTEXT
        return HopVerification(strength, source, port_name=port_name)
    return verification_of(judged.tls, _refs(g, source), port_name)


def _written(g: Graph, source: Key) -> Strength:
    """Returns what a policy or XBackend requires that cannot be fulfilled. References to CAs alone require all checks; any
    other reference could be one that requires less."""
    validation = validation_of(g, source)
    if validation is None or any((ref.group, ref.kind) not in CA_KINDS for ref in validation.ca_certificate_refs):
        return Strength.TLS
    return Strength.VERIFIED


def _service_port(g: Graph, backend: Key, port: int) -> ServicePort | None:
    service = read(g, backend, AnyService) if backend.kind != XBACKEND else None
    return service.port(port) if service else None


def _acknowledged(g: Graph, hop: Hop, port: ServicePort | None, tls: HopTLS, now: HopVerification) -> str:
    """Returns who has acknowledged a weak verification; empty: it is not acknowledged."""
    if isinstance(tls, BackendTLS) and tls.waiver:
        return f'{tls.waiver.key}: "{tls.waiver.reason}"'
    if now.strength is Strength.VERIFIED:
        return ""
    if port and now.strength is Strength.PLAINTEXT and says_plaintext(port.app_protocol):
        return f"appProtocol {port.app_protocol} of {hop.backend}"
    owner = now.source or hop.backend
    if owner.kind in ("BackendTLSPolicy", XBACKEND) and _annotated(g, owner) == now.strength.label:
        return f"annotation {ACKNOWLEDGED} of {owner}"
    for entry in backend_rules(g, hop.gateway).acknowledged:
        named = (entry.kind, entry.namespace, entry.name)
        if named == hop.backend and entry.port in (0, hop.port) and entry.verification == now.strength.label:
            return f'{entry.by}: "{entry.reason}"'
    return ""


def _annotated(g: Graph, owner: Key) -> str:
    obj: Object | None = read(g, owner, XBackend) if owner.kind == XBACKEND else read_policy(g, owner)
    return obj.metadata.annotations.get(ACKNOWLEDGED) if obj else ""


VERDICTS = Output("verdicts", HOPS, verdict)

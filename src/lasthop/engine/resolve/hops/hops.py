"""Decides how a Gateway connects to a backend: in plaintext, with the TLS of a BackendTLSPolicy or XBackend, or not at all.

    claims on the port ──> winner ──┐
                                    ├──> judgement ──> this Gateway's part ──> TLS ──> other checks of the backend ──> hop_tls
    an XBackend's own tls ──────────┘   (permissions, room in the status,           (its type, protocol, endpoints)
                                         client certificate)

`hop_tls` is the only final decision, for every kind of backend and every protocol: clusters, streams, Secrets, statuses,
audit, explain and the prober read it. It is never plaintext for a port that a policy targets, even if the policy is invalid.
"""

from __future__ import annotations

import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.backends import XBackend
from lasthop.base.api.core import AnyService, Service, ServicePort
from lasthop.base.api.meta import Key
from lasthop.engine.plan import problem as problems
from lasthop.engine.plan import reasons
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.tls import BackendTLS, HopTLS, Plaintext, Refused
from lasthop.engine.plan.upstream import EndpointsKind, Hop, Protocol
from lasthop.engine.resolve.backends import xbackends
from lasthop.engine.resolve.backends.app_protocols import is_plaintext, is_tls, policy_to_write
from lasthop.engine.resolve.backends.backends import endpoints_kind
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.gateways.profiles import backend_rules
from lasthop.engine.resolve.policies.ancestors import MAX_ANCESTORS, ancestors
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.policies.permissions import permitted_tls, plaintext_problem
from lasthop.engine.resolve.policies.targets import missed_target_text, missed_targets, port_winner
from lasthop.engine.resolve.settings import ABSENCE_PROVEN, POLICIES_UNKNOWN, settings
from lasthop.engine.resolve.trust.certificates import KeyPair, key_pair
from lasthop.engine.resolve.trust.client_certificates import chain_digest, presented_certificate
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.store import read


@query
def hop_tls(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> HopTLS:
    """Returns the connection of a hop, or why it is refused."""
    hop = Hop(gateway, backend, port, protocol)
    tls = _requested_tls(g, hop)
    if isinstance(tls, Refused) and tls.problem.reason == reasons.POLICIES_UNKNOWN and not _needs_proof(g, hop):
        tls = Plaintext()
    if backend.kind == XBACKEND:
        problem = xbackends.problem(g, backend, port, protocol)
        if not problem and not isinstance(tls, Refused):
            problem = xbackends.external_hostname_problem(g, gateway, backend, tls)
    else:
        service_port = _service_port(g, backend, port, protocol.transport)
        if isinstance(service_port, Problem):
            problem = service_port
        else:
            problem = _service_problem(g, hop) or (_needs_tls(hop, service_port) if isinstance(tls, Plaintext) else None)
    if isinstance(tls, Refused):
        return Refused(problem or problems.invalid_backend_tls(backend, port, tls.problem), tls.source, tls.problem)
    return Refused(problem, tls.source if isinstance(tls, BackendTLS) else None) if problem else tls


def _service_problem(g: Graph, hop: Hop) -> Problem | None:
    """Returns why a Service cannot be used from this Gateway, apart from its ports and TLS."""
    service = read(g, hop.backend, AnyService)
    by_name = isinstance(service, Service) and service.spec.type == "ExternalName"
    if not by_name and endpoints_kind(g, hop.backend, hop.port, hop.protocol.transport) is not EndpointsKind.DNS:
        return None
    allowed = backend_rules(g, hop.gateway).external_names
    if settings(g).external_names if allowed is None else allowed:
        return None
    if by_name:
        message = f"{hop.backend} is of type ExternalName, which could resolve to any address"
        return problems.unsupported_value(message, "", "use EndpointSlices", hop.backend)
    # DNS names in EndpointSlices can resolve to any address, as ExternalName can. kube-proxy ignores them, and API servers do
    # not check them.
    message = f"the EndpointSlices of {hop.backend} have addressType FQDN, which could resolve to any address"
    return problems.unsupported_value(message, "", "use addresses", hop.backend)


def _service_port(g: Graph, key: Key, number: int, transport: str = "TCP") -> ServicePort | Problem:
    service = read(g, key, AnyService)
    if service is None:
        return problems.backend_not_found(key)
    if service_port := service.port(number, transport):
        return service_port
    ports = (port.port for port in service.spec.ports if port.protocol == transport)
    return problems.backend_port_not_found(key, transport, number, ports)


def _needs_tls(hop: Hop, port: ServicePort) -> Problem | None:
    """Returns why a port whose appProtocol means TLS gets no plaintext."""
    if not hop.protocol.policed or not is_tls(port.app_protocol):
        return None
    message = f"{hop.backend} port {hop.port} has appProtocol {port.app_protocol} but no BackendTLSPolicy"
    remedy = f"create one {policy_to_write(hop.backend, port)}"
    if not hop.protocol.http:
        remedy += ", or pass the client's TLS through with a TLSRoute on a Passthrough listener"
    return problems.unsupported_protocol(message, remedy, hop.backend)


def _requested_tls(g: Graph, hop: Hop) -> HopTLS:
    """Returns the required connection of a hop. Policies do not apply to passthrough and UDP."""
    if hop.protocol.policed:
        tls = g.shielded(_port_tls, hop.gateway, hop.backend, hop.port)
        return Refused(problems.internal_error()) if isinstance(tls, Crash) else tls
    return _plaintext(g, hop) if hop.protocol is Protocol.UDP else Plaintext()


def _port_tls(g: Graph, gateway: Key, backend: Key, number: int) -> HopTLS:
    """Returns the required connection of a port, for all protocols that policies apply to."""
    if backend.kind == XBACKEND:
        return _own_tls(g, gateway, backend, number)
    port = _service_port(g, backend, number)
    if isinstance(port, Problem):
        return Refused(port)
    claim = port_winner(g, backend, port.name)
    if claim is None:
        return _without_policy(g, Hop(gateway, backend, number, Protocol.TCP), port)
    policy = claim.policy
    if claim.rejected:
        return Refused(problems.policy_unreadable(policy, claim.rejected), policy)
    tls = _permitted(g, gateway, policy)
    if isinstance(tls, Refused):
        return tls
    if gateway in ancestors(g, policy).without_room:
        message = f"the status of {policy} has no free entry for {gateway} (at most {MAX_ANCESTORS} entries)"
        return Refused(problems.invalid(message, policy, gateway), policy)
    certificate = presented_certificate(g, gateway, tls)
    if isinstance(certificate, Problem):
        return Refused(certificate, policy)
    return _with_certificate(g, tls, certificate) if certificate else tls


def _with_certificate(g: Graph, tls: BackendTLS, certificate: Key) -> BackendTLS:
    pair = key_pair(g, certificate)
    sha256 = pair.sha256 if isinstance(pair, KeyPair) else ""
    digest = chain_digest(g, certificate)
    return msgspec.structs.replace(tls, client_certificate=certificate, client_digest=digest, client_sha256=sha256)


def _permitted(g: Graph, gateway: Key, source: Key) -> BackendTLS | Refused:
    tls = permitted_tls(g, gateway, source)
    if isinstance(tls, Problem):
        return Refused(tls.within(f"{source} is not permitted at {gateway}", source, gateway), source)
    if tls is None:
        judged = judgement(g, source)
        problem = (judged.problem if judged else None) or problems.invalid("it was deleted")
        return Refused(problem.within(f"{source} is invalid", source), source)
    return tls


def _own_tls(g: Graph, gateway: Key, key: Key, port: int) -> HopTLS:
    """Returns the TLS of an XBackend's own spec. The Gateway's client certificate is not presented, because `ServerOnly`
    excludes it."""
    obj = read(g, key, XBackend)
    if obj is None:
        return Refused(xbackends.absent(g, key), key)
    if obj.spec.tls.mode == xbackends.PLAINTEXT and obj.spec.tls.validation is None:
        return _plaintext(g, Hop(gateway, key, port, Protocol.TCP))
    permitted, certificate = _permitted(g, gateway, key), xbackends.client_certificate(g, key)
    if isinstance(permitted, Refused):
        return permitted
    if isinstance(certificate, Problem):
        return Refused(certificate, key)
    alpn = (xbackends.ALPN[obj.spec.protocol],) if obj.spec.protocol in xbackends.ALPN else ()
    tls = msgspec.structs.replace(permitted, options=msgspec.structs.replace(permitted.options, alpn=alpn))
    return _with_certificate(g, tls, certificate) if certificate else tls


def _plaintext(g: Graph, hop: Hop) -> HopTLS:
    problem = plaintext_problem(g, hop)
    return Refused(problem) if problem else Plaintext()


def _without_policy(g: Graph, hop: Hop, port: ServicePort) -> HopTLS:
    # A port that was renamed, or one mistyped letter in a sectionName, must not turn a verified hop into plaintext.
    if not is_plaintext(port.app_protocol) and (missing := missed_targets(g, hop.backend)):
        policy = missing[0].policy
        message = f"{policy} does not match its target: {missed_target_text(g, hop.backend, missing[0])}"
        return Refused(Problem(reasons.TARGET_NOT_FOUND, message, about=(policy, hop.backend)), policy)
    tls = _plaintext(g, hop)
    if isinstance(tls, Plaintext) and (unknown := policies_unknown(g, hop)):
        return Refused(problems.policies_unknown(unknown, hop.backend.namespace))
    return tls


def _needs_proof(g: Graph, hop: Hop) -> bool:
    """Returns whether a hop with unknown policies is closed. A hop without an attached route has no cluster and gets no proof,
    so it must not report a closed port."""
    unknown = policies_unknown(g, hop)
    return unknown is None or not unknown.provable or HOPS.size(g, *hop) > 0


def policies_unknown(g: Graph, hop: Hop) -> Unknown | None:
    """Returns the unread input that may contain a policy for the port; None if absence is proven."""
    if ABSENCE_PROVEN.of(g, hop.backend, hop.port):
        return None
    # An unprovable one takes precedence, because no proof can open the port.
    return min(filter(None, (POLICIES_UNKNOWN.of(g, ""), POLICIES_UNKNOWN.of(g, hop.backend.namespace))), default=None)

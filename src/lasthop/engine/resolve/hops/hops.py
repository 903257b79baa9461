"""How a Gateway connects to a backend: in plaintext, with TLS as a BackendTLSPolicy or the XBackend asks, or not at all.

    claims on the port ──> winner ──┐
                                    ├──> judgement ──> this Gateway's part ──> TLS ──> and the rest of the backend ──> hop_tls
    an XBackend's own tls ──────────┘   (permissions, room in the status,           (its type, protocol, endpoints)
                                         client certificate)

`hop_tls` is the one final answer, for every kind of backend and every protocol: clusters, streams, Secrets, statuses, audit,
explain and the prober are made from it. It is never plaintext for a port that a policy targets, whatever state that policy
is in.
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
from lasthop.engine.resolve.backends.app_protocols import policy_to_write, says_plaintext, says_tls
from lasthop.engine.resolve.backends.backends import endpoints_kind
from lasthop.engine.resolve.backends.reach import HOPS
from lasthop.engine.resolve.gateways.profiles import backend_rules
from lasthop.engine.resolve.policies.ancestors import MAX_ANCESTORS, ancestors
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.policies.permissions import permitted_tls, plaintext_problem
from lasthop.engine.resolve.policies.targets import port_winner, stray_text, strays
from lasthop.engine.resolve.settings import ABSENCE_PROVEN, POLICIES_UNKNOWN, settings
from lasthop.engine.resolve.trust.client_certificates import chain_digest, shown_certificate
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.store import read


@query
def hop_tls(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> HopTLS:
    """Returns how a hop is connected in the end, or why it is refused."""
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
            problem = _service_problem(g, hop) or (_says_tls(hop, service_port) if isinstance(tls, Plaintext) else None)
    if isinstance(tls, Refused):
        return Refused(problem or problems.invalid_backend_tls(backend, port, tls.problem), tls.source, tls.problem)
    return Refused(problem, tls.source if isinstance(tls, BackendTLS) else None) if problem else tls


def _service_problem(g: Graph, hop: Hop) -> Problem | None:
    """Returns why a Service cannot be used from this Gateway, its ports and its TLS aside."""
    service = read(g, hop.backend, AnyService)
    by_name = isinstance(service, Service) and service.spec.type == "ExternalName"
    if not by_name and endpoints_kind(g, hop.backend, hop.port, hop.protocol.transport) is not EndpointsKind.DNS:
        return None
    said = backend_rules(g, hop.gateway).external_names
    if settings(g).external_names if said is None else said:
        return None
    if by_name:
        message = f"{hop.backend} is of type ExternalName, which could point anywhere"
        return problems.unsupported_value(message, "", "use EndpointSlices", hop.backend)
    # Names in EndpointSlices lead as far as ExternalName does; kube-proxy ignores them, and no API server looks behind them.
    message = f"the EndpointSlices of {hop.backend} have addressType FQDN, which could point anywhere"
    return problems.unsupported_value(message, "", "use addresses", hop.backend)


def _service_port(g: Graph, key: Key, number: int, transport: str = "TCP") -> ServicePort | Problem:
    service = read(g, key, AnyService)
    if service is None:
        return problems.backend_not_found(key)
    if found := service.port(number, transport):
        return found
    ports = (port.port for port in service.spec.ports if port.protocol == transport)
    return problems.backend_port_not_found(key, transport, number, ports)


def _says_tls(hop: Hop, port: ServicePort) -> Problem | None:
    """Returns why a port that says that it speaks TLS is not sent plaintext."""
    if not hop.protocol.policed or not says_tls(port.app_protocol):
        return None
    message = f"{hop.backend} port {hop.port} has appProtocol {port.app_protocol} but no BackendTLSPolicy"
    remedy = f"create one {policy_to_write(hop.backend, port)}"
    if not hop.protocol.http:
        remedy += ", or let the client's own TLS through with a TLSRoute on a Passthrough listener"
    return problems.unsupported_protocol(message, remedy, hop.backend)


def _requested_tls(g: Graph, hop: Hop) -> HopTLS:
    """Returns what is asked for on a hop. Where the TLS is the client's own, or none is possible, no policy applies."""
    if hop.protocol.policed:
        found = g.shielded(_port_tls, hop.gateway, hop.backend, hop.port)
        return Refused(problems.internal_error()) if isinstance(found, Crash) else found
    return _plaintext(g, hop) if hop.protocol is Protocol.UDP else Plaintext()


def _port_tls(g: Graph, gateway: Key, backend: Key, number: int) -> HopTLS:
    """Returns the same for every protocol that policies apply to."""
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
    wanted = _permitted(g, gateway, policy)
    if isinstance(wanted, Refused):
        return wanted
    if gateway in ancestors(g, policy).without_room:
        message = f"{policy} has no room in its status for {gateway} (at most {MAX_ANCESTORS} entries)"
        return Refused(problems.invalid(message, policy, gateway), policy)
    shown = shown_certificate(g, gateway, wanted)
    if isinstance(shown, Problem):
        return Refused(shown, policy)
    return _showing(g, wanted, shown) if shown else wanted


def _showing(g: Graph, tls: BackendTLS, certificate: Key) -> BackendTLS:
    return msgspec.structs.replace(tls, client_certificate=certificate, client_digest=chain_digest(g, certificate))


def _permitted(g: Graph, gateway: Key, source: Key) -> BackendTLS | Refused:
    wanted = permitted_tls(g, gateway, source)
    if isinstance(wanted, Problem):
        return Refused(wanted.within(f"{source} is not permitted at {gateway}", source, gateway), source)
    if wanted is None:
        judged = judgement(g, source)
        problem = (judged.problem if judged else None) or problems.invalid("it is gone")
        return Refused(problem.within(f"{source} is invalid", source), source)
    return wanted


def _own_tls(g: Graph, gateway: Key, key: Key, port: int) -> HopTLS:
    """Returns the TLS that an XBackend asks for itself. The Gateway's own certificate is not shown to it: `ServerOnly` means
    that."""
    obj = read(g, key, XBackend)
    if obj is None:
        return Refused(xbackends.absent(g, key), key)
    if obj.spec.tls.mode == xbackends.PLAINTEXT and obj.spec.tls.validation is None:
        return _plaintext(g, Hop(gateway, key, port, Protocol.TCP))
    wanted, certificate = _permitted(g, gateway, key), xbackends.client_certificate(g, key)
    if isinstance(wanted, Refused):
        return wanted
    if isinstance(certificate, Problem):
        return Refused(certificate, key)
    alpn = (xbackends.ALPN[obj.spec.protocol],) if obj.spec.protocol in xbackends.ALPN else ()
    tls = msgspec.structs.replace(wanted, options=msgspec.structs.replace(wanted.options, alpn=alpn))
    return _showing(g, tls, certificate) if certificate else tls


def _plaintext(g: Graph, hop: Hop) -> HopTLS:
    problem = plaintext_problem(g, hop)
    return Refused(problem) if problem else Plaintext()


def _without_policy(g: Graph, hop: Hop, port: ServicePort) -> HopTLS:
    # A port that was renamed, or one mistyped letter in a sectionName, must not turn a verified hop into plaintext.
    if not says_plaintext(port.app_protocol) and (missing := strays(g, hop.backend)):
        policy = missing[0].policy
        message = f"{policy} misses its target: {stray_text(g, hop.backend, missing[0])}"
        return Refused(Problem(reasons.TARGET_NOT_FOUND, message, about=(policy, hop.backend)), policy)
    tls = _plaintext(g, hop)
    if isinstance(tls, Plaintext) and (unknown := policies_unknown(g, hop)):
        return Refused(problems.policies_unknown(unknown, hop.backend.namespace))
    return tls


def _needs_proof(g: Graph, hop: Hop) -> bool:
    """Returns whether a hop whose policies are unknown is closed. One over which no route leads has no cluster, so nobody
    proves anything of it, and a route that is not attached is not to blame for that."""
    unknown = policies_unknown(g, hop)
    return unknown is None or not unknown.provable or HOPS.size(g, *hop) > 0


def policies_unknown(g: Graph, hop: Hop) -> Unknown | None:
    """Returns why it is not known whether a policy names the port; None: absence is proven."""
    if ABSENCE_PROVEN.of(g, hop.backend, hop.port):
        return None
    # An unprovable one goes first, because it decides.
    return min(filter(None, (POLICIES_UNKNOWN.of(g, ""), POLICIES_UNKNOWN.of(g, hop.backend.namespace))), default=None)

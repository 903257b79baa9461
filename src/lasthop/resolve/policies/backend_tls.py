"""How a Gateway talks to a Service port: in plaintext, with TLS as a policy asks, or not at all.

    claims on the port ──> winner ──> its verdict ──> this Gateway's part ──> HopTLS
                                                      (its operator's rules, room in the status, client certificate)

Nothing here ever answers "plaintext" for a port that a policy claims, whatever state that policy is in.
"""

from __future__ import annotations

import msgspec

from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.backends import XBackend
from lasthop.api.core import Service, ServicePort
from lasthop.api.kinds import CONTROLLER_NAME
from lasthop.api.meta import Key
from lasthop.api.policies import BackendTLSPolicy
from lasthop.plan import reasons
from lasthop.plan.messages import CRASHED
from lasthop.plan.problem import Problem
from lasthop.plan.tls import BackendTLS, HopTLS, Plaintext, Refused
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.app_protocols import says_plaintext
from lasthop.resolve.gateways import age, client_certificate
from lasthop.resolve.meant import meant
from lasthop.resolve.policies.gate import permitted_tls, plaintext_refusal
from lasthop.resolve.policies.targets import WHOLE, is_service, port_winner, strays
from lasthop.resolve.policies.validation import verdict
from lasthop.resolve.reach import REACH
from lasthop.resolve.settings import HAD_POLICY, POLICIES_DOUBTFUL, POLICIES_UNKNOWN, SERVED_PLAINTEXT
from lasthop.resolve.xbackends import ALPN, PLAINTEXT, shown_certificate
from lasthop.store.graph import Graph, query
from lasthop.store.node import Crash
from lasthop.store.store import read

MAX_ANCESTORS = 16


@query
def hop_tls(g: Graph, gateway_key: Key, service_key: Key, port: int) -> HopTLS:
    if service_key.kind == XBACKEND:
        return _of_itself(g, gateway_key, service_key, port)
    service = read(g, service_key, Service)
    service_port = service.port(port) if service else None
    if service_port is None:
        return Refused(reasons.BACKEND_NOT_FOUND, f"Service {service_key.path} has no TCP port {port}")
    claim = port_winner(g, service_key, service_port.name)
    if claim is None:
        return _without_policy(g, Hop(gateway_key, service_key, port, Protocol.TCP), service_port)
    policy = claim.policy
    if claim.rejected:
        return Refused(reasons.INVALID, f"BackendTLSPolicy {policy.path} could not be read: {claim.rejected}", policy)
    wanted = _permitted(g, gateway_key, policy)
    if isinstance(wanted, Refused):
        return wanted
    if gateway_key in ancestors(g, policy).without_room:
        message = f"{policy} has no room in its status for {gateway_key} (at most {MAX_ANCESTORS} entries)"
        return Refused(reasons.INVALID, message, policy)
    own = client_certificate(g, gateway_key)
    if isinstance(own, Problem):
        return Refused(own.reason, f"the client certificate of Gateway {gateway_key.path}: {own.text}", policy)
    return msgspec.structs.replace(wanted, client_certificate=own)


def _permitted(g: Graph, gateway: Key, policy: Key) -> BackendTLS | Refused:
    wanted = permitted_tls(g, gateway, policy)
    if wanted is None:
        judged = verdict(g, policy)
        condition = judged.accepted if judged else None
        message = condition.message if condition else "it is gone"
        return Refused(condition.reason if condition else reasons.INVALID, f"{policy} is invalid: {message}", policy)
    if isinstance(wanted, Refused):
        return msgspec.structs.replace(wanted, message=f"{policy} is not permitted at {gateway}: {wanted.message}")
    return wanted


def _of_itself(g: Graph, gateway: Key, key: Key, port: int) -> HopTLS:
    """An XBackend says itself what TLS it wants. The Gateway's own certificate is not shown to it: `ServerOnly` means that."""
    obj = read(g, key, XBackend)
    if obj is None:
        return Refused(reasons.BACKEND_NOT_FOUND, f"{key} does not exist", key)
    if obj.spec.tls.mode == PLAINTEXT and obj.spec.tls.validation is None:
        return plaintext_refusal(g, Hop(gateway, key, port, Protocol.TCP)) or Plaintext()
    wanted, shown = _permitted(g, gateway, key), shown_certificate(g, key)
    if isinstance(wanted, Refused):
        return wanted
    if isinstance(shown, Refused):
        return shown
    alpn = (ALPN[obj.spec.protocol],) if obj.spec.protocol in ALPN else ()
    options = msgspec.structs.replace(wanted.options, alpn=alpn)
    return msgspec.structs.replace(wanted, client_certificate=shown, options=options)


def spoken(g: Graph, hop: Hop) -> HopTLS:
    """The same for one hop: where the TLS is the client's own, or there can be none, policies have no say."""
    if hop.protocol.policed:
        found = hop_tls.attempt(g, hop.gateway, hop.service, hop.port)
        return Refused(reasons.INTERNAL_ERROR, CRASHED) if isinstance(found, Crash) else found
    return (plaintext_refusal(g, hop) if hop.protocol is Protocol.UDP else None) or Plaintext()


def _without_policy(g: Graph, hop: Hop, port: ServicePort) -> HopTLS:
    # A port that was renamed, or one mistyped letter in a sectionName, must not turn a verified hop into plaintext.
    if not says_plaintext(port.app_protocol) and (missing := strays(g, hop.service)):
        policy, section = missing[0].policy, missing[0].section
        message = f"{policy} misses its port: {missing_port(g, hop.service, section)}"
        return Refused(reasons.TARGET_NOT_FOUND, message, policy)
    # Not knowing is not "none": while some input that could hold a policy for this port is unreadable, what was plaintext
    # before stays so, and nothing becomes it.
    if POLICIES_UNKNOWN.of(g) and not SERVED_PLAINTEXT.of(g, hop.service, hop.port):
        message = "withheld: a file that may hold a BackendTLSPolicy for this port cannot be read; correct it"
        return Refused(reasons.INVALID, message)
    last = HAD_POLICY.of(g, hop.service, hop.port) if POLICIES_DOUBTFUL.of(g) else None
    if last and not says_plaintext(port.app_protocol):
        message = f"withheld: {last} is gone, and may have moved into a file whose present text cannot be read; correct that"
        return Refused(reasons.INVALID, message)
    return plaintext_refusal(g, hop) or Plaintext()


@query
def missing_port(g: Graph, service_key: Key, section: str) -> str:
    """Says which port a Service does not have, which ones it has, and what that means for them."""
    service = read(g, service_key, Service)
    names = [p.name for p in service.spec.ports if p.name] if service else []
    guess = meant(section, names)
    has = f"it has {', '.join(names) or 'no named port'}" + (f"; did you mean {guess}?" if guess else "")
    return (
        f"{service_key} has no port named {section} ({has}), so its ports that no policy names are refused, unless their "
        "appProtocol is a plaintext protocol"
    )


class Ancestors(msgspec.Struct, frozen=True):
    """The Gateways that reach a policy's targets, as far as the policy's status has room for them."""

    gateways: tuple[Key, ...] = ()
    without_room: tuple[Key, ...] = ()


@query
def ancestors(g: Graph, policy: Key) -> Ancestors:
    obj = read(g, policy, BackendTLSPolicy)
    if obj is None:
        return Ancestors()
    reached: set[Key] = set()
    for target in obj.spec.target_refs:
        if is_service(target):
            service = Key("Service", policy.namespace, target.name)
            reached.update(gw for gw, _ in reached_by(g, service, target.section_name))
    foreign = sum(1 for entry in obj.status.ancestors if entry.controller_name != CONTROLLER_NAME)
    room = max(0, MAX_ANCESTORS - foreign)
    ordered = sorted(reached, key=lambda key: age(g, key))
    return Ancestors(tuple(ordered[:room]), tuple(ordered[room:]))


@query
def reached_by(g: Graph, service_key: Key, section: str) -> tuple[tuple[Key, int], ...]:
    """(Gateway, port) pairs from which routes lead to this section of a Service. A section that names no port, or one that
    cannot carry TLS, is spoken of wherever the Service is reached at all, because that is where its author will look; but
    for passthrough, where no policy means anything."""
    service = read(g, service_key, Service)
    named = [p for p in service.spec.ports if section in (WHOLE, p.name)] if service else []
    ports = {p.port for p in named if p.protocol == "TCP" and section != WHOLE}
    policed = not named or any(p.protocol == "TCP" for p in named)
    hops = REACH.of(g, service_key)
    reached = [h for h in hops if h.protocol.policed or (not policed and h.protocol is not Protocol.PASSTHROUGH)]
    return tuple(sorted({(hop.gateway, hop.port) for hop in reached if not ports or hop.port in ports}))

"""Backends: what a backendRef leads to, and where the endpoints of a Service port or an XBackend are."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from lasthop.api.addresses import is_ip
from lasthop.api.backends import GROUP as XBACKEND_GROUP
from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.backends import XBackend
from lasthop.api.core import EndpointSlice, Service, ServicePort
from lasthop.api.gateway import GROUP
from lasthop.api.meta import Key
from lasthop.api.routes import BackendObjectReference
from lasthop.plan import reasons
from lasthop.plan.problem import Problem, backend_not_found, backend_port_not_found, invalid_kind, ref_not_permitted
from lasthop.plan.tls import HopTLS, Plaintext, Refused
from lasthop.plan.upstream import Endpoint, Endpoints, EndpointsKind, Hop, Protocol, Upstream
from lasthop.resolve import xbackends
from lasthop.resolve.app_protocols import H2C, WSS
from lasthop.resolve.grants import permitted
from lasthop.resolve.policies.backend_tls import spoken
from lasthop.resolve.profiles import backend_rules
from lasthop.resolve.settings import settings
from lasthop.store.graph import Graph, query
from lasthop.store.sources import Entry, Index
from lasthop.store.stages import indexer
from lasthop.store.store import read

SERVICE_NAME = "kubernetes.io/service-name"
SLICES = Index[str, str, Key]("slice")
"""EndpointSlices by the namespace and name of their Service."""


DNS_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")


class Target(msgspec.Struct, frozen=True):
    """A permitted reference to a Service port or an XBackend, whether or not that exists."""

    service: Key
    """Or an XBackend."""
    port: int


def target(g: Graph, route: Key, ref: BackendObjectReference) -> Target | Problem:
    if (ref.group, ref.kind) == (XBACKEND_GROUP, XBACKEND):
        backend = Key(XBACKEND, ref.namespace or route.namespace, ref.name)
        if not permitted(g, GROUP, route, XBACKEND_GROUP, backend):
            return ref_not_permitted(route, backend)
        # Its own port, or none that there is: an XBackend has one, and a reference need not name it.
        own = xbackends.port(g, backend)
        return Target(backend, own if ref.port in (0, own) else ref.port)
    if (ref.group, ref.kind) != ("", "Service"):
        return invalid_kind(ref.kind, ref.group or None, "a Service or an XBackend")
    service = Key("Service", ref.namespace or route.namespace, ref.name)
    if not permitted(g, GROUP, route, "", service):
        return ref_not_permitted(route, service)
    return Target(service, ref.port)


def problem(g: Graph, gateway: Key, found: Target, protocol: Protocol) -> Problem | None:
    """Why what comes from this Gateway to a permitted backend is refused."""
    if found.service.kind == XBACKEND:
        trouble = xbackend_refusal(g, Hop(gateway, found.service, found.port, protocol))
        return Problem(trouble.reason, trouble.message) if trouble else None
    service = read(g, found.service, Service)
    if service is None:
        return backend_not_found(found.service)
    transport = protocol.transport
    port = service.port(found.port, transport)
    if port is None:
        ports = (p.port for p in service.spec.ports if p.protocol == transport)
        return backend_port_not_found(found.service, transport, found.port, ports)
    refusal = _refusal(g, Hop(gateway, found.service, found.port, protocol), service, port)
    return Problem(refusal.reason, refusal.message) if refusal else None


def _refusal(g: Graph, hop: Hop, service: Service, port: ServicePort) -> Refused | None:
    path = hop.service.path
    if service.spec.type == "ExternalName" and not _external_names(g, hop.gateway):
        message = f"Service {path} is of type ExternalName, which could point anywhere; use EndpointSlices"
        return Refused(reasons.UNSUPPORTED_VALUE, message)
    # Names in EndpointSlices lead as far as ExternalName does; kube-proxy ignores them, and no API server looks behind them.
    kind = endpoints_kind(g, hop.service, hop.port, hop.protocol.transport)
    if kind is EndpointsKind.DNS and not _external_names(g, hop.gateway):
        message = f"the EndpointSlices of Service {path} have addressType FQDN, which could point anywhere; use addresses"
        return Refused(reasons.UNSUPPORTED_VALUE, message)
    tls = spoken(g, hop)
    if isinstance(tls, Refused):
        reason = tls.reason if tls.reason == reasons.PLAINTEXT_NOT_PERMITTED else reasons.INVALID_BACKEND_TLS
        return Refused(reason, f"backend {path}:{hop.port}: {tls.message}")
    if port.app_protocol == WSS and hop.protocol.http and isinstance(tls, Plaintext):
        message = f"Service {path} port {hop.port} has appProtocol {WSS} but no BackendTLSPolicy; create one"
        return Refused(reasons.UNSUPPORTED_PROTOCOL, message)
    return None


def xbackend_refusal(g: Graph, hop: Hop) -> Refused | None:
    """Why an XBackend may not be reached on this hop."""
    key = hop.service
    own = xbackends.flaw(g, key)
    if own:
        absent = own.reason == reasons.BACKEND_NOT_FOUND
        return own if absent else Refused(own.reason, f"{key}: {own.message}", key)
    if hop.port != xbackends.port(g, key):
        message = f"{key} has port {xbackends.port(g, key)} and not {hop.port}; remove the port from the backendRef"
        return Refused(reasons.BACKEND_NOT_FOUND, message, key)
    if unfit := xbackends.misfit(g, key, hop.protocol):
        return unfit
    tls = spoken(g, hop)
    if isinstance(tls, Refused):
        reason = tls.reason if tls.reason == reasons.PLAINTEXT_NOT_PERMITTED else reasons.INVALID_BACKEND_TLS
        return Refused(reason, f"backend {key.path}:{hop.port}: {tls.message}", key)
    return xbackends.outside(g, hop.gateway, key, tls)


def outcome(g: Graph, hop: Hop) -> HopTLS:
    """How a backend is spoken to on this hop in the end: it may be refused for more than its TLS."""
    if hop.service.kind == XBACKEND:
        return xbackend_refusal(g, hop) or spoken(g, hop)
    tls, service = spoken(g, hop), read(g, hop.service, Service)
    port = service.port(hop.port, hop.protocol.transport) if service else None
    if isinstance(tls, Refused) or service is None or port is None:
        return tls
    return _refusal(g, hop, service, port) or tls


def _external_names(g: Graph, gateway: Key) -> bool:
    said = backend_rules(g, gateway).external_names
    return settings(g).external_names if said is None else said


@query
def upstream(g: Graph, gateway: Key, service_key: Key, port_number: int, protocol: Protocol) -> Upstream | None:
    """What stands behind a hop's name; None if nothing may."""
    hop = Hop(gateway, service_key, port_number, protocol)
    backend = read(g, hop.service, XBackend) if hop.service.kind == XBACKEND else None
    if backend is not None:
        kind = endpoints_kind(g, hop.service, hop.port, hop.protocol.transport)
        h2c = backend.spec.protocol in xbackends.H2C
        return None if xbackend_refusal(g, hop) else Upstream(h2c=h2c, endpoints=kind)
    service = read(g, hop.service, Service)
    port = service.port(hop.port, hop.protocol.transport) if service else None
    if service is None or port is None or _refusal(g, hop, service, port):
        return None
    kind = endpoints_kind(g, hop.service, hop.port, hop.protocol.transport)
    return Upstream(h2c=port.app_protocol == H2C, endpoints=kind)


@query
def endpoints_kind(g: Graph, service: Key, port: int, transport: str) -> EndpointsKind:
    return endpoints(g, service, port, transport).kind


@query
def endpoints(g: Graph, service_key: Key, port_number: int, transport: str) -> Endpoints:
    """Those that can be connected to: one that Envoy would refuse must not have the others refused along with it."""
    found = _endpoints(g, service_key, port_number, transport)
    return Endpoints(found.kind, tuple(each for each in found.endpoints if _sound(found.kind, each)))


def _sound(kind: EndpointsKind, endpoint: Endpoint) -> bool:
    if not 0 < endpoint.port < 65536:
        return False
    return DNS_NAME.fullmatch(endpoint.address) is not None if kind is EndpointsKind.DNS else is_ip(endpoint.address)


def _endpoints(g: Graph, service_key: Key, port_number: int, transport: str) -> Endpoints:
    if service_key.kind == XBACKEND:
        return xbackends.endpoints(g, service_key)
    service = read(g, service_key, Service)
    port = service.port(port_number, transport) if service else None
    if service is None or port is None:
        return Endpoints(EndpointsKind.ADDRESSES)
    if service.spec.type == "ExternalName":
        target_port = port.target_port if isinstance(port.target_port, int) and port.target_port else port.port
        return Endpoints(_kind_of(service.spec.external_name), (Endpoint(service.spec.external_name, target_port),))
    slices = [read(g, key, EndpointSlice) for key in SLICES.of(g, service_key.namespace, service_key.name)]
    return _from_slices([s for s in slices if s], port.name, transport)


def _kind_of(name: str) -> EndpointsKind:
    return EndpointsKind.ADDRESSES if is_ip(name) else EndpointsKind.DNS


def _from_slices(slices: list[EndpointSlice], port_name: str, transport: str) -> Endpoints:
    # Kubernetes keeps one addressType per slice. Where a Service has both, addresses are preferred: they need no resolver.
    found: dict[EndpointsKind, set[Endpoint]] = {kind: set() for kind in EndpointsKind}
    for slice in slices:
        kind = EndpointsKind.DNS if slice.address_type == "FQDN" else EndpointsKind.ADDRESSES
        for port in slice.ports:
            if port.name == port_name and port.protocol == transport and port.port:
                usable = (address for e in slice.endpoints if e.usable for address in e.addresses[:1])
                # Envoy refuses what is no address where one belongs; an API server does too, unless it is told not to.
                found[kind].update(Endpoint(address, port.port) for address in usable if _kind_of(address) is kind)
    kind = EndpointsKind.DNS if found[EndpointsKind.DNS] and not found[EndpointsKind.ADDRESSES] else EndpointsKind.ADDRESSES
    return Endpoints(kind, tuple(sorted(found[kind])))


@indexer("EndpointSlice")
def index_slices(g: Graph, key: Key) -> Iterator[Entry]:
    found = read(g, key, EndpointSlice)
    if name := found.metadata.labels.get(SERVICE_NAME) if found else "":
        yield SLICES.entry((key.namespace, name), key)

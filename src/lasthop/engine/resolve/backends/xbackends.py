"""XBackends: their endpoints, protocols and errors.

The owner of an external hostname can point it at any address in DNS, even the metadata service of a cloud or the API server.
The author of an XBackend in a cluster need not be the operator, so such a name is used only over verified TLS unless a
GatewayProfile allows it. It is resolved as an absolute name, without the search list of a Pod."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.backends import ENDPOINT_SELECTOR, EXTERNAL_HOSTNAME, GROUP, KIND, XBackend
from lasthop.base.api.core import EndpointSlice, Pod
from lasthop.base.api.kinds import POD
from lasthop.base.api.meta import Key, StringMap
from lasthop.base.api.routes import SessionPersistence
from lasthop.engine.plan import problem as problems
from lasthop.engine.plan import reasons
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import BackendTLS, HopTLS
from lasthop.engine.plan.upstream import EndpointAddress, Endpoints, EndpointsKind, Protocol
from lasthop.engine.resolve.backends.grants import permitted
from lasthop.engine.resolve.gateways.profiles import backend_rules
from lasthop.engine.resolve.settings import settings
from lasthop.engine.resolve.trust.certificates import key_pair
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import read

PLAINTEXT: Final = "None"
MUTUAL: Final = "ClientAndServer"
MODES: Final = (PLAINTEXT, "ServerOnly", MUTUAL)
ALPN: Final = {"HTTP2": "h2", "GRPC": "h2", "HTTP11": "http/1.1", "WSS": "http/1.1"}
"""The ALPN offer of each protocol; for other protocols, the route decides."""
H2C: Final = frozenset({"H2C", "GRPC"})
"""Protocols that mean HTTP/2 without TLS."""
PROTOCOLS: Final = frozenset({"", "TCP", "HTTP", "H2C", "MCP", *ALPN})
CLUSTER_DOMAIN: Final = ".cluster.local"


@query
def port(g: Graph, key: Key) -> int:
    """Returns the XBackend's port; 0 if the XBackend does not exist."""
    obj = read(g, key, XBackend)
    return obj.spec.port.number if obj else 0


def absent(g: Graph, key: Key) -> Problem:
    """Reports a missing XBackend. An API server with newer CRDs may have one with fields that Lasthop does not know; a finding
    on it then names the field."""
    missing = problems.backend_not_found(key)
    if not settings(g).pods:
        return missing
    return msgspec.structs.replace(missing, message=f"{missing.message}, or has a field that this version does not know")


@query
def spec_problem(g: Graph, key: Key) -> Problem | None:
    """Returns the problem of an XBackend for all routes, apart from its TLS."""
    obj = read(g, key, XBackend)
    if obj is None:
        return absent(g, key)
    spec = obj.spec
    if spec.type not in (EXTERNAL_HOSTNAME, ENDPOINT_SELECTOR):
        return problems.unsupported_value(f"type {spec.type} is not supported", remedy=f"use {EXTERNAL_HOSTNAME}")
    if not spec.port.number:
        return problems.unsupported_value("port has no number", remedy="set port.number")
    if spec.protocol not in PROTOCOLS:
        supported = ", ".join(sorted(filter(None, PROTOCOLS)))
        return problems.unsupported_protocol(f"protocol {spec.protocol} is not supported; use one of {supported}")
    if spec.tls.mode not in MODES or (spec.tls.mode == PLAINTEXT) == (spec.tls.validation is not None):
        message = f"tls.mode {spec.tls.mode} does not match the other fields of tls"
        return problems.invalid(message, remedy="correct it")
    if obj.selects:
        # The schema requires a label; without one, the selector would match the whole namespace.
        return None if spec.endpoint_selector.match_labels else problems.unsupported_value("endpointSelector has no labels")
    name = spec.external_hostname.hostname.lower().rstrip(".")
    if is_address(name):
        remedy = "use a name, or a Service with EndpointSlices"
        return problems.invalid(f"externalHostname {name} is an IP address", remedy=remedy)
    if name.endswith(CLUSTER_DOMAIN):
        return problems.invalid(f"externalHostname {name} is inside the cluster", remedy="use the Service as the backendRef")
    if not settings(g).external_names and name.rpartition(".")[2] == "localhost":
        return problems.invalid(f"externalHostname {name} is the proxy itself, which cannot be a backend")
    return None


def is_address(name: str) -> bool:
    """Returns whether a name is an address, also in spellings that resolvers accept: 127.1, 0x7f000001, 2130706433. DNS names
    never end in a number."""
    return is_ip(name) or re.fullmatch(r"\d+|0x[0-9a-f]*", name.rpartition(".")[2]) is not None


def problem(g: Graph, key: Key, number: int, protocol: Protocol) -> Problem | None:
    """Returns why an XBackend cannot be used on a hop, apart from its TLS."""
    if fault := spec_problem(g, key):
        return fault if fault.reason == reasons.BACKEND_NOT_FOUND else fault.within(str(key), key)
    if number != port(g, key):
        message = f"{key} has port {port(g, key)}, not {number}"
        return Problem(reasons.BACKEND_NOT_FOUND, message, remedy="remove the port from the backendRef", about=(key,))
    return protocol_problem(g, key, protocol)


def protocol_problem(g: Graph, key: Key, route_protocol: Protocol) -> Problem | None:
    obj = read(g, key, XBackend)
    protocol = obj.spec.protocol if obj else ""
    if route_protocol is Protocol.UDP:
        return problems.unsupported_protocol(f"{key} cannot be used over UDP", "use a Service", key)
    if route_protocol.http and protocol == "TCP":
        return problems.unsupported_protocol(f"{key} has protocol TCP, but the route needs HTTP", "use a TCPRoute", key)
    if route_protocol is Protocol.H2 and protocol in ALPN and ALPN[protocol] != "h2":
        return problems.unsupported_protocol(f"{key} has protocol {protocol}, but gRPC needs HTTP/2", "use GRPC or HTTP2", key)
    return None


def external_hostname_problem(g: Graph, gateway: Key, key: Key, tls: HopTLS) -> Problem | None:
    """Returns why an external hostname is not permitted, by a GatewayProfile or without one."""
    obj = read(g, key, XBackend)
    if obj is None or obj.spec.type != EXTERNAL_HOSTNAME:
        return None
    rules, name = backend_rules(g, gateway), obj.spec.external_hostname.hostname
    if rules.external_hostnames or (rules.external_hostnames is None and settings(g).external_names):
        return None
    # A waiver of Expiry still verifies the identity of the server, other waivers do not.
    if rules.external_hostnames is None and isinstance(tls, BackendTLS) and tls.strength >= Strength.WAIVED_EXPIRY:
        return None
    if rules.external_hostnames is None:
        why = "in a cluster, an external hostname requires TLS that the gateway verifies"
        message = f"{name} could resolve to any address: {why}"
        how = "remove the waiver" if isinstance(tls, BackendTLS) else "set tls"
        remedy = f"{how}, or set externalHostnames: Allow in a GatewayProfile"
    else:
        by = f"({rules.by})" if rules.profiles else "(its GatewayProfile cannot be read)"
        message, remedy = f"{name} is external, but external hostnames are denied here {by}", "ask the operator"
    return Problem(reasons.EXTERNAL_HOSTNAME_NOT_PERMITTED, message, remedy=remedy)


@query
def client_certificate(g: Graph, key: Key) -> Key | Problem | None:
    """Returns the Secret with the client certificate (`tls.clientCertificateRef`), or why it cannot be used; None without
    one."""
    obj = read(g, key, XBackend)
    if obj is None or obj.spec.tls.mode != MUTUAL:
        return None
    ref, field = obj.spec.tls.client_certificate_ref, "tls.clientCertificateRef"
    if ref is None:
        return Problem(reasons.INVALID_CLIENT_CERTIFICATE_REF, f"{field} is missing", remedy="refer to a Secret")
    if (ref.group, ref.kind) != ("", "Secret"):
        return problems.invalid_kind(ref.kind, ref.group, "a Secret", reasons.INVALID_CLIENT_CERTIFICATE_REF).within(field)
    secret = Key("Secret", ref.namespace or key.namespace, ref.name)
    if not permitted(g, GROUP, key, "", secret):
        return problems.ref_not_permitted(key, secret).within(field)
    pair = key_pair(g, secret)
    return pair.within(field, reason=reasons.INVALID_CLIENT_CERTIFICATE_REF) if isinstance(pair, Problem) else secret


def endpoints(g: Graph, key: Key) -> Endpoints:
    obj = read(g, key, XBackend)
    if obj is None:
        return Endpoints(EndpointsKind.ADDRESSES)
    number = obj.spec.port.number
    if obj.spec.type == EXTERNAL_HOSTNAME:
        name = obj.spec.external_hostname.hostname
        return Endpoints(
            EndpointsKind.DNS, (EndpointAddress(name if settings(g).external_names else f"{name.rstrip('.')}.", number),)
        )
    return Endpoints(
        EndpointsKind.ADDRESSES, tuple(sorted({EndpointAddress(address, number) for address in _selected(g, key, obj)}))
    )


def _selected(g: Graph, key: Key, obj: XBackend) -> Iterator[str]:
    """Yields the addresses of the selected Pods. A folder has no Pods: there the selector matches EndpointSlices, whose
    addresses are used with the XBackend's port."""
    labels = obj.spec.endpoint_selector.match_labels
    first = min(labels, key=lambda label: LABELLED.size(g, key.namespace, *label), default=None)
    for labelled in LABELLED.of(g, key.namespace, *first) if first else ():
        if settings(g).pods:
            yield from _pod_address(g, labelled, labels)
            continue
        slice = read(g, labelled, EndpointSlice)
        if slice and slice.address_type != "FQDN" and set(labels) <= set(slice.metadata.labels):
            yield from (address for e in slice.endpoints if e.usable for address in e.addresses[:1])


def _pod_address(g: Graph, key: Key, labels: StringMap) -> tuple[str, ...]:
    pod = read(g, key, Pod)
    return (pod.address,) if pod and pod.address and set(labels) <= set(pod.metadata.labels) else ()


LABELLED = Index[str, str, str, Key]("labelled")
"""Pods by namespace, label and value; in a folder, EndpointSlices."""


@indexer(POD.kind)
def index_pods(g: Graph, key: Key) -> Iterator[Entry]:
    pod = read(g, key, Pod)
    for name, value in pod.metadata.labels if pod else ():
        yield LABELLED.entry((key.namespace, name, value), key)


def session(g: Graph, key: Key) -> SessionPersistence | None:
    obj = read(g, key, XBackend) if key.kind == KIND else None
    return obj.spec.session_persistence if obj else None

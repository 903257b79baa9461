"""XBackends: their endpoints, their protocol, and what in them cannot be served.

An external hostname leads wherever its owner in DNS says, the metadata service of a cloud or the API server included. In a
cluster, where the author of an XBackend need not be the operator, such a name is therefore used only over verified TLS,
unless a GatewayProfile says otherwise. It is looked up as it is written, never completed by the search list of a Pod.
"""

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
"""What is offered over TLS for a protocol; all others leave it to the route."""
H2C: Final = frozenset({"H2C", "GRPC"})
"""HTTP/2 where there is no TLS."""
PROTOCOLS: Final = frozenset({"", "TCP", "HTTP", "H2C", "MCP", *ALPN})
CLUSTER_DOMAIN: Final = ".cluster.local"


@query
def port(g: Graph, key: Key) -> int:
    """Returns the XBackend's port; 0 while there is no such XBackend."""
    obj = read(g, key, XBackend)
    return obj.spec.port.number if obj else 0


def absent(g: Graph, key: Key) -> Problem:
    """Returns why there is no XBackend. An API server of a newer bundle may hold one all the same; then a finding on it names
    the field that is not known here."""
    missing = problems.backend_not_found(key)
    if not settings(g).pods:
        return missing
    return msgspec.structs.replace(missing, message=f"{missing.message}, or has a field that this version does not know")


@query
def spec_problem(g: Graph, key: Key) -> Problem | None:
    """Returns what is wrong with an XBackend for every route, its TLS aside."""
    obj = read(g, key, XBackend)
    if obj is None:
        return absent(g, key)
    spec = obj.spec
    if spec.type not in (EXTERNAL_HOSTNAME, ENDPOINT_SELECTOR):
        return problems.unsupported_value(f"type {spec.type} is not supported", remedy=f"use {EXTERNAL_HOSTNAME}")
    if not spec.port.number:
        return problems.unsupported_value("port has no number", remedy="give it one")
    if spec.protocol not in PROTOCOLS:
        known = ", ".join(sorted(filter(None, PROTOCOLS)))
        return problems.unsupported_protocol(f"protocol {spec.protocol} is not supported; known are {known}")
    if spec.tls.mode not in MODES or (spec.tls.mode == PLAINTEXT) == (spec.tls.validation is not None):
        message = f"tls.mode {spec.tls.mode} is not understood together with the rest of tls"
        return problems.invalid(message, remedy="correct it")
    if obj.selects:
        # The schema asks for a label; without one, everything in the namespace would be meant.
        return None if spec.endpoint_selector.match_labels else problems.unsupported_value("it selects by no label")
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
    """Recognizes also the spellings that resolvers take for one: 127.1, 0x7f000001, 2130706433. No name ends in a number."""
    return is_ip(name) or re.fullmatch(r"\d+|0x[0-9a-f]*", name.rpartition(".")[2]) is not None


def problem(g: Graph, key: Key, number: int, protocol: Protocol) -> Problem | None:
    """Returns why an XBackend cannot be used on a hop, its TLS aside."""
    if own := spec_problem(g, key):
        return own if own.reason == reasons.BACKEND_NOT_FOUND else own.within(str(key), key)
    if number != port(g, key):
        message = f"{key} has port {port(g, key)} and not {number}"
        return Problem(reasons.BACKEND_NOT_FOUND, message, remedy="remove the port from the backendRef", about=(key,))
    return protocol_problem(g, key, protocol)


def protocol_problem(g: Graph, key: Key, asked: Protocol) -> Problem | None:
    obj = read(g, key, XBackend)
    protocol = obj.spec.protocol if obj else ""
    if asked is Protocol.UDP:
        return problems.unsupported_protocol(f"{key} cannot be used over UDP", "use a Service", key)
    if asked.http and protocol == "TCP":
        return problems.unsupported_protocol(f"{key} has protocol TCP, and the route speaks HTTP", "use a TCPRoute", key)
    if asked is Protocol.H2 and protocol in ALPN and ALPN[protocol] != "h2":
        return problems.unsupported_protocol(f"{key} has protocol {protocol}, and gRPC needs HTTP/2", "use GRPC or HTTP2", key)
    return None


def external_hostname_problem(g: Graph, gateway: Key, key: Key, tls: HopTLS) -> Problem | None:
    """Returns why the GatewayProfile, or its absence, does not permit an external hostname."""
    obj = read(g, key, XBackend)
    if obj is None or obj.spec.type != EXTERNAL_HOSTNAME:
        return None
    rules, name = backend_rules(g, gateway), obj.spec.external_hostname.hostname
    if rules.external_hostnames or (rules.external_hostnames is None and settings(g).external_names):
        return None
    # Of what a waiver may leave out only the dates say nothing about who answers.
    if rules.external_hostnames is None and isinstance(tls, BackendTLS) and tls.strength >= Strength.WAIVED_EXPIRY:
        return None
    if rules.external_hostnames is None:
        why = "in a cluster an external hostname is used only over TLS that the gateway verifies"
        message = f"{name} could lead anywhere: {why}"
        how = "remove the waiver" if isinstance(tls, BackendTLS) else "give it tls"
        remedy = f"{how}, or let a GatewayProfile say externalHostnames: Allow"
    else:
        who = f"({rules.by})" if rules.profiles else "(its GatewayProfile cannot be read)"
        message, remedy = f"{name} is external, and external hostnames are denied here {who}", "ask the operator"
    return Problem(reasons.EXTERNAL_HOSTNAME_NOT_PERMITTED, message, remedy=remedy)


@query
def client_certificate(g: Graph, key: Key) -> Key | Problem | None:
    """Returns the Secret that is shown to the backend (`tls.clientCertificateRef`), or why it cannot be; None: none is."""
    obj = read(g, key, XBackend)
    if obj is None or obj.spec.tls.mode != MUTUAL:
        return None
    ref, field = obj.spec.tls.client_certificate_ref, "tls.clientCertificateRef"
    if ref is None:
        return Problem(reasons.INVALID_CLIENT_CERTIFICATE_REF, "it has none", remedy="use a Secret")
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
    """Yields the addresses of Pods. A folder has none: there the selector is for the EndpointSlices themselves, of which the
    addresses count; the port is the XBackend's."""
    labels = obj.spec.endpoint_selector.match_labels
    first = min(labels, key=lambda each: LABELLED.size(g, key.namespace, *each), default=None)
    for each in LABELLED.of(g, key.namespace, *first) if first else ():
        if settings(g).pods:
            yield from _pod_address(g, each, labels)
            continue
        found = read(g, each, EndpointSlice)
        if found and found.address_type != "FQDN" and set(labels) <= set(found.metadata.labels):
            yield from (address for e in found.endpoints if e.usable for address in e.addresses[:1])


def _pod_address(g: Graph, key: Key, labels: StringMap) -> tuple[str, ...]:
    pod = read(g, key, Pod)
    return (pod.address,) if pod and pod.address and set(labels) <= set(pod.metadata.labels) else ()


LABELLED = Index[str, str, str, Key]("labelled")
"""Pods by namespace, label and value; where there are none, EndpointSlices."""


@indexer(POD.kind)
def index_pods(g: Graph, key: Key) -> Iterator[Entry]:
    pod = read(g, key, Pod)
    for name, value in pod.metadata.labels if pod else ():
        yield LABELLED.entry((key.namespace, name, value), key)


def session(g: Graph, key: Key) -> SessionPersistence | None:
    obj = read(g, key, XBackend) if key.kind == KIND else None
    return obj.spec.session_persistence if obj else None

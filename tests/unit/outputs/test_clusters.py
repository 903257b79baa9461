"""Clusters joined from encoded parts are the messages that were meant, field by field."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.type.matcher.v3 import regex_pb2, string_pb2

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy import clusters
from lasthop.engine.outputs.envoy.clusters import ENDPOINTS_TIMEOUT, HEAVY, METADATA, build, encoded_assignment
from lasthop.engine.outputs.envoy.encode import over_ads, packed, socket_address
from lasthop.engine.outputs.envoy.resource import cluster_of
from lasthop.engine.outputs.envoy.tls import SESSION_KEYS, TLS, VERSIONS, client_secret_name, dns_regex, secret_config
from lasthop.engine.plan.cluster_metadata import identity, metadata
from lasthop.engine.plan.connecting import ConnectRules, RetryBudget
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, BackendTLS, Pins, Plaintext, San, SanType, SystemStore, Waiver
from lasthop.engine.plan.tls_options import TLSOptions
from lasthop.engine.plan.upstream import Endpoint, Endpoints, EndpointsKind, Hop, Protocol

GATEWAY, SERVICE = Key("Gateway", "a", "gw"), Key("Service", "a", "s")
POLICY = Key("BackendTLSPolicy", "a", "p")
NAMES = (San(SanType.DNS, "api.example"), San(SanType.DNS, "*.api.example"), San(SanType.URI, "spiffe://a/b"))
DNS = Endpoints(EndpointsKind.DNS, (Endpoint("db.example", 5432),))
RULES, BUDGET = ConnectRules(), RetryBudget()
STRICT = BackendTLS(POLICY, "api.example", Anchors(b"pem"), NAMES)
PINS = Pins(frozenset({b"k" * 32, b"j" * 32}), frozenset({b"c" * 32}))


def waiver(strength: Strength) -> Waiver:
    return Waiver(Key("TLSWaiver", "a", "w"), strength, "why", expires=9.5)


def tls(**fields: object) -> BackendTLS:
    return BackendTLS(**({"source": POLICY, "sni": "api.example", "trust": Anchors(b"pem"), "names": NAMES} | fields))  # type: ignore[arg-type]


CONNECTIONS: dict[str, BackendTLS | Plaintext] = {
    "plaintext": Plaintext(),
    "strict": STRICT,
    "no name to check": tls(names=()),
    "system store": tls(trust=SystemStore("/etc/ssl/certs/ca.pem", "digest")),
    "heavy bundle": tls(trust=Anchors(b"x" * (HEAVY + 1))),
    "revocation lists": tls(trust=Anchors(b"pem", crl=b"crl", crl_of_leaf=True)),
    "pins and a CA": tls(pins=PINS),
    "pins alone": tls(trust=None, names=(), pins=PINS),
    "expiry waived": tls(waiver=waiver(Strength.WAIVED_EXPIRY)),
    "names waived": tls(names=(), waiver=waiver(Strength.WAIVED_NAMES)),
    "all waived": tls(trust=None, names=(), waiver=waiver(Strength.WAIVED_ALL)),
    "client certificate": tls(client_certificate=Key("Secret", "a", "c"), client_digest="d1"),
    "of an XBackend": tls(source=Key("XBackend", "a", "x")),
    "options": tls(options=TLSOptions("1.3", "1.3", ("AES128-SHA",), ("P-256",), ("h2",), session_reuse="false")),
}


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("connection", CONNECTIONS)
def test_a_cluster_has_the_fields_that_were_meant(connection: str, protocol: Protocol) -> None:
    found, hop = CONNECTIONS[connection], Hop(GATEWAY, SERVICE, 443, protocol)
    for h2c in (False, True):
        for names in (None, DNS):
            entry = build(hop, h2c, found, names, RULES, BUDGET)
            message = cluster_pb2.Cluster.FromString(entry.resource.body)
            assert unpacked(message) == unpacked(meant(hop, h2c, found, names, entry.endpoints_name))
            assert cluster_of(entry.endpoints_name) == ("" if names else hop.name)
            assert entry.resource.parts == {hop.name: entry.resource.version} and entry.resource.owners == {hop.name: SERVICE}


def unpacked(message: cluster_pb2.Cluster) -> tuple[cluster_pb2.Cluster, tls_pb2.UpstreamTlsContext]:
    """The packed TLS by itself, because packed bytes are compared as they are written."""
    context = tls_pb2.UpstreamTlsContext.FromString(message.transport_socket.typed_config.value)
    if message.HasField("transport_socket"):
        message.transport_socket.typed_config.value = b""
    return message, context


def test_whatever_differs_between_two_clusters_of_a_hop_is_in_their_versions() -> None:
    hop = Hop(GATEWAY, SERVICE, 443, Protocol.AUTO)
    entries = [
        build(hop, h2c, found, n, RULES, BUDGET)
        for found in CONNECTIONS.values()
        for h2c in (False, True)
        for n in (None, DNS)
    ]
    bodies, versions = {entry.resource.body for entry in entries}, {entry.resource.version for entry in entries}
    assert len(bodies) == len(versions)


def test_whatever_is_checked_in_another_way_has_another_identity() -> None:
    assert len({identity(found) for found in CONNECTIONS.values()}) == len(CONNECTIONS)
    changed = (
        tls(sni="other"),
        tls(trust=Anchors(b"other")),
        tls(client_certificate=Key("Secret", "a", "c"), client_digest="d2"),
    )
    assert len({identity(found) for found in (*CONNECTIONS.values(), *changed)}) == len(CONNECTIONS) + len(changed)


def test_the_identity_is_the_same_in_every_process_and_whoever_gave_the_waiver() -> None:
    # A set has another order in each.
    code = (
        "from tests.unit.outputs.test_clusters import *; "
        "print(identity(tls(pins=Pins(frozenset(bytes([n]) * 32 for n in range(20))))))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    given = msgspec.structs.replace(waiver(Strength.WAIVED_EXPIRY), reason="another", expires=1.0)
    assert identity(tls(waiver=given)) == identity(CONNECTIONS["expiry waived"])


def test_endpoints_have_the_fields_that_were_meant() -> None:
    for found in (Endpoints(EndpointsKind.ADDRESSES), DNS, Endpoints(EndpointsKind.ADDRESSES, (*many(3), Endpoint("::1", 1)))):
        assert endpoint_pb2.ClusterLoadAssignment.FromString(encoded_assignment(found)) == meant_endpoints("", found)


def many(count: int) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(f"10.0.0.{number}", 8443 + number) for number in range(count))


# --- the same as messages --------------------------------------------------------------------------------------------


def meant(hop: Hop, h2c: bool, tls: BackendTLS | Plaintext, names: Endpoints | None, endpoints_name: str) -> Any:
    upgrades = clusters.h2_but_upgrades(hop, h2c, tls)
    alike = clusters._alike(hop.protocol, clusters.offered(hop, h2c, tls), upgrades, names is not None, RULES, BUDGET)
    message: Any = cluster_pb2.Cluster.FromString(alike)
    message.name = hop.name
    message.alt_stat_name = f"{hop.name}@{identity(tls)}"
    if isinstance(tls, BackendTLS):
        alpn = ("h2",) if upgrades else () if hop.protocol.http else tls.options.alpn
        message.transport_socket.CopyFrom(base_pb2.TransportSocket(name=TLS, typed_config=packed(context(tls, alpn))))
        for name, text in metadata(tls).items():
            message.metadata.filter_metadata[METADATA].fields[name].string_value = text
    if names is not None:
        message.type = cluster_pb2.Cluster.STRICT_DNS
        message.load_assignment.CopyFrom(meant_endpoints(hop.name, names))
    else:
        message.type = cluster_pb2.Cluster.EDS
        message.eds_cluster_config.service_name = endpoints_name
        message.eds_cluster_config.eds_config.CopyFrom(over_ads(ENDPOINTS_TIMEOUT))
    return message


def context(tls: BackendTLS, alpn: tuple[str, ...]) -> tls_pb2.UpstreamTlsContext:
    shown = client_secret_name(tls.client_certificate, tls.client_digest) if tls.client_certificate else ""
    message = tls_pb2.UpstreamTlsContext(sni=tls.sni)
    message.max_session_keys.value = SESSION_KEYS if tls.options.session_reuse == "true" else 0
    message.common_tls_context.alpn_protocols.extend(alpn)
    message.common_tls_context.tls_params.CopyFrom(
        common_pb2.TlsParameters(
            tls_minimum_protocol_version=VERSIONS[tls.options.lowest],
            tls_maximum_protocol_version=VERSIONS[tls.options.max_version],
            cipher_suites=tls.options.cipher_suites,
            ecdh_curves=tls.options.curves,
        )
    )
    if shown:
        message.common_tls_context.tls_certificate_sds_secret_configs.append(secret_config(shown))
    if tls.strength is not Strength.WAIVED_ALL:
        message.common_tls_context.validation_context.CopyFrom(validation(tls))
    return message


def validation(tls: BackendTLS) -> common_pb2.CertificateValidationContext:
    anchors = tls.trust if isinstance(tls.trust, Anchors) else Anchors(b"")
    message = common_pb2.CertificateValidationContext(
        match_typed_subject_alt_names=[matcher(name) for name in tls.names],
        verify_certificate_spki=sorted(base64.b64encode(pin).decode() for pin in tls.pins.keys),
        verify_certificate_hash=sorted(pin.hex() for pin in tls.pins.certificates),
        crl=base_pb2.DataSource(inline_bytes=anchors.crl) if anchors.crl else None,
        only_verify_leaf_cert_crl=anchors.crl_of_leaf,
        allow_expired_certificate=tls.strength is Strength.WAIVED_EXPIRY,
    )
    if isinstance(tls.trust, Anchors):
        message.trusted_ca.inline_bytes = tls.trust.pem
    elif tls.trust:
        message.trusted_ca.filename = tls.trust.path
    return message


def matcher(name: San) -> common_pb2.SubjectAltNameMatcher:
    if name.type is SanType.URI:
        exact = string_pb2.StringMatcher(exact=name.value)
        return common_pb2.SubjectAltNameMatcher(san_type=common_pb2.SubjectAltNameMatcher.URI, matcher=exact)
    regex = string_pb2.StringMatcher(safe_regex=regex_pb2.RegexMatcher(regex=dns_regex(name.value)))
    return common_pb2.SubjectAltNameMatcher(san_type=common_pb2.SubjectAltNameMatcher.DNS, matcher=regex)


def meant_endpoints(name: str, found: Endpoints) -> endpoint_pb2.ClusterLoadAssignment:
    members = [
        endpoint_components_pb2.LbEndpoint(
            endpoint=endpoint_components_pb2.Endpoint(address=socket_address(e.address, e.port))
        )
        for e in found.endpoints
    ]
    localities = [endpoint_components_pb2.LocalityLbEndpoints(lb_endpoints=members)] if members else []
    return endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=localities)

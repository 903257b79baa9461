"""Clusters have exactly the required checks; endpoints encoded by hand equal the intended messages."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from google.protobuf.json_format import MessageToDict

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.clusters import ENDPOINTS_TIMEOUT, HEAVY, METADATA, build, encoded_assignment
from lasthop.engine.outputs.envoy.encode import over_ads, socket_address
from lasthop.engine.outputs.envoy.resource import cluster_of
from lasthop.engine.outputs.envoy.tls import SESSION_KEYS, TLS
from lasthop.engine.plan.cluster_metadata import identity, metadata
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, BackendTLS, Pins, Plaintext, San, SanType, SystemStore, Waiver
from lasthop.engine.plan.tls_options import TLSOptions
from lasthop.engine.plan.upstream import ConnectRules, EndpointAddress, Endpoints, EndpointsKind, Hop, Protocol, RetryBudget

GATEWAY, SERVICE = Key("Gateway", "a", "gw"), Key("Service", "a", "s")
POLICY = Key("BackendTLSPolicy", "a", "p")
NAMES = (San(SanType.DNS, "api.example"), San(SanType.DNS, "*.api.example"), San(SanType.URI, "spiffe://a/b"))
DNS = Endpoints(EndpointsKind.DNS, (EndpointAddress("db.example", 5432),))
RULES, BUDGET = ConnectRules(), RetryBudget()
STRICT = BackendTLS(POLICY, "api.example", Anchors(b"pem"), NAMES)
PINS = Pins(frozenset({b"k" * 32, b"j" * 32}), frozenset({b"c" * 32}))


def waiver(strength: Strength) -> Waiver:
    return Waiver(Key("TLSWaiver", "a", "w"), strength, "why", expires=9.5)


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


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


CA = {"trustedCa": {"inlineBytes": b64(b"pem")}}
SANS = {
    "matchTypedSubjectAltNames": [
        {"sanType": "DNS", "matcher": {"safeRegex": {"regex": r"(?i)(api|\*)\.example"}}},
        {"sanType": "DNS", "matcher": {"safeRegex": {"regex": r"(?i)(\*|[a-z0-9_-]+)\.api\.example"}}},
        {"sanType": "URI", "matcher": {"exact": "spiffe://a/b"}},
    ]
}
PINNED = {
    "verifyCertificateSpki": [b64(b"k" * 32), b64(b"j" * 32)],
    "verifyCertificateHash": [(b"c" * 32).hex()],
}
CHECKS: dict[str, dict[str, Any] | None] = {
    "plaintext": None,
    "strict": CA | SANS,
    "no name to check": CA,
    "system store": {"trustedCa": {"filename": "/etc/ssl/certs/ca.pem"}} | SANS,
    "heavy bundle": {"trustedCa": {"inlineBytes": b64(b"x" * (HEAVY + 1))}} | SANS,
    "revocation lists": CA | SANS | {"crl": {"inlineBytes": b64(b"crl")}, "onlyVerifyLeafCertCrl": True},
    "pins and a CA": CA | SANS | PINNED,
    "pins alone": PINNED,
    "expiry waived": CA | SANS | {"allowExpiredCertificate": True},
    "names waived": CA,
    "all waived": None,
    "client certificate": CA | SANS,
    "of an XBackend": CA | SANS,
    "options": CA | SANS,
}
"""The whole validation context of each; None: nothing is checked."""


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("connection", CONNECTIONS)
def test_a_cluster_has_all_required_checks(connection: str, protocol: Protocol) -> None:
    connected, hop = CONNECTIONS[connection], Hop(GATEWAY, SERVICE, 443, protocol)
    for h2c in (False, True):
        for names in (None, DNS):
            entry = build(hop, h2c, connected, names, RULES, BUDGET)
            message = cluster_pb2.Cluster.FromString(entry.resource.body)
            assert (message.name, message.alt_stat_name) == (hop.name, f"{hop.name}@{identity(connected)}")
            assert message.HasField("transport_socket") == isinstance(connected, BackendTLS)
            if isinstance(connected, BackendTLS):
                assert_tls(message, connection, connected, alpn=alpn(connected, protocol, h2c))
            if names:
                assert message.type == cluster_pb2.Cluster.STRICT_DNS and not message.HasField("eds_cluster_config")
                assert message.load_assignment == meant_endpoints(hop.name, names)
            else:
                assert message.type == cluster_pb2.Cluster.EDS and not message.HasField("load_assignment")
                assert message.eds_cluster_config.service_name == entry.endpoints_name
                assert message.eds_cluster_config.eds_config == over_ads(ENDPOINTS_TIMEOUT)
            assert cluster_of(entry.endpoints_name) == ("" if names else hop.name)
            assert entry.resource.parts == {hop.name: entry.resource.version} and entry.resource.owners == {hop.name: SERVICE}


def alpn(upstream: BackendTLS, protocol: Protocol, h2c: bool) -> list[str]:
    """Envoy works it out for HTTP, but where h2 alone is offered to a backend that upgrades reach by http/1.1."""
    if not protocol.http:
        return list(upstream.options.alpn)
    return ["h2"] if upstream.options.alpn == ("h2",) and protocol is Protocol.AUTO and not h2c else []


def assert_tls(message: cluster_pb2.Cluster, connection: str, upstream: BackendTLS, alpn: list[str]) -> None:
    assert message.transport_socket.name == TLS
    context = tls_pb2.UpstreamTlsContext()
    assert message.transport_socket.typed_config.Unpack(context)
    common = context.common_tls_context
    checked = MessageToDict(common.validation_context) if common.HasField("validation_context") else None
    assert checked == CHECKS[connection]
    assert context.sni == "api.example"
    assert context.max_session_keys.value == (0 if connection == "options" else SESSION_KEYS)
    shown = [secret.name for secret in common.tls_certificate_sds_secret_configs]
    assert shown == (["a/c@d1"] if connection == "client certificate" else [])
    assert list(common.alpn_protocols) == alpn
    versions = {"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_3"}
    if connection == "options":
        versions["tlsMinimumProtocolVersion"] = "TLSv1_3"
        assert (list(common.tls_params.cipher_suites), list(common.tls_params.ecdh_curves)) == (["AES128-SHA"], ["P-256"])
    assert versions.items() <= MessageToDict(common.tls_params).items()
    assert MessageToDict(message.metadata.filter_metadata[METADATA]) == metadata(upstream)


@pytest.mark.parametrize("allowed", [None, *(strength for strength in Strength if strength is not Strength.WAIVED_ALL)])
def test_a_cluster_that_would_check_nothing_is_not_built(allowed: Strength | None) -> None:
    unchecked = tls(trust=None, names=(), waiver=None if allowed is None else waiver(allowed))
    with pytest.raises(ValueError, match="would check nothing"):
        build(Hop(GATEWAY, SERVICE, 443, Protocol.AUTO), False, unchecked, None, RULES, BUDGET)


def test_all_differences_between_clusters_of_a_hop_are_in_their_versions() -> None:
    hop = Hop(GATEWAY, SERVICE, 443, Protocol.AUTO)
    entries = [
        build(hop, h2c, connected, n, RULES, BUDGET)
        for connected in CONNECTIONS.values()
        for h2c in (False, True)
        for n in (None, DNS)
    ]
    bodies, versions = {entry.resource.body for entry in entries}, {entry.resource.version for entry in entries}
    assert len(bodies) == len(versions)


def test_every_other_check_has_another_identity() -> None:
    assert len({identity(connected) for connected in CONNECTIONS.values()}) == len(CONNECTIONS)
    changed = (
        tls(sni="other"),
        tls(trust=Anchors(b"other")),
        tls(client_certificate=Key("Secret", "a", "c"), client_digest="d2"),
    )
    assert len({identity(connected) for connected in (*CONNECTIONS.values(), *changed)}) == len(CONNECTIONS) + len(changed)


def test_the_identity_is_equal_in_every_process_and_for_every_owner_of_the_waiver() -> None:
    # A set has another order in each.
    code = (
        "from tests.unit.outputs.test_clusters import *; "
        "print(identity(tls(pins=Pins(frozenset(bytes([n]) * 32 for n in range(20))))))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    given = msgspec.structs.replace(waiver(Strength.WAIVED_EXPIRY), reason="another", expires=1.0)
    assert identity(tls(waiver=given)) == identity(CONNECTIONS["expiry waived"])


def test_endpoints_have_the_fields_that_were_meant() -> None:
    for resolved in (
        Endpoints(EndpointsKind.ADDRESSES),
        DNS,
        Endpoints(EndpointsKind.ADDRESSES, (*many(3), EndpointAddress("::1", 1))),
    ):
        assert endpoint_pb2.ClusterLoadAssignment.FromString(encoded_assignment(resolved)) == meant_endpoints("", resolved)


def many(count: int) -> tuple[EndpointAddress, ...]:
    return tuple(EndpointAddress(f"10.0.0.{number}", 8443 + number) for number in range(count))


# --- the same as messages --------------------------------------------------------------------------------------------


def meant_endpoints(name: str, resolved: Endpoints) -> endpoint_pb2.ClusterLoadAssignment:
    members = [
        endpoint_components_pb2.LbEndpoint(
            endpoint=endpoint_components_pb2.Endpoint(address=socket_address(e.address, e.port))
        )
        for e in resolved.endpoints
    ]
    localities = [endpoint_components_pb2.LocalityLbEndpoints(lb_endpoints=members)] if members else []
    return endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=localities)

"""BackendTLS as Envoy's UpstreamTlsContext: exactly the checks that were asked for."""

from __future__ import annotations

import base64
import functools
import re
from typing import Final

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2
from envoy.type.matcher.v3 import regex_pb2, string_pb2
from google.protobuf.wrappers_pb2 import UInt32Value

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.encode import over_ads, packed
from lasthop.engine.plan.tls import Anchors, BackendTLS, Mode, San, SanType, Trust
from lasthop.engine.plan.tls_options import TLSOptions

SESSION_KEYS: Final = 64
"""TLS 1.3 tickets are used once: 64 let parallel connections resume (docs/measurements.md#tls-sessions)."""

VERSIONS: Final = {
    "1.0": common_pb2.TlsParameters.TLSv1_0,
    "1.1": common_pb2.TlsParameters.TLSv1_1,
    "1.2": common_pb2.TlsParameters.TLSv1_2,
    "1.3": common_pb2.TlsParameters.TLSv1_3,
}

TLS: Final = "envoy.transport_sockets.tls"


def upstream_transport_socket(tls: BackendTLS, alpn: tuple[str, ...] = ()) -> base_pb2.TransportSocket:
    """Returns the TLS of a cluster. `alpn` only where Envoy does not work it out by itself, as it does for HTTP."""
    context = tls_pb2.UpstreamTlsContext(sni=tls.sni)
    context.MergeFrom(_alike(tls.options, alpn))
    if tls.client_certificate:
        shown = secret_config(client_secret_name(tls.client_certificate, tls.client_digest))
        context.common_tls_context.tls_certificate_sds_secret_configs.append(shown)
    # Without a validation context Envoy checks nothing.
    if tls.mode is not Mode.WAIVED_ALL:
        context.common_tls_context.validation_context.CopyFrom(_validation(tls))
    return base_pb2.TransportSocket(name=TLS, typed_config=packed(context))


@functools.lru_cache(maxsize=256)
def _alike(options: TLSOptions, alpn: tuple[str, ...]) -> tls_pb2.UpstreamTlsContext:
    """Returns what thousands of hops have in common. It is copied and never changed."""
    parameters = common_pb2.TlsParameters(
        tls_minimum_protocol_version=VERSIONS[options.lowest],
        tls_maximum_protocol_version=VERSIONS[options.max_version],
        cipher_suites=options.cipher_suites,
        ecdh_curves=options.curves,
    )
    return tls_pb2.UpstreamTlsContext(
        max_session_keys=UInt32Value(value=SESSION_KEYS if options.session_reuse == "true" else 0),
        common_tls_context=tls_pb2.CommonTlsContext(alpn_protocols=alpn, tls_params=parameters),
    )


def _validation(tls: BackendTLS) -> common_pb2.CertificateValidationContext:
    if tls.trust is None and not tls.pins:
        raise ValueError(f"{tls.source} would check nothing, and no waiver allows that")
    anchors = tls.trust if isinstance(tls.trust, Anchors) else Anchors(b"")
    # No `max_verify_depth` either: Envoy 1.40 takes it and does not look at it here (docs/measurements.md#unsafe-settings).
    # Never `trust_chain_verification: ACCEPT_UNTRUSTED`: it turns off pins, too (docs/measurements.md#unsafe-settings).
    return common_pb2.CertificateValidationContext(
        trusted_ca=_trusted_ca(tls.trust) if tls.trust else None,
        match_typed_subject_alt_names=[_matcher(name) for name in tls.names],
        verify_certificate_spki=sorted(base64.b64encode(pin).decode() for pin in tls.pins.keys),
        verify_certificate_hash=sorted(pin.hex() for pin in tls.pins.certificates),
        crl=base_pb2.DataSource(inline_bytes=anchors.crl) if anchors.crl else None,
        only_verify_leaf_cert_crl=anchors.crl_of_leaf,
        allow_expired_certificate=tls.mode is Mode.WAIVED_EXPIRY,
    )


def secret_config(name: str) -> secret_pb2.SdsSecretConfig:
    return secret_pb2.SdsSecretConfig(name=name, sds_config=over_ads())


def client_secret_name(secret: Key, digest: str) -> str:
    return f"{secret.path}@{digest}"


def _trusted_ca(trust: Trust) -> base_pb2.DataSource:
    # Never `system_root_certs`: Envoy 1.40 takes it and verifies nothing (docs/measurements.md#unsafe-settings).
    if isinstance(trust, Anchors):
        return base_pb2.DataSource(inline_bytes=trust.pem)
    return base_pb2.DataSource(filename=trust.path)


def _matcher(name: San) -> common_pb2.SubjectAltNameMatcher:
    if name.type is SanType.URI:
        exact = string_pb2.StringMatcher(exact=name.value)
        return common_pb2.SubjectAltNameMatcher(san_type=common_pb2.SubjectAltNameMatcher.URI, matcher=exact)
    regex = string_pb2.StringMatcher(safe_regex=regex_pb2.RegexMatcher(regex=dns_regex(name.value)))
    return common_pb2.SubjectAltNameMatcher(san_type=common_pb2.SubjectAltNameMatcher.DNS, matcher=regex)


def dns_regex(name: str) -> str:
    """Matches the certificate names that a policy's name accepts, by RFC 9525 6.3: a wildcard only as the whole left-most
    label, for one label. A regex sees the SAN as it is written; Envoy's own exact matcher would also accept `f*.example.com`.

    A wildcard in the policy accepts a certificate that carries that wildcard or any one-label name under it.
    """
    first, dot, rest = name.partition(".")
    if not dot:
        return f"(?i){re.escape(first)}"
    label = r"(\*|[a-z0-9_-]+)" if first == "*" else rf"({re.escape(first)}|\*)"
    return rf"(?i){label}\.{re.escape(rest)}"
